# ruff: noqa: N802 - the names are pynvml's
"""NVML of machines that nobody has at hand, which answers as pynvml does."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

SWITCH, GPU = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
UNSUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED


@dataclass(frozen=True)
class FakeGpu:
    """What one GPU answers; None stands for "Not Supported"."""

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
    """What one MIG slice answers; everything that is not here it does not support."""

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

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetName(self, gpu: FakeGpu | Slice) -> str:
        return gpu.name

    def nvmlDeviceGetUUID(self, gpu: FakeGpu | Slice) -> str:
        return gpu.uuid if isinstance(gpu, Slice) else f"GPU-{gpu.bus_id}"

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return len(gpu.slices)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> Slice:
        if gpu.slices[index] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.slices[index]

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(busId=gpu.bus_id)

    def nvmlDeviceGetArchitecture(self, gpu: FakeGpu) -> int:
        return _supported(gpu.architecture)

    def nvmlDeviceGetCudaComputeCapability(self, gpu: FakeGpu) -> tuple[int, int]:
        return _supported(gpu.capability)

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(total=_supported(gpu.memory))

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        return [_supported(gpu.mig), 0]

    def nvmlDeviceGetMemoryAffinity(self, gpu: FakeGpu, size: int, scope: int) -> list[int]:
        assert scope == pynvml.NVML_AFFINITY_SCOPE_NODE
        node: int = _supported(gpu.numa)
        return [(1 << node) if word == 0 else 0 for word in range(size)]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: FakeGpu) -> int:
        return _supported(gpu.pcie)[0]

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: FakeGpu) -> int:
        return _supported(gpu.pcie)[1]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: FakeGpu) -> int:
        return _supported(gpu.pcie)[2]

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: FakeGpu) -> int:
        return _supported(gpu.pcie)[3]

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, link: int) -> int:
        if not gpu.links:
            raise pynvml.NVMLError(UNSUPPORTED)
        return int(link < len(gpu.links))

    def nvmlDeviceGetNvLinkVersion(self, gpu: FakeGpu, link: int) -> int:
        return gpu.link_version

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: FakeGpu, link: int) -> int:
        return _supported(gpu.links[link][0])

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: FakeGpu, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=gpu.links[link][1])

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[int]) -> list[SimpleNamespace]:
        assert fields == [pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]
        status = UNSUPPORTED if gpu.link_speed is None else pynvml.NVML_SUCCESS
        return [SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=gpu.link_speed or 0))]

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: FakeGpu, pointer: Any) -> int:
        pointer._obj.state, pointer._obj.cliqueId = _supported(gpu.fabric)
        return pynvml.NVML_SUCCESS

    def nvmlDeviceGetTopologyCommonAncestor(self, first: FakeGpu, second: FakeGpu) -> int:
        return _supported(self.level)

    def nvmlDeviceGetP2PStatus(self, first: FakeGpu, second: FakeGpu, index: int) -> int:
        assert isinstance(index, int), "ctypes takes no tuple"
        return _supported(self.p2p.get(index))


def _supported(answer: Any) -> Any:
    if answer is None:
        raise pynvml.NVMLError(UNSUPPORTED)
    return answer


def bus(number: int) -> str:
    return f"00000000:{number:02X}:00.0"
