"""The channels that NCCL's search finds in a node of identical GPUs.

NCCL goes down a list of speeds and, at each, counts the rings, trees or in-switch reductions that fit the links. The
most bandwidth wins, and speeds below half of the best one are not tried (src/graph/search.cc). In symmetric nodes the
count is a division.  The speeds, the doubling of wide channels and the second pass, which raises
one side of a tree, are NCCL's.

For NVLink switches, results agree with tables that NCCL logged. Meshes, the hybrid cube, pairs and PCIe follow NCCL's
rules, without a check against a log. All rates are GB/s (1e9 bytes/s), as in NCCL's lists.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, floor, inf
from typing import NamedTuple

from collbench.model.nccl_releases import INTEL_P2P_OVERHEAD, Release, known_generation
from collbench.topology.products import socket_rate
from collbench.topology.system import CUBE_RINGS, System

SLACK = 1e-6  # NCCL rounds what is left of a link to a thousandth
NEWEST_SLOT = 5  # PCIe generation of CPUs whose rate between sockets is not said
PLENTY = 10**6  # channels: more than any search asks for
MAX_NVLS_HEADS = 32
LATE = ("hopper", "blackwell")
STOP = 0.49  # fraction of the best speed so far: the search looks no lower
WIDE = 25.0  # channels from this speed on are doubled
NARROW_ENOUGH = 50.0  # but from Hopper on not below this speed, where there are more than 4
PLACEHOLDER = 0.1  # GB/s that NCCL falls back on where none of its speeds fits

Count = Callable[[float], int]  # channels of a speed


def count(capacity: float, speed: float) -> int:
    """Return how often a speed fits a capacity."""
    return floor(capacity / speed + SLACK) if capacity < inf else PLENTY


@dataclass(frozen=True)
class NodeLinks:
    """The input of the search."""

    gpus: int
    port: float  # out of a GPU, and as much into it: channels that reach it end the search
    nvlink: bool  # whether channels stay on NVLink all the way
    rings: Count  # within a node alone
    chains: Count  # that begin and end at network cards, of a node among others
    widest: float  # of a path: no channel is faster
    same: bool = True  # whether all rings take the GPUs in the same order
    fewest: int = 1  # rings that it looks for
    tree_port: float = inf  # of a GPU through which a tree's share to the network goes too
    nics: int = 0  # 0: one node alone
    nic: float = 0.0  # from a GPU to its card
    slots: float = 0.0  # of all GPUs, to cards

    def cards(self, speed: float) -> int:
        """Return the channels of a speed that the network cards, and the slots of the GPUs next to them, can carry."""
        return min(self.nics * count(self.nic, speed), count(self.slots, speed))

    def trees(self, channels: int, intra: float, inter: float) -> bool:
        """Return whether `channels` trees fit; two GPUs without a network share them, half in each direction."""
        if not self.nics:
            return self.rings(intra) >= ((channels + 1) // 2 if self.gpus == 2 else channels)
        loaded = channels * (intra + inter / 2) <= self.tree_port + SLACK or self.gpus == 1
        return self.cards(inter) >= channels and self.chains(intra) >= channels and loaded


def _node_links(system: System, merges_ports: bool) -> NodeLinks:
    """Return the node of a system; its network cards only if there are other nodes."""
    cards, slot = system.nics, system.pcie_rate / 1e9
    if system.nodes == 1 or cards is None:
        return _FABRICS[system.fabric](system, False)
    number, rate = cards.per_node, cards.rate / 1e9

    # EFA's plugin shows one card for each GPU.  Twice as many as GPUs are the ports of cards that have two.
    two_ports = merges_ports and cards.transport in ("ib", "roce") and cards.per_node == 2 * system.gpus
    if two_ports or (cards.transport == "efa" and cards.per_node > system.gpus):
        number, rate = system.gpus, rate * cards.per_node / system.gpus
    node = _FABRICS[system.fabric](system, number % system.gpus == 0)
    if system.gpus == 1:
        node = replace(node, chains=lambda speed: PLENTY)
    slots = system.gpus * slot if number >= system.gpus else inf
    return replace(node, nics=number, nic=min(rate, slot), slots=slots, widest=min(rate, slot))


def _switch(system: System, spread: bool) -> NodeLinks:
    gpus, port = system.gpus, system.gpu_rate / 1e9
    # The ends of a chain load one way only; with a card at every GPU, chains load all GPUs alike.
    shared = port * gpus / (gpus - 1) if spread and gpus > 1 else port
    return NodeLinks(gpus, port, gpus > 1, lambda speed: count(port, speed), lambda speed: count(shared, speed), port)


def _mesh(system: System, spread: bool) -> NodeLinks:
    gpus, port = system.gpus, system.gpu_rate / 1e9
    if gpus <= 2:
        return _switch(system, spread)
    link = port / (gpus - 1)

    # The arcs of a mesh divide into one ring fewer than it has GPUs, but for 4, where that takes two of each arc.
    def rings(speed: float) -> int:
        times = count(link, speed)
        return 6 * (times // 2) + 2 * (times % 2) if gpus == 4 else (gpus - 1) * times

    return NodeLinks(gpus, port, True, rings, lambda speed: gpus * count(link, speed), link, same=False)


def _cube(system: System, spread: bool) -> NodeLinks:
    """The NVLinks of a DGX-1V (V100), as many rings as go through its first GPUs."""
    rings, port = CUBE_RINGS.get(system.gpus, 0), system.gpu_rate / 1e9
    if not rings:
        return _pcie(system, spread) if system.gpus > 1 else _switch(system, spread)

    def fit(speed: float) -> int:
        return rings * count(port / rings, speed)

    return NodeLinks(system.gpus, port, True, fit, fit, 2 * port / rings, same=system.gpus == 2)


def _pairs(system: System, spread: bool) -> NodeLinks:
    """Bridges between pairs; more than one pair meet over PCIe, which then sets the pace of all."""
    if system.gpus <= 2:
        return _switch(system, spread)
    return replace(_pcie(system, spread), fewest=2 if system.gpus == 4 else 1)


def _pcie(system: System, spread: bool) -> NodeLinks:
    """PCIe.  Without P2P, NCCL copies through the host: the same links, all the way up to the CPU."""
    port = (system.gpu_rate if system.fabric == "pcie" else system.pcie_rate) / 1e9
    # All the GPUs under a switch share its way up.
    if not system.p2p:
        port /= system.sharing
    load = INTEL_P2P_OVERHEAD if system.cpu == "intel" and meets_a_bridge(system) else 1.0
    # NCCL's figure for the kind of CPU, whatever the link carries.
    between = inf
    if system.sockets > 1:
        between = socket_rate(system.cpu, system.pcie_generation or NEWEST_SLOT) / 1e9

    def fit(speed: float) -> int:
        return min(count(port, speed * load), count(between, speed))

    return NodeLinks(system.gpus, port, False, fit, fit, min(port, between), tree_port=port / load)


def meets_a_bridge(system: System) -> bool:
    """Return whether two GPUs of one socket meet at its host bridge, not at a switch below."""
    if not system.p2p:
        return True
    switch = {gpu: group for group in system.switches for gpu in group}
    for a, b in combinations(range(system.gpus), 2):
        if system.socket(a) == system.socket(b) and switch.get(a, a) != switch.get(b, b):
            return True
    return False


_FABRICS = {"nvswitch": _switch, "mesh": _mesh, "hybrid-cube": _cube, "nvlink-pairs": _pairs, "pcie": _pcie}


class Graph(NamedTuple):
    """The result of the search for one pattern; 0 channels where it finds none."""

    channels: int
    intra: float = 0.0  # speed of a channel within the node
    inter: float = 0.0  # and to the network


class Graphs(NamedTuple):
    """A system's links, as the tuner needs them."""

    node: NodeLinks
    ring: Graph
    tree: Graph
    nvls: Graph


