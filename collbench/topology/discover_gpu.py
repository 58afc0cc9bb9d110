"""Discovery of GPUs and their links, from NVML.

Only this module imports pynvml (from nvidia-ml-py). Every function takes that module as `nvml`, so that tests can
pass simulated machines. The numbers are from NVIDIA's nvml.h. Values that the driver does not report are None.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest
from typing import Any

from collbench.errors import PlatformError
from collbench.topology.discovered import SLICE, DriverInfo, FabricInfo, Gpu, Link, LinkKind, NvLink, Pcie, Topology
from collbench.topology.products import ARCHITECTURES

NVLINK_GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""NVLink generation for NVML_NVLINK_VERSION_*, an enumeration: an A100 answers 5 and means NVLink 3.1."""

GENERATIONS = {2: "Kepler", 3: "Maxwell", 13: "Rubin"} | {gpus.nvml: gpus.name for gpus in ARCHITECTURES.values()}
"""NVML_DEVICE_ARCH_*."""

PATHS = {
    0: "on one board",
    10: "through one PCIe switch",
    20: "through several PCIe switches",
    30: "through one CPU host bridge",
    40: "between host bridges of one NUMA node",
    50: "between NUMA nodes",
}
"""NVML_TOPOLOGY_*; nvidia-smi topo prints PIX, PXB, PHB, NODE and SYS for all but the first."""

REFUSALS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "not across these host bridges",
    4: "switched off by a driver setting",
    5: "not supported",
}
"""NVMLP2P_STATUS_* other than OK (0) and unknown (6)."""

FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}
"""NVML_GPU_FABRIC_STATE_* of GPUs that are on a fabric."""

# Not NVMLP2P_CAPS_INDEX_*: in nvidia-ml-py a comma has turned the first of them into a tuple.
P2P_READ, P2P_WRITE, P2P_NVLINK = 0, 1, 2

_CONTAINER = "a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility"


@contextmanager
def session(nvml: Any) -> Iterator[Any]:
    """Open NVML; the only place that turns its errors into PlatformError."""
    nvml = nvml or _load()
    try:
        nvml.nvmlInit()
        try:
            yield nvml
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        fix = _CONTAINER if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND else "check `nvidia-smi`"
        raise PlatformError(f"NVML cannot be used ({error}): {fix}") from error


def _load() -> Any:
    try:
        import pynvml
    except ModuleNotFoundError as error:
        if error.name != "pynvml":
            raise
        raise PlatformError("NVML cannot be used (no module named pynvml): pip install nvidia-ml-py") from error
    return pynvml


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Return what NVML answers, or None if this driver, GPU or version of nvidia-ml-py cannot say."""
    function = getattr(nvml, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


@dataclass(frozen=True)
class _Seen:
    """A GPU with NVML's handle, and where each active NVLink leads."""

    handle: Any
    gpu: Gpu
    remotes: tuple[str, ...]  # bus ids of the far ends


def discover(
    ranks: int | None = None, bus_ids: Sequence[str] | None = None, uuids: Sequence[str] = (), nvml: Any = None
) -> Topology:
    """Discover the GPUs that ranks 0, 1, ... run on, in turn; by default a rank for each GPU.

    `bus_ids` are the GPUs' PCI addresses in CUDA's order, which differs from NVML's and obeys CUDA_VISIBLE_DEVICES;
    without them, every GPU that NVML shows.  `uuids` are in CUDA's order too, in hexadecimal as far as they are known:
    they tell which are MIG slices of the GPU at that address.  PlatformError where there is no GPU, no driver or no
    nvidia-ml-py.
    """
    with session(nvml) as library:
        handles = _handles(library, bus_ids)
        seen = [_see(library, *known) for known in zip_longest(handles[:ranks], uuids[:ranks], fillvalue="")]
        if not seen:
            raise PlatformError("the NVIDIA driver shows no GPU: check `nvidia-smi`")
        cuda = ask(library, "nvmlSystemGetCudaDriverVersion_v2")
        return Topology(
            "gpu",
            ranks or len(seen),
            gpus=tuple(device.gpu for device in seen),
            links=tuple(_link(library, seen, a, b) for a, b in combinations(range(len(seen)), 2)),
            driver=DriverInfo(
                ask(library, "nvmlSystemGetDriverVersion"), f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
            ),
        )


