# ruff: noqa: N802 - the names are pynvml's
"""NVML of machines that nobody has at hand, which answers as pynvml does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

SWITCH, GPU = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
UNSUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED


@dataclass(frozen=True)
class FakeGpu:
    """Answers of one GPU; None stands for "Not Supported"."""

    name: str
    bus_id: str  # as NVML writes it
    links: tuple[tuple[int | None, str], ...] = ()  # type and bus id of each far end
    link_version: int = pynvml.NVML_NVLINK_VERSION_4_0
    link_speed: int | None = None  # MB/s
    pcie: tuple[int, int, int, int] | None = (1, 16, 5, 16)  # generation and width now, then at most
    memory: int | None = 80 * 2**30
    architecture: int | None = pynvml.NVML_DEVICE_ARCH_HOPPER
    capability: tuple[int, int] | None = (9, 0)
    mig: int | None = 0
    fabric: tuple[int, int] | None = None  # state, clique
    numa: int | None = 0
    slices: "tuple[Slice | None, ...]" = ()  # None: none at that index


@dataclass(frozen=True)
class Slice:
    """Answers of one MIG slice; it supports nothing else."""

    name: str
    uuid: str
    memory: int


@dataclass
class FakeNvml:
    """Answers as pynvml does, with pynvml's own constants, structures and errors; handles are the FakeGpus."""

    gpus: list[FakeGpu]
    level: int | None = pynvml.NVML_TOPOLOGY_SYSTEM
    p2p: dict[int, int] = field(default_factory=dict)  # status for READ, WRITE and NVLINK; else not supported
    init_error: int = 0
    opened: int = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("NVML", "c_nvml")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        if self.init_error:
            raise pynvml.NVMLError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> Slice:
        if gpu.slices[index] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.slices[index]

    def nvmlDeviceGetMemoryAffinity(self, gpu: FakeGpu, size: int, scope: int) -> list[int]:
        assert scope == pynvml.NVML_AFFINITY_SCOPE_NODE
        node: int = _supported(gpu.numa)
        return [(1 << node) if word == 0 else 0 for word in range(size)]

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, link: int) -> int:
        if not gpu.links:
            raise pynvml.NVMLError(UNSUPPORTED)
        return int(link < len(gpu.links))

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[int]) -> list[SimpleNamespace]:
        assert fields == [pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]
        status = UNSUPPORTED if gpu.link_speed is None else pynvml.NVML_SUCCESS
        return [SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=gpu.link_speed or 0))]

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: FakeGpu, pointer: Any) -> int:
        pointer._obj.state, pointer._obj.cliqueId = _supported(gpu.fabric)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetP2PStatus(self, first: FakeGpu, second: FakeGpu, index: int) -> int:
        assert isinstance(index, int), "ctypes takes no tuple"
        return _supported(self.p2p.get(index))


def _supported(answer: Any) -> Any:
    if answer is None:
        raise pynvml.NVMLError(UNSUPPORTED)
    return answer


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlSystemGetDriverVersion": lambda nvml: "570.86.15",
    "nvmlSystemGetCudaDriverVersion_v2": lambda nvml: 12080,
    "nvmlDeviceGetCount": lambda nvml: len(nvml.gpus),
    "nvmlDeviceGetHandleByIndex": lambda nvml, index: nvml.gpus[index],
    "nvmlDeviceGetName": lambda nvml, gpu: gpu.name,
    "nvmlDeviceGetUUID": lambda nvml, gpu: gpu.uuid if isinstance(gpu, Slice) else f"GPU-{gpu.bus_id}",
    "nvmlDeviceGetMaxMigDeviceCount": lambda nvml, gpu: len(gpu.slices),
    "nvmlDeviceGetPciInfo": lambda nvml, gpu: SimpleNamespace(busId=gpu.bus_id),
    "nvmlDeviceGetArchitecture": lambda nvml, gpu: _supported(gpu.architecture),
    "nvmlDeviceGetCudaComputeCapability": lambda nvml, gpu: _supported(gpu.capability),
    "nvmlDeviceGetMemoryInfo": lambda nvml, gpu: SimpleNamespace(total=_supported(gpu.memory)),
    "nvmlDeviceGetMigMode": lambda nvml, gpu: [_supported(gpu.mig), 0],
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda nvml, gpu: _supported(gpu.pcie)[0],
    "nvmlDeviceGetCurrPcieLinkWidth": lambda nvml, gpu: _supported(gpu.pcie)[1],
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda nvml, gpu: _supported(gpu.pcie)[2],
    "nvmlDeviceGetMaxPcieLinkWidth": lambda nvml, gpu: _supported(gpu.pcie)[3],
    "nvmlDeviceGetNvLinkVersion": lambda nvml, gpu, link: gpu.link_version,
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda nvml, gpu, link: _supported(gpu.links[link][0]),
    "nvmlDeviceGetNvLinkRemotePciInfo": lambda nvml, gpu, link: SimpleNamespace(busId=gpu.links[link][1]),
    "nvmlDeviceGetTopologyCommonAncestor": lambda nvml, first, second: _supported(nvml.level),
}
for _name, _answer in ANSWERS.items():
    setattr(FakeNvml, _name, _answer)


def bus(number: int) -> str:
    return f"00000000:{number:02X}:00.0"
