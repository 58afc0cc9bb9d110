"""NCCL's tuner: the algorithm that it selects, and its estimated time.

It evaluates the equations of src/graph/tuning.cc over the channels from nccl_channels.py. An Option is one cell of
NCCL's cost table: an algorithm with a protocol. The estimate omits launches and the filling of pipelines, so it
predicts NCCL's choice rather than the time.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from collbench.collectives import COLLECTIVES
from collbench.errors import Unsupported
from collbench.model.constants import transport
from collbench.model.nccl_channels import MAX_NVLS_HEADS, Graph, Graphs, search
from collbench.model.nccl_releases import (
    LL_MAX_BY_CPU,
    NET_OVERHEAD,
    NVLS_EFFICIENCY,
    NVLS_SHARE,
    PROTOCOLS,
    TREE_CORRECTION,
    Release,
    known_generation,
    release,
)
from collbench.model.schedule import TABLED, schedule_of
from collbench.topology.products import capability
from collbench.topology.system import System

PLATEAU_BYTES = 64  # of a channel and rank
MICROSECOND = 1e-6
SIMPLE = PROTOCOLS.index("simple")
FAST_CARD = 96e9  # bytes/s of a network card
NVLS_GPUS = 3  # fewer do not use multicast, though the table has a cell for 2
FED = {"ll": 512 * 8, "ll128": 640 * 8, "simple": 512 * 64}
"""Threads of a channel, times bytes for each before another channel runs (a ring's with LL: and for each rank)."""


@dataclass(frozen=True)
class Option:
    """An algorithm with a protocol: a cell of NCCL's table.  Seconds, bytes, bytes per second."""

    algorithm: str
    protocol: str
    channels: int  # in the table; NCCL runs twice as many rings and trees
    base: float  # latency before the first step
    intra: float  # latency of all steps within nodes, one after the other
    inter: float  # latency of all steps between nodes
    rate: float  # of the array
    busbw: float  # of the links, as NCCL counts them

    hops: int  # steps between nodes, one after the other; of a pipelined broadcast too, where NCCL counts one
    overhead: float = 0.0  # of intra: what NCCL adds to steps in a node where there are others, and machines do not

    correction: tuple[float, ...] = ()  # of the rate, by floor(log2(bytes / 64)); 1 outside of the table
    plateau: float = 1.0  # factor on the latency from `plateau_from` bytes on
    plateau_from: float = inf
    running: int = 1  # channels that run at most
    fed: float = 0.0  # bytes of the array for every channel beyond the first

    @property
    def inside(self) -> float:
        """Seconds that the steps within nodes take, whatever NCCL counts for them to rank its options."""
        return self.intra - self.overhead

    def seconds(self, nbytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return NCCL's estimate in seconds for arrays of `nbytes`.

        It may fall where a size passes a power of two and the correction jumps; doubling a size never lowers it.
        """
        sizes = np.asarray(nbytes, dtype=np.float64)  # a single size, too
        latency = self.base + self.intra + self.inter + self.risen(sizes)
        reached = np.ones_like(sizes)
        if self.correction:
            # floor(log2), exactly; the table ends at 1 on both sides.
            place = np.frexp(np.floor(sizes / 64))[1]
            table = np.array([1.0, *self.correction, 1.0])
            reached = table[np.clip(place, 0, len(table) - 1)]
        return latency + sizes / (self.rate * reached)

    def risen(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds that the latency rises by at the plateau."""
        return np.where(sizes >= self.plateau_from, self.plateau - 1, 0.0) * (self.base + self.intra + self.inter)

    def channels_at(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the number of channels that run: fewer for few bytes (`topoGetAlgoInfo` of src/enqueue.cc)."""
        return np.clip(sizes // self.fed, 1, self.running) if self.fed else np.full_like(sizes, self.running)


def protocols(system: System, release: Release, nvlink: bool) -> list[tuple[int, str]]:
    """Return index and name of the protocols that a system can use, or asks for; `nvlink`: all GPUs have NVLinks."""
    kind = transport(system) if system.nodes > 1 else ""

    # LL only where the network keeps bytes in order.  Over EFA before Hopper or without GPUDirect, AWS's plugin sets
    # NCCL_PROTO=simple (github.com/aws/aws-ofi-nccl, issues 76, 280 and 850); so do Google's profiles for TCPX and
    # TCPXO, with NCCL_NVLS_ENABLE=0.
    hopper = capability(system.arch) >= 90 and system.nics is not None and system.nics.gdr
    ordered = kind != "tcpx" and (kind != "efa" or hopper)

    # LL128 only over NVLink and past no host bridge, where its 128 bytes arrive at once: cards of Slingshot are below
    # the CPU.
    at_once = nvlink or (system.gpus == 1 and system.fabric not in ("pcie", "nvlink-pairs"))
    tested = not release.ll128_on or capability(system.arch) in release.ll128_on
    ll128 = ordered and at_once and tested and kind not in ("tcp", "slingshot")
    usable = {"ll": ordered, "ll128": ll128, "simple": True}
    return [(number, name) for number, name in enumerate(PROTOCOLS) if usable[name] or system.protocol == name]


def options(system: System, collective: str) -> tuple[Option, ...]:
    """Return what NCCL chooses from on all GPUs of a system, in its own order; Unsupported if it has no table."""
    usable = [option for option in table(system, collective) if _usable(system, collective, option)]
    if not usable:
        raise Unsupported(f"{collective} has no {system.algorithm} with {system.protocol} in NCCL on {system.title}")
    return tuple(usable)


def _usable(system: System, collective: str, option: Option) -> bool:
    """Whether NCCL may take the option, as set up."""
    # NCCL's table has cells for unsupported combinations, too.
    if option.algorithm in ("nvls", "nvlstree"):
        most = inf if schedule_of(collective).both_ways else MAX_NVLS_HEADS
        apart = system.nodes > 1 and (system.is_rack or transport(system) == "tcpx")
        if not system.nvls or not NVLS_GPUS <= system.gpus <= most or apart:
            return False
    return system.algorithm in ("auto", option.algorithm) and system.protocol in ("auto", option.protocol)


@lru_cache(maxsize=256)
def table(system: System, collective: str) -> tuple[Option, ...]:
    """Return all cells that NCCL would log with a rate above zero; Unsupported for other collectives and one GPU."""
    if schedule_of(collective).direct:
        raise Unsupported(f"NCCL has no cost table for {collective}, only for {', '.join(TABLED)}")
    if system.ranks < 2:
        raise Unsupported("NCCL has no cost table for one GPU")
    tuner = _Tuner(system, collective)
    cells = [*tuner.trees(), *tuner.rings(), *tuner.collnet(), *tuner.nvls(), *tuner.pat()]
    return tuple(option for option in cells if option.rate > 0)


Latency = tuple[float, float, float, int, float]
"""Time of an empty message, as the fields of Option but in microseconds: base, intra, inter, hops, overhead."""


class _Tuner:
    """The equations, for one system and collective.  Microseconds and GB/s until an option is made."""

    def __init__(self, system: System, collective: str) -> None:
        self.system = system
        self.release: Release = release(system.nccl)
        self.graphs: Graphs = search(system, self.release)
        self.generation = known_generation(system.arch, self.release)
        self.nodes, self.ranks, self.gpus = system.nodes, system.ranks, system.gpus
        self.column = min(self.nodes, 3) - 1
        self.levels = self.nodes.bit_length() - 1
        self.schedule = schedule_of(collective)
        self.both_ways, self.rounds = self.schedule.both_ways, self.schedule.rounds
        self.steps = self.schedule.steps(self.ranks)
        self.ratio = self.ranks / self.steps if self.rounds else 1.0  # of the array to what links carry
        self.inside = self.release.nvlink if self.graphs.node.nvlink else self.release.pci
        self.protocols = protocols(system, self.release, self.graphs.node.nvlink)

    def rings(self) -> list[Option]:
        """Return the rings, which every collective has with every protocol."""
        graph = self.graphs.ring
        full = graph.channels * self._speed(graph)
        capped = graph.channels * self.release.ring_ll128[self.generation][self.column]
        share = self.release.lone_ll128 if self.gpus == 1 else 0.92
        busbw = {"ll": min(self._ll_max(), full * self._ll_share()), "ll128": min(share * full, capped), "simple": full}
        plateau = self.both_ways and self.nodes > 1
        if self.release.domain_plateau and self.generation == "blackwell" and self.nodes == 1:
            plateau = self.rounds == 1 and self.graphs.node.nvlink
        higher = 1.9 if self.generation == "volta" else 1.4
        cells = []
        for number, protocol in self.protocols:
            latency = self._ring_latency(number)
            option = self._option("ring", protocol, graph.channels, busbw[protocol], self.ratio, latency)
            if plateau and protocol == "simple":
                option = replace(option, plateau=higher, plateau_from=PLATEAU_BYTES * option.running * self.ranks)
            cells.append(option)
        return cells

    def _ring_latency(self, number: int) -> Latency:
        base, between = self.release.base["ring"][number], self._net("ring", number)
        # Broadcasts and reductions are pipelined, and NCCL counts one step; or all where rings differ in their order.
        if not self.rounds:
            same = self.graphs.node.same
            kind = "ring" if same or number != SIMPLE else "tree"
            times = 1 if same else self.ranks
            if self.nodes == 1:
                return base, times * self.inside[kind][number], 0.0, 0, 0.0
            return base, 0.0, times * self.release.net[kind][number], self.nodes - 1, 0.0
        hops = self.schedule.steps(self.nodes)
        counted = hops
        if self.release.counts_closing_hop and self.both_ways and self.nodes > 1:
            counted += 2
        step = within = self.inside["ring"][number]
        if self.nodes > 1:
            within = max(step, NET_OVERHEAD.get(self.system.cpu, 1.0) * (3 if number == SIMPLE else 1))
        inside = self.steps - counted
        # Machines show what NCCL adds to Simple's steps, and not what it adds to the others'.
        hidden = 0.0 if number == SIMPLE else inside * (within - step)
        return base, inside * within, counted * between, hops, hidden

    def trees(self) -> list[Option]:
        """Return the trees, which only an all-reduce has."""
        if not self.both_ways:
            return []
        graph = self.graphs.tree
        speed = self._tree_speed(graph)
        full = graph.channels * min(0.92 * speed, self.release.tree[self.generation][self.column])
        capped = graph.channels * self.release.tree_ll128[self.generation][self.column]
        part = 7 / 9 if self.nodes == 1 else 15 / 16
        busbw = {"ll": min(full / 3.8, self._ll_max()), "ll128": min(full * part, capped), "simple": full}
        # One GPU can only be both ends of its tree.
        plain = 0.85 if self.gpus == 1 else 1.0
        cells = []
        for number, protocol in self.protocols:
            favoured = self.system.cpu == "power" and number == SIMPLE and not self.graphs.node.nvlink
            intra = 2 * (self.gpus - 1) * self.inside["ring" if favoured else "tree"][number]
            inter = 2 * self.levels * self._net("tree", number)
            latency = self.release.base["tree"][number], intra, inter, 2 * self.levels, 0.0
            option = self._option("tree", protocol, graph.channels, plain * busbw[protocol], 0.5, latency)
            cells.append(replace(option, correction=TREE_CORRECTION[protocol]))
        return cells

    def nvls(self) -> list[Option]:
        """Return sums in the switch: NVLS within a node, NVLSTree over several."""
        graph = self.graphs.nvls
        name = "nvls" if self.nodes == 1 else "nvlstree"
        if graph.channels < 2 or not (self.both_ways or (self.rounds and self.nodes == 1)):
            return []
        if not (self.both_ways or self.release.nvls_gather):
            return []
        rated = self._nvls_efficient if self.release.nvls_efficiency else self._nvls_plain
        speed, ratio = rated(graph)
        counted = self.nodes - 1 if self.release.nvlstree_chain else self.levels
        latency = 0.0, self.inside[name][SIMPLE], 2 * counted * self._net(name, SIMPLE), 2 * self.levels, 0.0
        option = self._option(name, "simple", graph.channels, graph.channels * speed, ratio, latency)
        if self.nodes > 1 and self.generation == "blackwell" and self._corrects_nvlstree():
            option = replace(option, correction=TREE_CORRECTION["simple"])
        return [option]

    def _corrects_nvlstree(self) -> bool:
        """Whether a release corrects Blackwell's NVLSTree: with Arm, only for four GPUs with fast cards."""
        cpu, cards = self.system.cpu, self.system.nics
        fast = self.gpus == 4 and cards is not None and cards.rate >= FAST_CARD
        return cpu in self.release.nvlstree_correction and (cpu != "arm" or fast)

    def _nvls_efficient(self, graph: Graph) -> tuple[float, float]:
        """Speed of a channel, and the ratio of the array's rate to it: by what GPUs of a generation reach."""
        within = graph.intra * NVLS_EFFICIENCY[self.generation] * (graph.channels - 1) / graph.channels
        within *= 2 if self.both_ways else (self.gpus - 1) / self.gpus
        between = graph.inter * (2 if self.nodes == 2 else 1)
        most = self.release.nvlstree[self.generation][self.column] if self.nodes > 1 else inf
        return min(within, between, most), self.ratio if self.both_ways or self.release.nvls_steps_count else 1.0

    def _nvls_plain(self, graph: Graph) -> tuple[float, float]:
        """Return the rates before 2.28: all of the channels' speed, and a share of it for every GPU."""
        release, within, between = self.release, graph.intra, graph.inter
        if not self.both_ways:
            if not release.nvls_own_share:
                within, between = within * (self.gpus - 1) / self.gpus, 0.9 * between
            return min(within, between), release.nvls_gather
        if self.nodes > 1 and release.nvlstree_chain:
            return within if self.nodes == 2 else between, 0.7 * self.nodes / (2 * (self.nodes - 1))
        return min(within, between / (2 if self.nodes > 2 else 1)), NVLS_SHARE

    def collnet(self) -> list[Option]:
        """Return sums in the switches between nodes, where cards have SHARP and NCCL is set to use it."""
        cards = self.system.nics
        if not (self.both_ways and self.nodes > 1 and cards and cards.sharp):
            return []
        latency = 0.0, self.inside["nvlstree"][SIMPLE], 2 * self._net("nvlstree", SIMPLE), 2, 0.0
        busbw = cards.rate * cards.per_node / 1e9
        return [self._option("collnet", "simple", self.graphs.ring.channels, busbw, 1.0, latency)]

    def pat(self) -> list[Option]:
        """Return PAT, a tree for each rank, where nodes have one GPU."""
        if not (self.release.pat > 0 and self.rounds == 1 and self.gpus == 1):
            return []
        graph = self.graphs.tree
        speed = self._tree_speed(graph)
        between = self.levels * self._net("pat", SIMPLE) / 3.5
        latency = self.release.base["pat"][SIMPLE], 2.8 * self.ranks, between, self.levels, 0.0
        return [self._option("pat", "simple", graph.channels, self.release.pat * graph.channels * speed, 1.0, latency)]

    def _option(
        self, algorithm: str, protocol: str, channels: int, busbw: float, ratio: float, latency: Latency
    ) -> Option:
        base, intra, inter, hops, overhead = latency
        # The channels of sums in switches are not doubled, and all run whatever the size.
        in_switch = algorithm.startswith("nvls")
        each = self.ranks if (algorithm, protocol) == ("ring", "ll") else 1
        return Option(
            algorithm,
            protocol,
            channels,
            base=base * MICROSECOND,
            intra=intra * MICROSECOND,
            inter=inter * MICROSECOND,
            rate=busbw * ratio * 1e9,
            busbw=busbw * 1e9,
            hops=hops,
            overhead=overhead * MICROSECOND,
            running=min(channels if in_switch else 2 * channels, self.system.channels or 2 * self.release.max_channels),
            fed=0.0 if in_switch else float(FED[protocol] * each),
        )

    def _tree_speed(self, graph: Graph) -> float:
        return min(graph.intra, graph.inter) if self.release.slower_side_rates else self._speed(graph)

    def _speed(self, graph: Graph) -> float:
        """Speed of a channel: up to 2 nodes, NCCL counts what goes on within them."""
        return graph.intra if self.nodes <= 2 else graph.inter

    def _net(self, algorithm: str, number: int) -> float:
        """Latency of a step between nodes, which shows in full where nodes have one GPU."""
        exposed = self.release.exposes_net and self.gpus == 1 and algorithm != "pat"
        return self.release.net["tree" if exposed or algorithm == "tree" else algorithm][number]

    def _ll_share(self) -> float:
        if self.release.ll_half:
            return 1 / 2
        collective = COLLECTIVES[self.schedule.collective]
        return 1 / 4 if self.nodes > 1 or (collective.reduces and not collective.sharded) else 1 / 3

    def _ll_max(self) -> float:
        if self.nodes == 1:
            return self.release.ll_max[self.generation]
        return LL_MAX_BY_CPU["amd" if self.system.cpu == "amd" else "intel"][self.column - 1]
