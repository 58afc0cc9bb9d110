"""The discovered machine: ranks, devices, links, and conditions that distort measurements.

It describes GPUs or CPU sockets, their links, and their host. None means unknown.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from itertools import product
from typing import Any

from collbench.notebook import Shown
from collbench.records import Record, plain
from collbench.units import counted, format_size

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


class LinkKind(StrEnum):
    """The connection between two devices, or between two ranks on one device."""

    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    PCIE = "pcie"
    SAME_GPU = "same gpu"
    SHARED_MEMORY = "shared memory"
    NETWORK = "network"


class NvLink(Record, frozen=True):
    """Parallel NVLinks: all of a GPU, or those to one peer."""

    generation: int | None = None
    count: int | None = None
    line_rate: float | None = None  # bytes/s of one link in one direction, as the driver reports it

    @property
    def rate(self) -> float | None:
        """Bytes/s in one direction, all links together; None if unknown."""
        # The lower of data sheet and line rate, since GPUs of one generation differ (A100 25 GB/s, RTX A6000 14).
        rates = list(filter(None, (NVLINK_RATES.get(self.generation or 0), self.line_rate)))
        return self.count * min(rates) if self.count and rates else None

    def __str__(self) -> str:
        name = f"NVLink {self.generation}" if self.generation else "NVLink"
        return f"{self.count} x {name}" if self.count else name


class Pcie(Record, frozen=True):
    """A PCIe connection: its current state, and the maximum of slot and device together."""

    generation: int | None = None  # falls while the device idles
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


class Link(Record, frozen=True):
    """The link of devices `a` and `b` of Topology.devices, and whether each may use the other's memory."""

    a: int
    b: int
    kind: str  # a LinkKind, or one from a later release
    path: str = ""  # in words: "between NUMA nodes"
    nvlink: NvLink | None = None
    pcie: Pcie | None = None  # of the slower end
    p2p: str = "unprobed"  # "yes": each read what the other wrote; "no"; "unprobed"
    reason: str = ""  # the reason for `p2p`

    @property
    def rate(self) -> float | None:
        """The specified bytes/s in one direction; None if unknown."""
        carrier = self.pcie if self.kind == LinkKind.PCIE else self.nvlink
        return carrier.rate if carrier else None


SLICE = "MIG-"  # prefix of the UUID of a MIG slice


class FabricInfo(Record, frozen=True):
    """A GPU's membership in an NVSwitch fabric."""

    state: str  # "not started", "in progress" or "completed"
    cluster: str = ""  # UUID in hexadecimal; zeros inside one machine
    clique: int = 0  # only GPUs of one clique reach each other


class Gpu(Record, frozen=True):
    """One GPU, as the driver sees it."""

    name: str = ""
    bus_id: str = ""  # as CUDA writes it: 0000:0a:00.0
    uuid: str = ""  # in NVML's form, or without NVML in CUDA's hexadecimal
    architecture: str | None = None
    capability: str | None = None  # compute capability, such as "9.0"
    memory: int | None = None  # bytes
    numa: int | None = None  # the NUMA node whose memory is nearest
    pcie: Pcie | None = None
    nvlink: NvLink | None = None  # all its active links
    switch_links: int = 0  # active links to an NVSwitch
    mig: bool | None = None
    fabric: FabricInfo | None = None
    host: str = ""  # its node, if a run may span several

    @property
    def slice(self) -> bool:
        """Whether it is a MIG slice; slices of one GPU share a bus id."""
        return self.uuid.startswith(SLICE)

    @property
    def links(self) -> int:
        """Number of active NVLinks; 0 if unknown."""
        return self.nvlink.count or 0 if self.nvlink else 0


class DriverInfo(Record, frozen=True):
    """The NVIDIA driver and its CUDA version."""

    version: str | None = None
    cuda: str | None = None


class Socket(Record, frozen=True):
    """One CPU package."""

    host = bus_id = ""  # as a GPU has
    name: str
    cores: int | None = None
    threads: int | None = None  # logical CPUs that are online


class Cache(Record, frozen=True):
    """All caches of one level and type in the machine."""

    name: str  # "L1d", "L2"
    nbytes: int  # of one cache
    instances: int
    shared_by: int  # logical CPUs that share a cache


class NumaNode(Record, frozen=True):
    """Memory, and the CPUs that are nearest to it."""

    number: int
    cpus: tuple[int, ...]
    memory: int | None = None  # bytes


