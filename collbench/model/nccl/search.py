"""The channels that NCCL's search finds in a node, for nodes whose GPUs all look alike.

NCCL walks down a ladder of speeds and, at each, counts how many rings, trees or in-switch reductions of that speed fit
the links; the most bandwidth wins, and speeds below half of the best's are not tried (src/graph/search.cc).  Where
nodes are symmetric the count is a division, so that is what is done here, in place of its search.  The ladders, the
doubling of wide channels and the second pass, which raises one side of a tree, are as there.

GB/s (1e9 bytes/s) throughout, as in NCCL's ladders.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from collbench.model.nccl.constants import Release, known_generation
from collbench.model.nccl.node import Node, count, node_of
from collbench.topology.system import System

MAX_NVLS_HEADS = 32
LATE = ("hopper", "blackwell")
STOP = 0.49  # of the best speed so far: the search looks no lower
WIDE = 25.0  # channels from here on are doubled
PLACEHOLDER = 0.1  # GB/s that NCCL falls back on where nothing on its ladder fits
NARROW_ENOUGH = 50.0  # but from Hopper on not below this, where there are more than 4


@dataclass(frozen=True)
class Graph:
    """What the search settles on for one pattern; no channels: it has none."""

    channels: int
    intra: float = 0.0  # of a channel within the node
    inter: float = 0.0  # and to the network


@dataclass(frozen=True)
class Graphs:
    """All that the tuner needs to know of a system's links."""

    node: Node
    ring: Graph
    tree: Graph
    nvls: Graph


def search(system: System, release: Release) -> Graphs:
    """Rings, trees and NVLS heads of a system."""
    node, known = node_of(system, release.merges_ports), known_generation(system.arch, release)
    if not release.two_rings_over_pairs:
        node = replace(node, fewest=1)
    ladders = release.inter if node.nics else release.intra
    ladder = ladders.get(known, ladders["ampere"])
    ring = _ring(node, ladder, known, release.max_channels)
    nvls = _nvls(node, ladder, release.raises_nvls) if system.multicast and known in LATE else Graph(0)
    return Graphs(node, ring, _tree(node, ladder, ring.channels), nvls)


def _ring(node: Node, ladder: Sequence[float], known: str, most: int) -> Graph:
    """As many and as fast as fit; wide ones are split in two."""

    def fit(speed: float) -> int:
        return min(most, node.cards(speed), node.chains(speed)) if node.nics else min(most, node.rings(speed))

    best = Graph(0)
    for speed in (step for step in ladder if step <= node.widest):
        if best.channels and speed / best.inter <= STOP:
            break
        channels = fit(speed)
        if channels >= node.fewest and channels * speed > best.channels * best.inter:
            best = Graph(channels, speed, speed)
        if best.channels == most or best.channels * best.inter >= node.port:
            break
    if not best.channels:
        return Graph(1, PLACEHOLDER, PLACEHOLDER)
    if best.intra < WIDE or (known in LATE and best.intra < NARROW_ENOUGH and best.channels > 4):
        return best
    channels = min(2 * best.channels, most)
    speed = best.intra / ceil(channels / best.channels)
    return Graph(channels, speed, speed)


def _tree(node: Node, ladder: Sequence[float], channels: int) -> Graph:
    """As many trees as rings, as fast as fit; then, over several nodes, up to twice as fast within the node."""
    speed = next((step for step in ladder if step <= node.widest and node.trees(channels, step, step)), 0.1)
    intra = speed
    if node.nics:
        intra = _raised(ladder, speed, 2 * speed, lambda step: node.trees(channels, step, speed))
    return Graph(channels, intra, speed)


def _nvls(node: Node, ladder: Sequence[float], raises: bool) -> Graph:
    """A channel for every GPU that reduces a share; it crosses that GPU's port twice, and all others once."""
    heads = min(MAX_NVLS_HEADS, node.gpus)
    best = Graph(0)
    for speed in (step for step in ladder if step <= node.widest):
        if best.channels and speed / best.inter <= STOP:
            break
        channels = min(heads, count(node.port, speed) - 1)
        if node.nics:
            channels = min(channels, node.nics, node.cards(speed))
        elif channels < heads:
            continue  # within a node all GPUs must share the work evenly
        if channels > best.channels or channels * speed > best.channels * best.inter:
            best = Graph(channels, speed, speed)
        if best.channels == heads:
            break
    channels = best.channels
    if not raises:
        return best
    inter = _raised(ladder, best.inter, 2 * best.intra, lambda step: not node.nics or node.cards(step) >= channels)
    return Graph(channels, best.intra, inter)


def _raised(ladder: Sequence[float], speed: float, limit: float, fits: Callable[[float], bool]) -> float:
    """The second pass: step by step up the ladder, from below the limit, until something does not fit."""
    for step in sorted(step for step in ladder if step > speed):
        if speed >= limit or not fits(step):
            break
        speed = step
    return speed