def normalize(bus_id: str) -> str:
    """Return a PCI address in CUDA's spelling: 0000:0a:00.0 for NVML's 00000000:0A:00.0."""
    match = re.fullmatch(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)\.([0-9a-f]+)", bus_id.strip().lower())
    if not match:
        return bus_id.strip().lower()
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def _handles(nvml: Any, bus_ids: Sequence[str] | None) -> list[Any]:
    every = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if bus_ids is None:
        return every
    by_bus = {normalize(nvml.nvmlDeviceGetPciInfo(handle).busId): handle for handle in every}
    missing = [bus_id for bus_id in bus_ids if normalize(bus_id) not in by_bus]
    if missing:
        known = ", ".join(by_bus) or "none"
        raise PlatformError(f"CUDA uses the GPU at {missing[0]}, which NVML does not show (it shows {known})")
    return [by_bus[normalize(bus_id)] for bus_id in bus_ids]


def _see(nvml: Any, handle: Any, uuid: str) -> _Seen:
    links = [link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if ask(nvml, "nvmlDeviceGetNvLinkState", handle, link)]
    kinds = [ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) for link in links]
    ends = [ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link) for link in links]
    capability = ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    mig = ask(nvml, "nvmlDeviceGetMigMode", handle)
    gpu = Gpu(
        name=nvml.nvmlDeviceGetName(handle),
        bus_id=normalize(nvml.nvmlDeviceGetPciInfo(handle).busId),
        uuid=ask(nvml, "nvmlDeviceGetUUID", handle) or "",
        architecture=GENERATIONS.get(ask(nvml, "nvmlDeviceGetArchitecture", handle)),
        capability=".".join(map(str, capability)) if capability else None,
        memory=memory.total if memory else None,
        numa=_numa(nvml, handle),
        pcie=Pcie(
            generation=ask(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
            width=ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
            max_generation=ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
            max_width=ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        ),
        nvlink=_nvlink(nvml, handle, links),
        switch_links=kinds.count(nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH),
        mig=mig[0] == nvml.NVML_FEATURE_ENABLED if mig else None,
        fabric=_fabric(nvml, handle),
    )

    # CUDA's UUID is that of the whole GPU, or else of one of its slices.
    if gpu.mig and uuid and not _digits(gpu.uuid).startswith(uuid):
        return _Seen(handle, _slice(nvml, handle, gpu, uuid), ())
    return _Seen(handle, gpu, tuple(normalize(end.busId) for end in ends if end))


def _slice(nvml: Any, handle: Any, gpu: Gpu, uuid: str) -> Gpu:
    """The MIG slice of a GPU with that UUID; NVML may hide slices, and then only name and UUID are known."""
    name, full_uuid, memory = f"{gpu.name} MIG slice", f"{SLICE}{uuid}", None
    for index in range(ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        part = ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        part_uuid = ask(nvml, "nvmlDeviceGetUUID", part) if part is not None else None
        if part_uuid and _digits(part_uuid).startswith(uuid):
            full_uuid, memory = part_uuid, ask(nvml, "nvmlDeviceGetMemoryInfo", part)
            name = ask(nvml, "nvmlDeviceGetName", part) or name
            break
    nbytes = memory.total if memory else None
    return replace(gpu, name=name, uuid=full_uuid, memory=nbytes, nvlink=None, switch_links=0, fabric=None)


def _digits(uuid: str) -> str:
    """Return a UUID of NVML in hexadecimal alone, without GPU- or MIG- in front."""
    return uuid[4:].replace("-", "").lower()


def _numa(nvml: Any, handle: Any) -> int | None:
    # Not nvmlDeviceGetNumaNodeId, which is about GPUs that are NUMA nodes themselves.
    mask = ask(nvml, "nvmlDeviceGetMemoryAffinity", handle, 16, nvml.NVML_AFFINITY_SCOPE_NODE)
    for index, word in enumerate(mask or ()):
        if word:
            return 64 * index + int(word & -word).bit_length() - 1
    return None


def _nvlink(nvml: Any, handle: Any, links: list[int]) -> NvLink | None:
    if not links:
        return None
    version = ask(nvml, "nvmlDeviceGetNvLinkVersion", handle, links[0])
    # Megabytes, not megabits, in spite of its name.
    field = nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
    answers = ask(nvml, "nvmlDeviceGetFieldValues", handle, [field])
    line_rate = None
    if answers and answers[0].nvmlReturn == nvml.NVML_SUCCESS:
        line_rate = answers[0].value.uiVal * 1e6 or None
    return NvLink(NVLINK_GENERATIONS.get(version), len(links), line_rate)


def _fabric(nvml: Any, handle: Any) -> FabricInfo | None:
    structure = getattr(nvml, "c_nvmlGpuFabricInfoV_t", None)
    if structure is None:
        return None
    answer = structure()
    if ask(nvml, "nvmlDeviceGetGpuFabricInfoV", handle, byref(answer)) is None:
        return None
    state = FABRIC_STATES.get(answer.state)
    return FabricInfo(state, bytes(answer.clusterUuid).hex(), answer.cliqueId) if state else None


def _link(nvml: Any, seen: Sequence[_Seen], a: int, b: int) -> Link:
    first, second = seen[a], seen[b]
    if first.gpu.slice or second.gpu.slice:
        kind = LinkKind.SAME_GPU if first.gpu.bus_id == second.gpu.bus_id else LinkKind.PCIE
        return Link(a, b, kind, p2p="no", reason="MIG slices reach no other GPU's memory")
    p2p, reason = _p2p(nvml, first.handle, second.handle)
    joined = _nvlink_between(nvml, first, second)
    if joined:
        return Link(a, b, joined[0], nvlink=joined[1], p2p=p2p, reason=reason)
    path = PATHS.get(ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", first.handle, second.handle), "")
    ends = [device.gpu.pcie for device in (first, second) if device.gpu.pcie]
    slower = min(ends, key=lambda end: end.rate or float("inf"), default=None)
    return Link(a, b, LinkKind.PCIE, path, pcie=slower, p2p=p2p, reason=reason)


def _nvlink_between(nvml: Any, first: _Seen, second: _Seen) -> tuple[LinkKind, NvLink] | None:
    """Links straight between the two, else through switches that both are joined to, else what the driver claims."""
    mine, other = first.gpu, second.gpu
    if not mine.nvlink or not other.nvlink:
        return None
    generation, line_rate = mine.nvlink.generation, mine.nvlink.line_rate
    direct = first.remotes.count(other.bus_id)
    if direct:
        return LinkKind.NVLINK, NvLink(generation, direct, line_rate)
    switched = min(mine.switch_links, other.switch_links)
    if switched:
        # Without a fabric, switches join all of a machine; with one, the GPUs of a clique.
        cliques = {(fabric.cluster, fabric.clique) for fabric in (mine.fabric, other.fabric) if fabric}
        return None if len(cliques) > 1 else (LinkKind.NVSWITCH, NvLink(generation, switched, line_rate))
    if ask(nvml, "nvmlDeviceGetP2PStatus", first.handle, second.handle, P2P_NVLINK) == nvml.NVML_P2P_STATUS_OK:
        # They are joined, but a virtual machine hides how.
        return LinkKind.NVLINK, NvLink(generation, None, line_rate)
    return None


def _p2p(nvml: Any, first: Any, second: Any) -> tuple[str, str]:
    answers = [ask(nvml, "nvmlDeviceGetP2PStatus", first, second, index) for index in (P2P_READ, P2P_WRITE)]
    refused = [REFUSALS[answer] for answer in answers if answer in REFUSALS]
    if refused:
        return "no", f"the driver says: {refused[0]}"
    # Its yes is no proof, which takes a probe.
    claimed = all(answer == nvml.NVML_P2P_STATUS_OK for answer in answers)
    return "unprobed", "the driver claims it" if claimed else ""
