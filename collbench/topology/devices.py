"""What ranks live on: GPUs or CPU sockets, and the machine around them. None: the system does not say."""

from dataclasses import dataclass

from collbench.topology.links import NvLink, Pcie

SLICE = "MIG-"  # what the UUID of a MIG slice begins with


@dataclass(frozen=True)
class Fabric:
    """A GPU's place among the GPUs that one NVSwitch fabric joins."""

    state: str  # "not started", "in progress" or "completed"
    cluster: str = ""  # UUID in hexadecimal; zeros inside one machine
    clique: int = 0  # only GPUs of one clique reach each other


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver sees it."""

    name: str
    bus_id: str = ""  # as CUDA writes it: 0000:0a:00.0
    uuid: str = ""
    architecture: str | None = None
    capability: str | None = None  # compute capability, such as "9.0"
    memory: int | None = None  # bytes
    numa: int | None = None  # the NUMA node whose memory is nearest
    pcie: Pcie | None = None
    nvlink: NvLink | None = None  # its active links, wherever they lead
    switch_links: int = 0  # how many of them lead to an NVSwitch
    mig: bool | None = None
    fabric: Fabric | None = None
    host: str = ""  # the node that it is in, where a run may span several

    @property
    def slice(self) -> bool:
        """Whether it is a MIG slice, which shares its bus id with other slices."""
        return self.uuid.startswith(SLICE)


@dataclass(frozen=True)
class Driver:
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
