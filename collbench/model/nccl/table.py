"""NCCL's own estimate of its algorithms: what it would select, and what it thinks that takes.

The equations of src/graph/tuning.cc over the channels that search.py finds.  The estimate leaves out what a launch
costs and how pipelines fill, so it tells what NCCL selects rather than how long that takes.
"""

from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import NamedTuple

from collbench.collectives import COLLECTIVES
from collbench.errors import Unsupported
from collbench.model.nccl.constants import (
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
from collbench.model.nccl.option import Option
from collbench.model.nccl.protocols import protocols
from collbench.model.nccl.search import MAX_NVLS_HEADS, PLACEHOLDER, Graph, Graphs, search
from collbench.model.schedule import TABLED, schedule_of
from collbench.topology.system import System

PLATEAU_BYTES = 64  # of a channel and rank
MICROSECOND = 1e-6
SIMPLE = PROTOCOLS.index("simple")
FAST_CARD = 96e9  # bytes/s of a network card
NVLS_GPUS = 3  # fewer do not use multicast, though the table has a cell for 2
FED = {"ll": 512 * 8, "ll128": 640 * 8, "simple": 512 * 64}
"""Threads of a channel, times bytes for each before another channel runs (a ring's with LL: and for each rank)."""


def options(system: System, collective: str) -> tuple[Option, ...]:
    """What NCCL chooses from on all GPUs of a system, in its own order; Unsupported if it has no table."""
    usable = [option for option in table(system, collective) if _usable(system, collective, option)]
    if not usable:
        raise Unsupported(f"{collective} has no {system.algorithm} with {system.protocol} in NCCL on {system.title}")
    return tuple(usable)


def _usable(system: System, collective: str, option: Option) -> bool:
    """Whether NCCL may take it, as set up: what it does not support has cells in its table all the same."""
    if option.algorithm in ("nvls", "nvlstree"):
        most = inf if schedule_of(collective).both_ways else MAX_NVLS_HEADS
        if not system.nvls or not NVLS_GPUS <= system.gpus <= most or (system.nodes > 1 and system.is_rack):
            return False
    return system.algorithm in ("auto", option.algorithm) and system.protocol in ("auto", option.protocol)


@lru_cache(maxsize=256)
def table(system: System, collective: str) -> tuple[Option, ...]:
    """All cells that NCCL would log with a rate above zero; Unsupported for other collectives and a lone GPU."""
    if schedule_of(collective).direct:
        raise Unsupported(f"NCCL has no cost table for {collective}, only for {', '.join(TABLED)}")
    if system.ranks < 2:
        raise Unsupported("NCCL has no cost table for one GPU")
    tuner = _Tuner(system, collective)
    cells = [*tuner.trees(), *tuner.rings(), *tuner.nvls(), *tuner.pat()]
    return tuple(option for option in cells if option.rate > 0)


class _Way(NamedTuple):
    """What an empty message takes, in microseconds, and its steps between nodes."""

    base: float
    intra: float
    inter: float
    hops: int
    overhead: float = 0.0  # of intra


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
        """For every collective and protocol."""
        graph = self.graphs.ring
        full = graph.channels * self._speed(graph)
        capped = graph.channels * self.release.ring_ll128[self.generation][self.column]
        kept = self.release.lone_ll128 if self.gpus == 1 else 0.92
        busbw = {"ll": min(self._ll_max(), full * self._ll_share()), "ll128": min(kept * full, capped), "simple": full}
        plateau = self.both_ways and self.nodes > 1
        if self.release.domain_plateau and self.generation == "blackwell" and self.nodes == 1:
            plateau = self.rounds == 1 and self.graphs.node.nvlink
        cells = []
        for number, protocol in self.protocols:
            option = self._option("ring", protocol, graph.channels, busbw[protocol], self.ratio, self._around(number))
            if plateau and protocol == "simple":
                higher = 1.9 if self.generation == "volta" else 1.4
                option = replace(option, plateau=higher, plateau_from=PLATEAU_BYTES * option.running * self.ranks)
            cells.append(option)
        return cells

    def _around(self, number: int) -> _Way:
        """All steps of a ring; a broadcast's and a reduction's are pipelined: NCCL counts one."""
        base, between = self.release.base["ring"][number], self._net("ring", number)
        if not self.rounds:
            same = self.graphs.node.same
            kind = "ring" if same or number != SIMPLE else "tree"
            times = 1 if same else self.ranks
            within, net = (self.inside[kind][number], 0.0) if self.nodes == 1 else (0.0, self.release.net[kind][number])
            return _Way(base, times * within, times * net, self.nodes - 1)
        hops = self.schedule.steps(self.nodes)
        closing = 2 if self.release.counts_closing_hop and self.both_ways and self.nodes > 1 else 0
        counted = hops + closing
        step = within = self.inside["ring"][number]
        if self.nodes > 1:
            within = max(step, NET_OVERHEAD.get(self.system.cpu, 1.0) * (3 if number == SIMPLE else 1))
        inside = self.steps - counted
        hidden = 0.0 if number == SIMPLE else inside * (within - step)  # Simple's steps do show it
        return _Way(base, inside * within, counted * between, hops, hidden)

    def trees(self) -> list[Option]:
        """All-reduce alone."""
        if not self.both_ways:
            return []
        graph = self.graphs.tree
        speed = min(graph.intra, graph.inter) if self.release.slower_side_rates else self._speed(graph)
        full = graph.channels * min(0.92 * speed, self.release.tree[self.generation][self.column])
        capped = graph.channels * self.release.tree_ll128[self.generation][self.column]
        part = 7 / 9 if self.nodes == 1 else 15 / 16
        busbw = {"ll": min(full / 3.8, self._ll_max()), "ll128": min(full * part, capped), "simple": full}
        plain = 0.85 if self.gpus == 1 else 1.0  # one GPU can only be both ends of its tree
        cells = []
        for number, protocol in self.protocols:
            way = _Way(
                self.release.base["tree"][number],
                2 * (self.gpus - 1) * self._tree_step(number),
                2 * self.levels * self._net("tree", number),
                2 * self.levels,
            )
            option = self._option("tree", protocol, graph.channels, plain * busbw[protocol], 0.5, way)
            cells.append(replace(option, correction=TREE_CORRECTION[protocol]))
        return cells

    def _tree_step(self, number: int) -> float:
        favoured = self.system.cpu == "power" and number == SIMPLE and not self.graphs.node.nvlink
        return self.inside["ring" if favoured else "tree"][number]

    def nvls(self) -> list[Option]:
        """Sums in the switch: NVLS within a node, NVLSTree over several."""
        graph = self.graphs.nvls
        name = "nvls" if self.nodes == 1 else "nvlstree"
        if graph.channels < 2 or not (self.both_ways or (self.rounds and self.nodes == 1)):
            return []
        if not (self.both_ways or self.release.nvls_gather):
            return []
        speed, ratio = (self._nvls_efficient if self.release.nvls_efficiency else self._nvls_plain)(graph)
        counted = self.nodes - 1 if self.release.nvlstree_chain else self.levels
        way = _Way(0.0, self.inside[name][SIMPLE], 2 * counted * self._net(name, SIMPLE), 2 * self.levels)
        option = self._option(name, "simple", graph.channels, graph.channels * speed, ratio, way)
        corrected = self.nodes > 1 and self.generation == "blackwell" and self._corrects_nvlstree()
        return [replace(option, correction=TREE_CORRECTION["simple"] if corrected else ())]

    def _nvls_efficient(self, graph: Graph) -> tuple[float, float]:
        """Speed of a channel, and the array's to that: by what GPUs of a generation reach."""
        within = graph.intra * NVLS_EFFICIENCY[self.generation] * (graph.channels - 1) / graph.channels
        within *= 2 if self.both_ways else (self.gpus - 1) / self.gpus
        between = graph.inter * (2 if self.nodes == 2 else 1)
        most = self.release.nvlstree[self.generation][self.column] if self.nodes > 1 else inf
        return min(within, between, most), self.ratio if self.both_ways or self.release.nvls_steps_count else 1.0

    def _nvls_plain(self, graph: Graph) -> tuple[float, float]:
        """The same before 2.28: all of the channels' speed, and one share of it for every GPU."""
        release, within, between = self.release, graph.intra, graph.inter
        if not self.both_ways:
            if not release.nvls_own_share:
                within, between = within * (self.gpus - 1) / self.gpus, 0.9 * between
            return min(within, between), release.nvls_gather
        if self.nodes > 1 and release.nvlstree_chain:
            return within if self.nodes == 2 else between, 0.7 * self.nodes / (2 * (self.nodes - 1))
        return min(within, between / (2 if self.nodes > 2 else 1)), NVLS_SHARE

    def _corrects_nvlstree(self) -> bool:
        cpu, cards = self.system.cpu, self.system.nics
        fast_arm = cpu != "arm" or (self.gpus == 4 and cards is not None and cards.rate >= FAST_CARD)
        return cpu in self.release.nvlstree_correction and fast_arm

    def pat(self) -> list[Option]:
        """A tree for each rank, where nodes have one GPU."""
        if not (self.release.pat > 0 and self.rounds == 1 and self.gpus == 1):
            return []
        graph = self.graphs.tree
        speed = min(graph.intra, graph.inter) if self.release.slower_side_rates else self._speed(graph)
        between = self.levels * self._net("pat", SIMPLE) / 3.5
        way = _Way(self.release.base["pat"][SIMPLE], 2.8 * self.ranks, between, self.levels)
        return [self._option("pat", "simple", graph.channels, self.release.pat * graph.channels * speed, 1.0, way)]

    def _option(self, algorithm: str, protocol: str, channels: int, busbw: float, ratio: float, way: _Way) -> Option:
        in_switch = algorithm.startswith("nvls")  # whose channels are not doubled, and run all whatever the size
        each = self.ranks if (algorithm, protocol) == ("ring", "ll") else 1
        return Option(
            algorithm,
            protocol,
            channels,
            base=way.base * MICROSECOND,
            intra=way.intra * MICROSECOND,
            inter=way.inter * MICROSECOND,
            rate=busbw * ratio * 1e9,
            busbw=busbw * 1e9,
            bound=self.graphs.node.bound * 1e9,
            hops=way.hops,
            overhead=way.overhead * MICROSECOND,
            placeholder=self.graphs.ring.inter == PLACEHOLDER,
            running=channels if in_switch else min(2 * channels, 2 * self.release.max_channels),
            fed=0.0 if in_switch else float(FED[protocol] * each),
        )

    def _speed(self, graph: Graph) -> float:
        """Of a channel: up to 2 nodes, NCCL counts what goes on within them."""
        return graph.intra if self.nodes <= 2 else graph.inter

    def _net(self, algorithm: str, number: int) -> float:
        """A step between nodes, which shows in full where nodes have one GPU."""
        exposed = self.release.exposes_net and self.gpus == 1 and algorithm != "pat"
        return self.release.net["tree" if exposed or algorithm == "tree" else algorithm][number]

    def _ll_share(self) -> float:
        """What a ring's LL keeps of the links."""
        if self.release.ll_half:
            return 1 / 2
        collective = COLLECTIVES[self.schedule.collective]
        return 1 / 4 if self.nodes > 1 or (collective.reduces and not collective.sharded) else 1 / 3

    def _ll_max(self) -> float:
        if self.nodes == 1:
            return self.release.ll_max[self.generation]
        return LL_MAX_BY_CPU["amd" if self.system.cpu == "amd" else "intel"][self.column - 1]
