"""System: a described cluster of GPUs, fabric, network cards and switches.

A System is read from a TOML file (files.py, presets/*.toml), or derived from a discovered machine. Units are bytes,
seconds, and bytes per second in one direction.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, ClassVar, Literal, get_args

from msgspec import Meta, field

from collbench.errors import UsageError
from collbench.notebook import Shown
from collbench.records import Record
from collbench.topology.discovered import Gpu, Link, LinkKind, Topology
from collbench.topology.products import (
    ADDING,
    ARCHITECTURES,
    SOCKET_LINKS,
    Product,
    arch_named,
    pcie_rate,
    pcie_spec,
    product_named,
    usual_product,
)
from collbench.units import counted

Fabric = Literal["nvswitch", "mesh", "hybrid-cube", "nvlink-pairs", "pcie"]
"""Connection of a node's GPUs: switches; all-to-all NVLink; V100's cube; bridges between pairs; only PCIe."""
Transport = Literal["ib", "roce", "slingshot", "efa", "tcpx", "tcp"]
Routing = Literal["adaptive", "ecmp"]
Launch = Literal["process-per-gpu", "single-process", "torch", "graph"]
Cpu = Literal["intel", "amd", "arm", "power"]
Algorithm = Literal["auto", "ring", "tree", "collnet", "nvls", "nvlstree", "pat"]
Protocol = Literal["auto", "ll", "ll128", "simple"]
Text = Annotated[str, Meta(pattern=r"\A.+\Z", title="a text of one line that is not empty")]
UpTo1024 = Annotated[int, Meta(ge=1, le=1024)]
Ratio = Annotated[float, Meta(ge=1, le=1000, examples=["2.0 for twice as much from below as goes up"])]
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)
PROTOCOLS: tuple[str, ...] = get_args(Protocol)
BOARD, NVLS_BOARD = 16, 8  # most GPUs of NVSwitch boards, and of boards whose switches add
MOST_NODES = 1_000_000
UNDER_SWITCHES = ("through one PCIe switch", "through several PCIe switches")
ALONE = "The model knows one rank per GPU, so there is nothing to compare with"
FILE = "write a system's file, or choose a preset (`collbench list`)"
_WHOLE = "measure on whole GPUs (`nvidia-smi -mig 0`)"

CUBE = (
    {1: 1, 2: 1, 3: 2, 4: 2},
    {0: 1, 2: 2, 3: 1, 5: 2},
    {0: 1, 1: 2, 3: 2, 6: 1},
    {0: 2, 1: 1, 2: 2, 7: 1},
    {0: 2, 5: 1, 6: 1, 7: 2},
    {1: 2, 4: 1, 6: 2, 7: 1},
    {2: 1, 4: 1, 5: 2, 7: 2},
    {3: 1, 4: 2, 5: 1, 6: 2},
)
"""NVLinks from each GPU of a DGX-1 with V100 to each other GPU, as `nvidia-smi topo -m` shows them there."""
CUBE_RINGS = {1: 0, 2: 1, 3: 2, 4: 4, 5: 0, 6: 2, 7: 4, 8: 6}
"""Number of NVLink rings at full rate through the first GPUs of the cube; every GPU sends on each."""


class Nics(Record, frozen=True):
    """Network cards of a node."""

    per_node: int
    rate: float  # of each
    transport: str  # a Transport
    gdr: bool = True  # whether cards access GPU memory (GPUDirect RDMA); else through host memory
    sharp: bool = False  # whether switches between nodes add (SHARP), and NCCL uses it (CollNet)


class Tier(Record, frozen=True):
    """A layer of switches above the nodes; the topmost joins everything below it."""

    name: Text
    # Nodes (or switches of the tier below) under one of its switches, on each rail; 0: all.
    radix: Annotated[int, Meta(ge=0, le=100_000)] = 0
    oversubscription: Ratio = 1.0  # bandwidth from below over bandwidth upwards
    routing: str = "adaptive"  # a Routing
    paths: Annotated[int, Meta(ge=1, le=4096)] = 1  # equal paths between two switches below
    flows: UpTo1024 = field(default=1, name="qps")  # flows of a transfer, on different paths


@dataclass(frozen=True)
class System(Shown):
    """GPUs of `nodes` equal nodes."""

    platform: ClassVar[str] = "gpu"  # processor of its ranks

    name: str
    arch: str  # "sm70", "sm80", "sm86", "sm89", "sm90", "sm100", "sm120": a key of ARCHITECTURES
    gpus: int  # of a node
    fabric: str  # a Fabric
    gpu_rate: float  # from a GPU into the node's fabric: all its NVLinks, or its PCIe slot; by NCCL's count
    p2p: bool = True  # whether GPUs may use each other's memory (over PCIe: not on many consumer cards)
    multicast: bool = False  # whether its switches add (NVLS)
    cpu: str = "intel"  # a Cpu
    nics: Nics | None = None
    tiers: tuple[Tier, ...] = ()
    nodes: int = 1
    launch: str = "process-per-gpu"  # a Launch: the processes that start collectives
    nccl: str = "2.29"
    calibration: str = ""  # a file with [calibration], written by `predict --fit`; relative to the working folder
    gpu: str = ""  # the product's name
    nvlinks: int = 0  # of a GPU in total
    spec_rate: float = 0.0  # the data sheet's figure for `gpu_rate`; 0: unknown
    pcie_generation: int = 0  # of the GPUs' slots; 0: unknown
    pcie_lanes: int = 16
    switches: tuple[tuple[int, ...], ...] = ()  # the GPUs under each PCIe switch; none: GPUs are directly at CPUs
    per_socket: int = 0  # GPUs at each CPU socket, in order; 0: all at one
    socket_rate: float = 0.0  # between two sockets; 0: unknown
    nvls: bool = True  # whether NCCL may use multicast (NCCL_NVLS_ENABLE)
    algorithm: str = "auto"  # an Algorithm (NCCL_ALGO)
    protocol: str = "auto"  # a Protocol (NCCL_PROTO)
    channels: int = 0  # NCCL's limit (NCCL_MAX_NCHANNELS); 0: none
    flops: float = 0.0  # of a GPU, 16 bits; 0 in this and the next three: from the product's data sheet
    flops_fp8: float = 0.0
    memory: float = 0.0  # bytes of a GPU
    memory_rate: float = 0.0
    guesses: tuple[str, ...] = ()  # assumed values that the machine did not report

    @property
    def ranks(self) -> int:
        """Number of ranks: one for every GPU."""
        return self.gpus * self.nodes

    @property
    def title(self) -> str:
        """Title of plots and tables: `DGX H100, 2 nodes of 8 GPUs`."""
        nodes = f"{self.nodes:,} nodes of " if self.nodes > 1 else ""
        return f"{self.name}, {nodes}{counted(self.gpus, 'GPU')}"

    @property
    def adds(self) -> bool:
        """Whether NCCL lets the switches add."""
        return self.multicast and self.nvls

    @property
    def pcie_rate(self) -> float:
        """The rate of a GPU over its slot, as NCCL counts it."""
        return pcie_rate(self.pcie_generation or ARCHITECTURES[self.arch].pcie, self.pcie_lanes)

    @property
    def meets_over_pcie(self) -> bool:
        """Whether some of a node's GPUs are joined by PCIe, the bottleneck of all."""
        return self.fabric == "pcie" or (self.fabric == "nvlink-pairs" and self.gpus > 2)

    @property
    def pace(self) -> float:
        """The rate of each GPU if all GPUs of a node take part."""
        return self.pcie_rate if self.fabric == "nvlink-pairs" and self.gpus > 2 else self.gpu_rate

    @property
    def to_next(self) -> float:
        """The rate of a GPU to one other GPU."""
        # With all-to-all links, only those to that GPU.
        apart = {"mesh": self.gpus - 1, "hybrid-cube": self.nvlinks}.get(self.fabric, 1)
        return self.pace / max(1, apart)

    @property
    def promised(self) -> float:
        """The data sheet's value of `pace`; `pace` itself if unknown."""
        if self.pace == self.gpu_rate:
            return self.spec_rate or self.gpu_rate
        return pcie_spec(self.pcie_generation, self.pcie_lanes) if self.pcie_generation else self.pace

    @property
    def is_rack(self) -> bool:
        """Whether its NVLinks join more GPUs than a board has."""
        return self.gpus > (NVLS_BOARD if self.multicast else BOARD)

    @property
    def sharing(self) -> int:
        """Largest number of GPUs that share the uplink of a PCIe switch."""
        return max((len(group) for group in self.switches), default=1)

    @property
    def sockets(self) -> int:
        """CPU sockets of a node that have GPUs."""
        return self.socket(self.gpus - 1) + 1

    @property
    def between_sockets(self) -> float:
        """Bytes/s between two sockets, from the system or its kind of CPU."""
        return self.socket_rate or SOCKET_LINKS[self.cpu]

    def socket(self, gpu: int) -> int:
        """Return the CPU socket of a GPU of a node."""
        return gpu // (self.per_socket or self.gpus)

    def nvlinks_between(self, a: int, b: int) -> int:
        """Return the number of direct NVLinks from GPU `a` of a node to GPU `b`; 0 with a switch between."""
        if a == b or self.fabric in ("nvswitch", "pcie"):
            return 0
        if self.fabric == "mesh":
            return self.nvlinks // (self.gpus - 1)
        if self.fabric == "nvlink-pairs":
            return self.nvlinks if a ^ 1 == b else 0
        return CUBE[a].get(b, 0)

    def of(self, nodes: int) -> "System":
        """Return the system with `nodes` nodes; UsageError if no network joins them."""
        if nodes < 1:
            raise UsageError(f"{self.name} cannot have {nodes} nodes; give 1 or more")
        if nodes > MOST_NODES:
            raise UsageError(f"{self.name} cannot have {nodes} nodes; give at most {MOST_NODES}")
        if nodes > 1 and not self.nics:
            raise UsageError(f"{self.name} has no network cards to join {nodes} nodes; add [nic] in a file of your own")
        return replace(self, nodes=nodes)

    def part(self, ranks: int) -> "System":
        """Return the part that `ranks` ranks use: some GPUs of one node, or whole nodes; else UsageError."""
        if ranks < 1 or ranks > self.ranks or (ranks > self.gpus and ranks % self.gpus):
            raise UsageError(
                f"{self.title}, has no part of {counted(ranks, 'rank')}; give 1 to {self.gpus}"
                + (f", or whole nodes up to {self.ranks}" if self.nodes > 1 else "; more are on more nodes")
            )
        if ranks >= self.gpus:
            return replace(self, nodes=ranks // self.gpus)
        inside = range(ranks)

        # The first GPUs of the node, in CUDA's order, with their share of the network cards.
        switches = [tuple(filter(inside.__contains__, group)) for group in self.switches]
        part = replace(
            self,
            gpus=ranks,
            nodes=1,
            switches=tuple(filter(None, switches)),
            per_socket=min(self.per_socket, ranks),
            nics=self.nics and replace(self.nics, per_node=-(-self.nics.per_node * ranks // self.gpus)),
        )
        if self.fabric in ("nvswitch", "pcie"):
            return part

        # Only the NVLinks that stay between the GPUs of the part.
        links = self.nvlinks
        if self.fabric == "mesh":
            links = self.nvlinks * (ranks - 1) // (self.gpus - 1)
        if self.fabric == "hybrid-cube":
            links = CUBE_RINGS[ranks]
        if links and ranks > 1:
            share = links / self.nvlinks
            return replace(part, nvlinks=links, gpu_rate=self.gpu_rate * share, spec_rate=self.spec_rate * share)

        # NVLinks form no ring through all of them (or through a single one), so NCCL uses PCIe.
        promised = pcie_spec(self.pcie_generation, self.pcie_lanes) if self.pcie_generation else 0.0
        return replace(part, fabric="pcie", nvlinks=0, gpu_rate=self.pcie_rate, spec_rate=promised)


def product_of(system: System) -> Product:
    """Return a GPU's rates: from its file, its product, or its architecture, in that order."""
    product = product_named(system.gpu) or usual_product(system.arch)
    doubled = 2 * system.flops if product.flops_fp8 > product.flops else system.flops
    return Product(
        system.flops or product.flops,
        system.flops_fp8 or doubled or product.flops_fp8,
        system.memory or product.memory,
        system.memory_rate or product.memory_rate,
        product.flops_fp32,
    )


def is_named(system: System) -> bool:
    """Return whether the product is known, rather than only its architecture."""
    return product_named(system.gpu) is not None


def launched_in_graph(system: System) -> System:
    """Return the system with operations replayed from a CUDA graph instead of launched one by one."""
    return replace(system, launch="graph")


# A discovered machine


def as_system(topology: Topology) -> System:
    """Return the machine's GPUs as a System; assumed values are listed in `guesses`.

    NUMA nodes stand for sockets. UsageError for CPUs, ranks that share a GPU, MIG slices, unequal or unknown GPUs,
    and GPUs without NVML. The same for several nodes, since network cards are not discovered.
    """
    gpus = topology.gpus
    if not gpus:
        raise UsageError("the model knows GPUs only, and these ranks ran on a CPU; `collbench compare` takes such runs")
    if topology.shared:
        fix = f"give {len(gpus)} or fewer ranks" if len(gpus) > 1 else "give 1 rank"
        raise UsageError(f"{topology.ranks} ranks share {counted(len(gpus), 'GPU')}. {ALONE}; {fix}, or name a system")
    if topology.sliced:
        why = "no system has MIG slices, as MIG slices share a GPU's memory and slot"
        raise UsageError(f"{topology.name}: {why}; {_WHOLE}")
    if len({gpu.host for gpu in gpus}) > 1:
        raise UsageError(f"{topology.name}: the network between the nodes is not discovered; {FILE}")
    if len(gpus) > 1 and not topology.links:
        raise UsageError(f"{topology.name}: {topology.unseen or 'what joins the GPUs is not known'}; {FILE}")
    if len({gpu.name for gpu in gpus}) > 1:
        raise UsageError(f"{topology.name}: the GPUs differ, and a system's are all alike; {FILE}")
    return _Machine(topology).system()


class _Machine:
    """A node; `_guesses` collects the assumed values."""

    def __init__(self, topology: Topology) -> None:
        self._gpus, self._links, self._name = topology.gpus, topology.links, topology.name
        self._guesses: list[str] = []
        self._arch = self._architecture(topology.gpus[0])

    def system(self) -> System:
        fabric, links = self._fabric()
        generation, lanes = self._slot()
        gpu, name = ARCHITECTURES[self._arch], self._gpus[0].name
        # Grace is soldered to its GPUs; other hosts are unknown.
        is_arm = re.search(r"G[HB]\d00", name) is not None
        if not is_arm:
            self._guesses.append("CPUs by Intel")
        system = System(
            name=self._name,
            arch=self._arch,
            gpu=name,
            gpus=len(self._gpus),
            fabric=fabric,
            nvlinks=links,
            gpu_rate=gpu.nvlink * links or pcie_rate(generation, lanes),
            spec_rate=self._spec(links) or gpu.spec * links or pcie_spec(generation, lanes),
            p2p=self._p2p(fabric),
            multicast=fabric == "nvswitch" and self._arch in ADDING,
            cpu="arm" if is_arm else "intel",
            pcie_generation=generation,
            pcie_lanes=lanes,
            switches=_switches(len(self._gpus), self._links),
            per_socket=self._per_socket(),
        )
        return replace(system, guesses=tuple(self._guesses))

    def _architecture(self, gpu: Gpu) -> str:
        if gpu.capability:
            arch = f"sm{gpu.capability.replace('.', '')}"
            if arch not in ARCHITECTURES:
                raise UsageError(f"{gpu.name} is {arch}, which no system may be; choices: {', '.join(ARCHITECTURES)}")
            return arch
        if arch := arch_named(gpu.name):
            self._guesses.append(f"{arch}, from the name {gpu.name}")
            return arch
        raise UsageError(f"the architecture of {gpu.name} is unknown, and its driver does not say it; {FILE}")

    def _fabric(self) -> tuple[str, int]:
        pairs = list(combinations(range(len(self._gpus)), 2))
        kinds, counts = {}, {}
        for link in self._links:
            kinds[link.a, link.b] = link.kind
            if link.kind == LinkKind.NVLINK:
                counts[link.a, link.b] = link.nvlink.count or 0 if link.nvlink else 0
        if not ARCHITECTURES[self._arch].nvlinks:
            return "pcie", 0
        fewest = min(gpu.links for gpu in self._gpus)
        switched = all(kinds.get(pair) == LinkKind.NVSWITCH for pair in pairs)
        if fewest and switched and (pairs or self._gpus[0].switch_links):
            return "nvswitch", fewest
        if not counts:
            return "pcie", 0
        size, least = len(self._gpus), min(counts.values())
        if not least:
            return self._hidden(len(counts) == len(pairs), fewest)

        # Direct NVLinks: the first GPUs of a DGX-1 with V100, pairs, or all-to-all.
        if size <= 8 and all(counts.get((a, b), 0) == CUBE[a].get(b, 0) for a, b in pairs):
            return ("hybrid-cube", CUBE_RINGS[size]) if CUBE_RINGS[size] else ("pcie", 0)
        if size % 2 == 0 and all(a ^ 1 == b for a, b in counts) and len(counts) == size // 2:
            return "nvlink-pairs", least
        if len(counts) == len(pairs):
            return "mesh", least * (size - 1)
        self._guesses.append("PCIe alone, since NVLinks join some GPUs only, in no known pattern")
        return "pcie", 0

    def _hidden(self, everywhere: bool, fewest: int) -> tuple[str, int]:
        """NVLinks between GPUs with ends that a virtual machine hides."""
        if not everywhere:
            self._guesses.append("PCIe alone, since only some GPUs are joined by NVLinks, and how is hidden")
            return "pcie", 0
        size, links = len(self._gpus), fewest or ARCHITECTURES[self._arch].nvlinks
        fabric = "nvswitch"
        if size == 2:
            fabric = "nvlink-pairs"
        elif size <= 4 and links % (size - 1) == 0:
            fabric = "mesh"
        self._guesses.append(f"{fabric} with {links} NVLinks for each GPU, since where they lead is hidden")
        return fabric, links

    def _spec(self, links: int) -> float:
        """Return the rate that the driver states for `links` NVLinks of a GPU; 0 if none."""
        for gpu in self._gpus:
            if gpu.nvlink:
                return (gpu.nvlink.rate or 0.0) / (gpu.links or 1) * links
        return 0.0

    def _slot(self) -> tuple[int, int]:
        slots = [gpu.pcie for gpu in self._gpus if gpu.pcie and gpu.pcie.rate]
        if not slots:
            generation = ARCHITECTURES[self._arch].pcie
            self._guesses.append(f"PCIe {generation} x16, as {self._arch} has")
            return generation, 16
        slot = min(slots, key=lambda pcie: pcie.rate or 0.0)
        return slot.max_generation or slot.generation or 0, slot.width or slot.max_width or 16

    def _p2p(self, fabric: str) -> bool:
        answers = {link.p2p for link in self._links}
        if "no" in answers or "unprobed" not in answers or fabric != "pcie":
            return "no" not in answers
        # Untested: NVIDIA's driver refuses consumer cards, and hardly any others.
        works = "GeForce" not in self._gpus[0].name
        self._guesses.append(f"peer access {'works' if works else 'is refused'}, since nobody has tried it")
        return works

    def _per_socket(self) -> int:
        """GPUs at each NUMA node, if even and in order."""
        nodes = [gpu.numa for gpu in self._gpus]
        counts = Counter(nodes)
        even = len(set(counts.values())) == 1 and None not in counts
        return counts[nodes[0]] if even and nodes == sorted(nodes, key=list(counts).index) else 0


def _switches(gpus: int, links: Sequence[Link]) -> tuple[tuple[int, ...], ...]:
    """GPUs by the PCIe switches that they share; none if no two share one."""
    firsts = list(range(gpus))
    for link in links:
        if link.path in UNDER_SWITCHES:
            firsts[link.b] = min(firsts[link.b], link.a)
    groups: dict[int, tuple[int, ...]] = {}
    for gpu, first in enumerate(firsts):
        groups[first] = (*groups.get(first, ()), gpu)
    return tuple(groups.values()) if len(groups) < gpus else ()