class Host(Shown, Record, frozen=True):
    """The machine of CPU ranks, and its usable part."""

    usable: tuple[int, ...] = ()  # logical CPUs in the affinity mask
    cpu_limit: float | None = None  # CPU time limit of the control group, in CPUs
    caches: tuple[Cache, ...] = ()
    numa: tuple[NumaNode, ...] = ()
    memory: int | None = None  # bytes
    shm_free: int | None = None  # bytes free in /dev/shm, where shared-memory windows live

    @property
    def capacity(self) -> int:
        """Number of ranks that can run at once: usable CPUs, or the control group's limit if lower; at least 1."""
        limit = len(self.usable) if self.cpu_limit is None else min(len(self.usable), int(self.cpu_limit))
        return max(limit, 1)


Probed = Mapping[tuple[int, int], tuple[bool, str]]
"""For an ordered pair of devices: whether the first can use the second's memory, with the reason."""

_WORDS: dict[str, str] = {
    LinkKind.NVLINK: "NVLink",
    LinkKind.NVSWITCH: "NVSwitch",
    LinkKind.PCIE: "PCIe",
}  # else as the kind


class Topology(Record, frozen=True):
    """Ranks on devices; by default rank r runs on device r modulo the number of devices."""

    platform: str = ""
    ranks: int = 0
    gpus: tuple[Gpu, ...] = ()
    sockets: tuple[Socket, ...] = ()
    links: tuple[Link, ...] = ()  # one for each pair of devices
    host: Host | None = None
    driver: DriverInfo | None = None
    places: tuple[int, ...] = ()  # each rank's device, unless ranks take devices in turn
    unseen: str = ""  # why the devices' links are unknown, or ""

    @property
    def devices(self) -> tuple[Gpu, ...] | tuple[Socket, ...]:
        """The GPUs, or the CPU sockets for CPU ranks."""
        return self.gpus or self.sockets

    @property
    def shared(self) -> bool:
        """Whether ranks outnumber the GPUs, so that some pairs have no bus between them."""
        return 0 < len(self.gpus) < self.ranks

    @property
    def sliced(self) -> bool:
        """Whether ranks run on MIG slices, which have no data sheet values."""
        return any(gpu.slice for gpu in self.gpus) or any(link.kind == LinkKind.SAME_GPU for link in self.links)

    @property
    def name(self) -> str:
        """Title of plots and tables: `8 x NVIDIA H100 80GB HBM3, NVSwitch`."""
        devices = Counter(device.name for device in self.devices)
        words = [" + ".join(f"{count} x {name}" for name, count in devices.items())]
        if self.sockets:
            count, unit = sum(socket.cores or 0 for socket in self.sockets), "core"
            if not count:
                count, unit = sum(socket.threads or 0 for socket in self.sockets), "CPU"
            if count:
                words.append(_several(count, unit))
            return f"{_several(self.ranks, 'rank')} on {', '.join(words)}"
        if self.links:
            words.append(" + ".join(dict.fromkeys(_WORDS.get(link.kind, link.kind) for link in self.links)))
        nodes = len({gpu.host for gpu in self.gpus})
        if nodes > 1:
            words.append(f"{nodes} nodes")
        return f"{self.ranks} ranks sharing {', '.join(words)}" if self.shared else ", ".join(words)

    def place(self, rank: int) -> int:
        """Return the device of a rank."""
        return self.places[rank] if self.places else rank % len(self.devices)

    def link(self, a: int, b: int) -> Link:
        """Return the link of ranks `a` and `b`; its ends are devices, equal if the ranks share one."""
        first, second = sorted(map(self.place, (a, b)))
        if first == second:
            return Link(first, second, LinkKind.SAME_GPU if self.gpus else LinkKind.SHARED_MEMORY, p2p="yes")
        return next(link for link in self.links if (link.a, link.b) == (first, second))

    def probed(self, results: Probed, otherwise: str = "") -> "Topology":
        """Return the topology with a probe's findings; `otherwise` is the reason for unprobed pairs."""
        return replace(self, links=tuple(_probed(link, results, otherwise) for link in self.links))

    def to_json(self) -> dict[str, Any]:
        """Return the record for a run file's header."""
        # `name` and `shared` are for readers without this module.
        record: dict[str, Any] = plain(asdict(self))
        return {"name": self.name, "shared": self.shared} | record


