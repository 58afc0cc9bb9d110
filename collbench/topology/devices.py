"""What ranks live on: GPUs or CPU sockets, their links, and the machine around them.  None: not known."""

from dataclasses import dataclass
from enum import StrEnum

NVLINK_RATES = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
"""Bytes per second of one link in one direction, by NVLink generation.

From NVIDIA's data sheets, which give both directions of all links together: P100 160 GB/s over 4 links, V100
300 over 6, A100 600 over 12, H100 900 over 18, B200 1800 over 18.  The line is a little faster (26.56 GB/s in
generation 4), which pays for its encoding.
"""

PCIE_RATES = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}
"""Bytes per second of one lane in one direction, by PCIe generation: after encoding, with packet headers.

From PCI-SIG's base specifications: transfers per second, times 8b/10b, 128b/130b or (generation 6) the 242
bytes of each 256-byte flit that are not link overhead and check codes, times one byte per eight bits.
"""


class Kind(StrEnum):
    """What carries bytes between two devices, or between two ranks on one."""

    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    PCIE = "pcie"
    SAME_GPU = "same gpu"
    SHARED_MEMORY = "shared memory"
    NETWORK = "network"


@dataclass(frozen=True)
class NvLink:
    """NVLinks side by side: all of one GPU, or those that lead to one peer."""

    generation: int | None = None
    count: int | None = None
    line_rate: float | None = None  # bytes/s of one link in one direction, as the driver reports it

    @property
    def rate(self) -> float | None:
        """Bytes/s in one direction, all links together; None if the driver does not say enough.

        The lower of data sheet and line rate: GPUs of one generation differ (A100 25 GB/s, RTX A6000 14).
        """
        known = [rate for rate in (NVLINK_RATES.get(self.generation or 0), self.line_rate) if rate]
        return self.count * min(known) if self.count and known else None

    def __str__(self) -> str:
        name = f"NVLink {self.generation}" if self.generation else "NVLink"
        return f"{self.count} x {name}" if self.count else name


@dataclass(frozen=True)
class Pcie:
    """A PCIe connection: what it runs at now, and the most that slot and device allow together."""

    generation: int | None = None  # falls while the device idles, so it says nothing about speed under load
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None

    @property
    def rate(self) -> float | None:
        """Bytes/s in one direction under load: at the highest generation, over the lanes in use now."""
        lane = PCIE_RATES.get(self.max_generation or self.generation or 0)
        width = self.width or self.max_width
        return lane * width if lane and width else None

    @property
    def narrow(self) -> bool:
        """Whether fewer lanes are in use than slot and device allow."""
        return bool(self.width and self.max_width and self.width < self.max_width)

    def __str__(self) -> str:
        generation, width = self.max_generation or self.generation, self.width or self.max_width
        name = f"PCIe {generation}" if generation else "PCIe"
        return f"{name} x{width}" if width else name


@dataclass(frozen=True)
class Link:
    """What connects devices `a` and `b` of Topology.devices, and whether each may use the other's memory."""

    a: int
    b: int
    kind: str  # one of Kind, or what a later collbench adds to it
    path: str = ""  # where it goes, in words: "between NUMA nodes"
    nvlink: NvLink | None = None
    pcie: Pcie | None = None  # of the slower end
    p2p: str = "unprobed"  # "yes": each read what the other wrote; "no"; "unprobed"
    reason: str = ""  # why p2p is what it is

    @property
    def rate(self) -> float | None:
        """Bytes/s in one direction that the connection is specified for; None where no table says it."""
        carrier = self.pcie if self.kind == Kind.PCIE else self.nvlink
        return carrier.rate if carrier else None


SLICE = "MIG-"  # what the UUID of a MIG slice begins with


@dataclass(frozen=True)
class FabricInfo:
    """A GPU's place among the GPUs that one NVSwitch fabric joins."""

    state: str  # "not started", "in progress" or "completed"
    cluster: str = ""  # UUID in hexadecimal; zeros inside one machine
    clique: int = 0  # only GPUs of one clique reach each other


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver sees it."""

    name: str
    bus_id: str = ""  # as CUDA writes it: 0000:0a:00.0
    uuid: str = ""  # as NVML writes it; without NVML, in hexadecimal as CUDA has it
    architecture: str | None = None
    capability: str | None = None  # compute capability, such as "9.0"
    memory: int | None = None  # bytes
    numa: int | None = None  # the NUMA node whose memory is nearest
    pcie: Pcie | None = None
    nvlink: NvLink | None = None  # its active links, wherever they lead
    switch_links: int = 0  # how many of them lead to an NVSwitch
    mig: bool | None = None
    fabric: FabricInfo | None = None
    host: str = ""  # the node that it is in, where a run may span several

    @property
    def slice(self) -> bool:
        """Whether it is a MIG slice, which shares its bus id with other slices."""
        return self.uuid.startswith(SLICE)


@dataclass(frozen=True)
class DriverInfo:
    """The NVIDIA driver, and the CUDA version that it brings."""

    version: str | None = None
    cuda: str | None = None


@dataclass(frozen=True)
class Socket:
    """One CPU package."""

    name: str
    cores: int | None = None
    threads: int | None = None  # logical CPUs that are online


@dataclass(frozen=True)
class Cache:
    """All caches of one level and type in the machine."""

    name: str  # "L1d", "L2"
    nbytes: int  # of one
    instances: int
    shared_by: int  # logical CPUs that share one


@dataclass(frozen=True)
class NumaNode:
    """Memory, and the CPUs that are nearest to it."""

    number: int
    cpus: tuple[int, ...]
    memory: int | None = None  # bytes


@dataclass(frozen=True)
class Host:
    """The machine that CPU ranks run on, and how much of it they may use."""

    usable: tuple[int, ...]  # logical CPUs in the affinity mask
    cpu_limit: float | None = None  # CPUs' worth of time that the control group allows
    caches: tuple[Cache, ...] = ()
    numa: tuple[NumaNode, ...] = ()
    memory: int | None = None  # bytes
    shm_free: int | None = None  # bytes free in /dev/shm, where shared-memory windows live

    @property
    def capacity(self) -> int:
        """Ranks that can run at one time: usable CPUs, fewer if the control group allows less; at least 1."""
        limit = len(self.usable) if self.cpu_limit is None else min(len(self.usable), int(self.cpu_limit))
        return max(limit, 1)