def search(system: System, release: Release) -> Graphs:
    """Return rings, trees and NVLS heads of a system."""
    node, generation = _node_links(system, release.merges_ports), known_generation(system.arch, release)
    if not release.two_rings_over_pairs:
        node = replace(node, fewest=1)
    tables = release.inter if node.nics else release.intra
    speeds = tables.get(generation, tables["ampere"])
    ring = _ring_graph(node, speeds, generation, release.max_channels)
    nvls = _nvls_graph(node, speeds, release.raises_nvls) if system.multicast and generation in LATE else Graph(0)
    return Graphs(node, ring, _tree_graph(node, speeds, ring.channels), nvls)


def _ring_graph(node: NodeLinks, speeds: Sequence[float], generation: str, most: int) -> Graph:
    """Return as many rings, as fast as fit; wide rings are split in two."""
    best = Graph(0)
    for speed in speeds:
        if speed > node.widest:
            continue
        if best.channels and speed / best.inter <= STOP:
            break
        fit = min(node.cards(speed), node.chains(speed)) if node.nics else node.rings(speed)
        channels = min(most, fit)
        if channels >= node.fewest and channels * speed > best.channels * best.inter:
            best = Graph(channels, speed, speed)
        if best.channels == most or best.channels * best.inter >= node.port:
            break
    if not best.channels:
        return Graph(1, PLACEHOLDER, PLACEHOLDER)

    # Wide rings are split in two, from Hopper on only the widest if there are many.
    if best.intra < WIDE or (generation in LATE and best.intra < NARROW_ENOUGH and best.channels > 4):
        return best
    channels = min(2 * best.channels, most)
    speed = best.intra / ceil(channels / best.channels)
    return Graph(channels, speed, speed)


def _tree_graph(node: NodeLinks, speeds: Sequence[float], channels: int) -> Graph:
    """Return as many trees as rings, as fast as fit; over several nodes up to twice as fast within the node."""
    fit = (speed for speed in speeds if speed <= node.widest and node.trees(channels, speed, speed))
    speed = next(fit, PLACEHOLDER)
    if not node.nics:
        return Graph(channels, speed, speed)
    intra = _raised(speeds, speed, 2 * speed, lambda raised: node.trees(channels, raised, speed))
    return Graph(channels, intra, speed)


def _nvls_graph(node: NodeLinks, speeds: Sequence[float], raises: bool) -> Graph:
    """Return a channel for every GPU that reduces a share; it crosses that GPU's port twice, and all others once."""
    heads = min(MAX_NVLS_HEADS, node.gpus)
    best = Graph(0)
    for speed in speeds:
        if speed > node.widest:
            continue
        if best.channels and speed / best.inter <= STOP:
            break
        channels = min(heads, count(node.port, speed) - 1)
        # Within a node all GPUs must share the work evenly.
        if node.nics:
            channels = min(channels, node.nics, node.cards(speed))
        elif channels < heads:
            continue
        if channels > best.channels or channels * speed > best.channels * best.inter:
            best = Graph(channels, speed, speed)
        if best.channels == heads:
            break
    channels = best.channels
    if not raises:
        return best
    inter = _raised(speeds, best.inter, 2 * best.intra, lambda raised: not node.nics or node.cards(raised) >= channels)
    return Graph(channels, best.intra, inter)


def _raised(speeds: Sequence[float], speed: float, limit: float, fits: Callable[[float], bool]) -> float:
    """The second pass: from speed to speed upwards, from below the limit, until something does not fit."""
    for faster in sorted(faster for faster in speeds if faster > speed):
        if speed >= limit or not fits(faster):
            break
        speed = faster
    return speed