def _several(count: int, noun: str) -> str:
    """As `counted`, but without commas in large numbers: run files hold these names."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _probed(link: Link, results: Probed, otherwise: str) -> Link:
    answers = [results[pair] for pair in ((link.a, link.b), (link.b, link.a)) if pair in results]
    if answers:
        # The answer of the failing direction, if any.
        worked, reason = min(answers, key=lambda answer: answer[0])
        return replace(link, p2p="yes" if worked else "no", reason=reason)
    return replace(link, reason=otherwise or link.reason) if link.p2p == "unprobed" else link


def named(gpus: Sequence[Gpu], reason: str) -> Topology:
    """Return GPUs with only their names known, one rank on each; `reason` explains it."""
    return Topology("gpu", len(gpus), tuple(gpus), unseen=f"links and slots of the GPUs are not known: {reason}")


def join(nodes: Sequence[Topology], places: Sequence[int]) -> Topology:
    """Join nodes by a network, with their GPUs in sequence; `places` is each rank's GPU in that sequence."""
    gpus: tuple[Gpu, ...] = ()
    inside: list[Link] = []
    across: list[Link] = []
    # A node's GPUs follow the previous nodes' GPUs, with network links between nodes.
    for node in nodes:
        start, end = len(gpus), len(gpus) + len(node.gpus)
        inside += [replace(link, a=start + link.a, b=start + link.b) for link in node.links]
        for a, b in product(range(start), range(start, end)):
            across.append(Link(a, b, LinkKind.NETWORK, p2p="no", reason="they are on two nodes"))
        gpus += node.gpus
    in_turn = all(place == rank % len(gpus) for rank, place in enumerate(places))
    return Topology(
        nodes[0].platform,
        len(places),
        gpus,
        links=(*inside, *across),
        driver=nodes[0].driver,
        places=() if in_turn else tuple(places),
        unseen=next((node.unseen for node in nodes if node.unseen), ""),
    )


SMALL_SHM = 2**28  # bytes of /dev/shm; containers get 64 MiB by default


def small_shared_memory(free: int | None) -> str:
    """Return advice if `free` bytes in /dev/shm are too few, or ""."""
    if free is None or free >= SMALL_SHM:
        return ""
    return (
        f"only {format_size(free)} free in /dev/shm, where MPI libraries share memory; "
        "in Docker: --shm-size=1g, elsewhere: mount -o remount,size=1g /dev/shm"
    )


def caveats(topology: Topology) -> tuple[str, ...]:
    """Return sentences on conditions that distort measurements on a topology, the worst first."""
    sentences = [topology.unseen] if topology.unseen else []
    if topology.shared:
        sentences.append(
            f"{topology.ranks} ranks share {counted(len(topology.gpus), 'GPU')}: "
            "bus bandwidth means nothing between ranks of one GPU; read algbw"
        )
    sentences += _gpu_caveats(topology)
    if topology.host:
        sentences += _host_caveats(topology, topology.host)
    return tuple(sentences)


def _gpu_caveats(topology: Topology) -> Iterator[str]:
    if topology.gpus and any(link.p2p == "no" for link in topology.links):
        yield "GPUs without peer access copy through the host's memory, at a fraction of the rate given here"
    narrow = [str(i) for i, gpu in enumerate(topology.gpus) if gpu.pcie and gpu.pcie.narrow]
    if narrow:
        yield f"GPU {', '.join(narrow)}: fewer PCIe lanes in use than slot and GPU allow; check the riser"
    # A GPU with fewer NVLinks than the others has inactive ones.
    most = max((gpu.links for gpu in topology.gpus), default=0)
    for i, gpu in enumerate(topology.gpus):
        if gpu.links < most:
            yield f"GPU {i} has {gpu.links} active NVLinks, others have {most}; check `nvidia-smi nvlink -s`"
        if gpu.mig:
            yield f"GPU {i} is in MIG mode: ranks get a slice of it, without peer access or NVLink"
        if gpu.fabric and gpu.fabric.state != "completed":
            yield f"GPU {i} has not joined its fabric ({gpu.fabric.state}); check nvidia-fabricmanager"


def _host_caveats(topology: Topology, host: Host) -> Iterator[str]:
    cores = sum(socket.cores or 0 for socket in topology.sockets)
    if topology.ranks > host.capacity:
        usable = counted(host.capacity, "usable CPU")
        yield f"{topology.ranks} ranks on {usable}: they take turns, and times include the scheduler's"
    elif 0 < cores < topology.ranks:
        yield f"{topology.ranks} ranks on {counted(cores, 'core')}: some share one core's units and caches"
    if host.cpu_limit is not None and host.cpu_limit < len(host.usable):
        yield f"the control group allows {host.cpu_limit:.3g} CPUs' worth of time: ranks that spin get paused"
    yield from filter(None, [small_shared_memory(host.shm_free)])
