"""Network contention: the lowest share of NIC bandwidth in a pattern.

Tiers of switches join nodes in two forms.  Rail-optimised: NIC r of every node is on the leaves of rail r and the rails
never meet.  Fat tree: all NICs of a node are on the same leaf; then the first tier is named "tor" (top of rack).  The
topmost tier joins everything below it, whatever its radix.

Each flow has a sender and a receiver (PATTERNS), links (Clos) and failures (Fault). Rates are max-min fair, by
progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). The rates of all flows grow together
until a link is full; its flows stop there and the others continue. Every link that is the bottleneck of all its flows
is settled in the same round (Ros-Giralt et al., On the Bottleneck Structure of Congestion-Controlled Networks, 2019).
So a few dozen rounds suffice at any size.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.errors import UsageError
from collbench.topology.system import System, Tier

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_SAME = 1e-9  # relative difference of two levels that count as equal: they are sums in a different order
Pairs = tuple[Integers, Integers]  # senders and receivers, as places 0 .. n-1 in the job's order

MOST_FLOWS = 400_000
"""Flows that are followed one by one.

Beyond, an all-to-all is even on its paths, and of other patterns as many rails as fit stand for all.
"""
_MOST_EVEN = MOST_FLOWS // 4  # flows that stand for the others of an even pattern: they are alike, so fewer do
_TRIES = 64  # draws of other paths for flows that meet a broken link, before they count as cut off
_LINK = re.compile(r"([^:]*?)(\d+):([^:]*?)(\d+)")
_NIC = re.compile(r"nic:(\d+)\.(\d+)")


class Rates(NamedTuple):
    """The rate of each flow, and the link that allows it no more."""

    rates: Reals  # in the unit of the capacities
    bottleneck: Integers  # a link for each flow


def max_min(hops: Sequence[Integers], capacity: Reals) -> Rates:
    """Return the only allocation in which no flow could get more without taking from a flow that has less.

    The flows' paths are an array for each hop, with a link for each flow; -1 where a flow has no such hop.
    """
    table = np.stack(hops, axis=1)
    taken = table >= 0
    links, lengths = table[taken], taken.sum(axis=1)  # the links of the flows, one flow after the other
    room = np.array(capacity, dtype=np.float64)
    flows = np.arange(len(table))
    rates, bottleneck = np.zeros(len(table)), np.full(len(table), -1)
    while len(flows):
        demand = np.bincount(links, minlength=len(room))
        level = np.divide(room, demand, out=np.full(len(room), np.inf), where=demand > 0)
        least, link = _settled(level, lengths, links)
        done = link >= 0
        rates[flows[done]] = least[done]
        bottleneck[flows[done]] = link[done]

        # Settled flows leave the network, with their share of the links.
        gone = np.repeat(done, lengths)
        spent = np.bincount(links[gone], np.repeat(least[done], lengths[done]), len(room))
        room = np.maximum(room - spent, 0.0)
        flows, lengths, links = flows[~done], lengths[~done], links[~gone]
    return Rates(rates, bottleneck)


def _settled(level: Reals, lengths: Integers, links: Integers) -> tuple[Reals, Integers]:
    """Return for each flow the lowest level on its path, and the link that holds all its flows there or -1."""
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    here = level[links]
    least = np.minimum.reduceat(here, starts)
    # A link holds its flows when none of them is held lower elsewhere.  The levels of other links only rise as flows
    # are settled, so nothing that comes later can hold these flows lower.
    lower_elsewhere = np.repeat(least, lengths) < here * (1 - _SAME)
    waits = np.bincount(links[lower_elsewhere], minlength=len(level)) > 0
    return least, np.maximum.reduceat(np.where(waits[links], -1, links), starts)


class Pattern(NamedTuple):
    """Senders and receivers between nodes."""

    pairs: Callable[[int, int], Pairs]  # pairs from the number of nodes and the largest number of pairs
    count: Callable[[int], int]  # of all pairs
    even: bool = False  # whether the pairs of many nodes load equal paths evenly


def _ring(nodes: int, most: int) -> Pairs:
    place = np.arange(nodes)
    return place, (place + 1) % nodes


def double_tree(nodes: int, most: int) -> Pairs:
    """Return the edges of two binary trees, up and down; an inner node of one is a leaf of the other (even `nodes`)."""
    child = np.arange(1, nodes)
    parent = (child - 1) // 2
    sender, receiver = np.concatenate([child, parent]), np.concatenate([parent, child])
    return np.concatenate([sender, nodes - 1 - sender]), np.concatenate([receiver, nodes - 1 - receiver])


def _alltoall(nodes: int, most: int) -> Pairs:
    """Return each node with every other; where that is more than `most` pairs, as many distances as fit."""
    distances = max(1, min(nodes - 1, most // nodes))
    distance = 1 + ((np.arange(distances) + 0.5) * (nodes - 1) / distances).astype(np.int64)
    place = np.arange(nodes)
    return np.tile(place, len(distance)), np.add.outer(distance, place).ravel() % nodes


PATTERNS = {
    "ring": Pattern(_ring, lambda nodes: nodes),
    "tree": Pattern(double_tree, lambda nodes: 4 * (nodes - 1)),
    "alltoall": Pattern(_alltoall, lambda nodes: nodes * (nodes - 1), even=True),
}


def on_nics(pairs: Pairs, order: Integers, nics: int) -> Pairs:
    """Return pairs of NICs of the same rail, numbered node * nics + NIC; `order` is the node at each place."""
    sender, receiver = (np.add.outer(order[place] * nics, np.arange(nics)).ravel() for place in pairs)
    return sender, receiver


def avoid_dead_nics(pairs: Pairs, nics: int, dead: Integers) -> Pairs:
    """Move a dead NIC's load to the node's next rail, at both ends; UsageError if no rail works at both ends."""
    # NCCL stays on a rail by this: a GPU hands its data to another GPU of the node (PXN).
    sender, receiver = pairs
    for _ in range(nics + 1):
        hit = np.isin(sender, dead) | np.isin(receiver, dead)
        if not hit.any():
            return sender, receiver
        sender, receiver = (np.where(hit, nic // nics * nics + (nic + 1) % nics, nic) for nic in (sender, receiver))
    node = int(dead[0]) // nics
    raise UsageError(f"node {node} is cut off: no NIC is left that works there and at its neighbour")


@dataclass(frozen=True)
class Fault:
    """A link that is down, or runs at half its rate, both ways."""

    link: str  # "leaf3:spine1", or "nic:NODE.NIC"
    left: float = 0.0  # fraction of its rate that is left

    def nic(self) -> tuple[int, int] | None:
        """Return node and NIC, if this is the link of a NIC."""
        match = _NIC.fullmatch(self.link)
        return (int(match[1]), int(match[2])) if match else None

    def ends(self) -> tuple[tuple[str, str], int, int]:
        """Return (("leaf", "spine"), 3, 1) of "leaf3:spine1"; empty names if it is written otherwise."""
        match = _LINK.fullmatch(self.link)
        return ((match[1], match[3]), int(match[2]), int(match[4])) if match else (("", ""), 0, 0)


@dataclass(frozen=True)
class Level:
    """The links between one tier of switches and the next."""

    low: str
    high: str
    span: int  # nodes under one switch of the lower tier, or one group of equal switches
    groups: int  # of switches, on all rails together
    per_rail: int  # of those groups
    switches: int  # equal ones in each group
    paths: int  # up from each switch
    lanes: int  # separate links of a group: switches * paths, or 1 where traffic spreads over all
    first: int  # link going up; those coming down follow after all that go up

    def up(self, nic: Integers, nics: int, rails: int, choice: Integers) -> Integers:
        """Return the link above a NIC, given a number that chooses the path."""
        group = nic % nics % rails * self.per_rail + nic // nics // self.span
        return self.first + group * self.lanes + choice % self.lanes


class Clos:
    """Tiers of switches, each joined to the next by equal paths.

    Links 0 .. m-1 leave the m NICs, links m .. 2m-1 enter them; NIC i of node n is n * nics + i.

    Under adaptive routing all paths above a switch are one wide link without any loss.  `even` does the same: static
    hashing of enough flows that every path has as many; the slowest path decides.  Otherwise each flow is hashed
    to one path.
    """

    def __init__(self, system: System, nics: int, faults: Sequence[Fault] = (), even: bool = False) -> None:
        assert system.nics
        self.nics, self.nodes = nics, system.nodes
        self.rails = 1 if system.tiers and system.tiers[0].name == "tor" else nics
        adaptive = all(tier.routing == "adaptive" for tier in system.tiers)
        self.spread = adaptive or even
        self.levels: list[Level] = []
        capacity = [_nic_rates(system, nics, faults)]
        for index in range(len(system.tiers) - 1):
            level = self._level(system.tiers, index, sum(map(len, capacity)))
            rate = system.nics.rate * level.span * nics / self.rails
            rate /= prod(tier.oversubscription for tier in system.tiers[: index + 1])
            lanes = np.full((level.groups, level.switches * level.paths), rate / (level.switches * level.paths))
            _apply_faults(lanes, level, faults)
            each_way = lanes.sum(axis=1) if adaptive else lanes.ravel()
            if even and not adaptive:
                # Every path that works gets the same, so the slowest of them decides.
                alive = lanes > 0
                slowest = np.where(alive, lanes, lanes.max(axis=1, keepdims=True)).min(axis=1)
                each_way = slowest * alive.sum(axis=1)
            capacity += [each_way, each_way]
            self.levels.append(level)
        self.capacity = np.concatenate(capacity)  # bytes/s of each link
        tiers = [(level.low, level.high) for level in self.levels]
        for fault in faults:
            if not fault.nic() and fault.ends()[0] not in tiers:
                forms = [f"{level.low}I:{level.high}J" for level in self.levels]
                raise UsageError(
                    f"no link {fault.link!r}; write {' or '.join([*forms, 'nic:NODE.NIC'])}, numbers from 0"
                )

    def _level(self, tiers: Sequence[Tier], index: int, first: int) -> Level:
        span = prod(tier.radix or self.nodes for tier in tiers[: index + 1])
        per_rail = -(-self.nodes // span)
        switches, paths = prod(tier.paths for tier in tiers[1 : index + 1]), tiers[index + 1].paths
        lanes = 1 if self.spread else switches * paths
        names = tiers[index].name, tiers[index + 1].name
        return Level(*names, span, per_rail * self.rails, per_rail, switches, paths, lanes, first)

    def route(self, source: Integers, target: Integers, random: np.random.Generator) -> list[Integers]:
        """Return the links of flows between NICs of the same rail: an array for each hop, -1 where there is none.

        The first two hops are the NICs.  Each flow keeps to one path, drawn from the equal ones that work; UsageError
        where none works.
        """
        hops = self._draw(source, target, random)
        dead = np.append(self.capacity == 0, False)  # the last entry is what -1 finds
        for _ in range(_TRIES):
            cut = [dead[column] for column in hops[2:]]
            broken = np.flatnonzero(np.any(cut, axis=0)) if cut else np.zeros(0, int)
            if not len(broken):
                return hops
            # These draw once more; what they get may be broken again.
            for column, again in zip(hops, self._draw(source[broken], target[broken], random), strict=True):
                column[broken] = again
        raise UsageError(f"node {source[broken[0]] // self.nics} is cut off from others: too many links are down")

    def _draw(self, source: Integers, target: Integers, random: np.random.Generator) -> list[Integers]:
        hops = [source, target + self.nodes * self.nics]
        choice = np.zeros(len(source), dtype=np.int64)
        for level in self.levels:
            apart = source // self.nics // level.span != target // self.nics // level.span
            # A switch further up stands above all lower choices: digits of one number, the latest the lowest.
            choice = choice * level.paths + random.integers(level.paths, size=len(source))
            up = level.up(source, self.nics, self.rails, choice)
            down = level.up(target, self.nics, self.rails, choice) + level.groups * level.lanes
            hops += [np.where(apart, up, -1), np.where(apart, down, -1)]
        return hops

    def is_nic(self, link: int) -> bool:
        """Return whether a link is that of a NIC, and not between two switches."""
        return link < 2 * self.nodes * self.nics

    def name(self, link: int) -> str:
        """Return `NIC 3 of node 17`, `leaf 3 - spine 1`, or `leaf 3` where traffic spreads over all links above it."""
        if self.is_nic(link):
            nic = link % (self.nodes * self.nics)
            return f"NIC {nic % self.nics} of node {nic // self.nics}"
        level = next(level for level in reversed(self.levels) if link >= level.first)
        group, lane = divmod((link - level.first) % (level.groups * level.lanes), level.lanes)
        if self.spread:
            first, last = group * level.switches, (group + 1) * level.switches - 1
            return f"{level.low} {first}-{last}" if last > first else f"{level.low} {first}"
        switch, path = divmod(lane, level.paths)
        return f"{level.low} {group * level.switches + switch} - {level.high} {path}"


def _nic_rates(system: System, nics: int, faults: Sequence[Fault]) -> Reals:
    """Return the rates of what every NIC sends, then of what it receives; a NIC that is down has none."""
    assert system.nics
    rates = np.full((2, system.nodes, nics), system.nics.rate)
    for fault in faults:
        if not (where := fault.nic()):
            continue
        node, nic = where
        if node >= system.nodes or nic >= nics:
            raise UsageError(f"no NIC {node}.{nic}; nodes are 0 to {system.nodes - 1}, NICs 0 to {nics - 1}")
        rates[:, node, nic] *= fault.left
    return rates.ravel()


def _apply_faults(lanes: Reals, level: Level, faults: Sequence[Fault]) -> None:
    """Take the rate of faulty links away, in place."""
    low, high = level.low, level.high
    for fault in faults:
        tiers, switch, path = fault.ends()
        if tiers != (low, high):
            continue
        group, place = divmod(switch, level.switches)
        if group >= level.groups or path >= level.paths:
            last = level.groups * level.switches - 1
            links = f"{low}0 to {low}{last}, each below {high}0 to {high}{level.paths - 1}"
            raise UsageError(f"no link {fault.link!r}; there are {links}")
        lanes[group, place * level.paths + path] *= fault.left


@dataclass(frozen=True)
class Scenario:
    """A system with injected faults."""

    system: System
    faults: tuple[Fault, ...] = ()
    in_order: bool = False  # whether neighbours in the job are neighbours in the network; else the order is random

    @property
    def hashed(self) -> bool:
        """Whether a flow keeps to one of several paths."""
        return any(tier.routing == "ecmp" for tier in self.system.tiers)

    @property
    def flows(self) -> int:
        """Flows that a transfer is split into, evenly, so that it ends with the slowest."""
        return max((tier.flows for tier in self.system.tiers), default=1) if self.hashed else 1


@dataclass(frozen=True)
class Slowest:
    """The slowest transfer of a pattern, and its bottleneck."""

    share: float  # of what it would get if only NICs had limits
    mean: float  # of all transfers, none counted above 1
    sender: str
    bottleneck: str  # in words: "32 uplinks of leaf 0"
    flows: int  # that share the bottleneck
    apart: float  # share of the transfers that leave their leaf
    rails: int  # that were followed
    alike: bool  # whether the others are the same, so that nothing is missed


def solve(scenario: Scenario, pattern: str, seed: int = 0) -> Slowest:
    """Return the slowest transfer of one drawing of the nodes' order and the flows' hashes.

    UsageError where there is one node only or no NICs, a faulty link does not exist, or a node is cut off.
    """
    system = scenario.system
    if system.nodes < 2 or not system.nics:
        raise UsageError(f"{system.name} has nothing between nodes here; give 2 nodes or more, with network cards")
    even, nics = _extent(scenario, pattern)
    flows = 1 if even else scenario.flows
    fabric = Clos(system, nics, scenario.faults, even)
    random = np.random.default_rng(seed)

    # Sender and receiver of each transfer, by flows; the fair rate of a flow is its rate if only NICs limited it.
    order = np.arange(system.nodes) if scenario.in_order else random.permutation(system.nodes)
    most = _MOST_EVEN if even else MOST_FLOWS
    pairs = on_nics(PATTERNS[pattern].pairs(system.nodes, most // (nics * flows)), order, nics)
    fair = system.nics.rate / max(int(np.bincount(end).max()) for end in pairs)
    dead = np.flatnonzero(fabric.capacity[: system.nodes * nics] == 0)
    sender, receiver = (np.repeat(end, flows) for end in avoid_dead_nics(pairs, nics, dead))

    hops = fabric.route(sender, receiver, random)
    rates, bottlenecks = max_min(hops, fabric.capacity)
    transfers = rates.reshape(-1, flows)
    slow = int(rates.argmin())
    link = int(bottlenecks[slow])
    crossing = np.any([hop >= 0 for hop in hops[2:]], axis=0).mean() if hops[2:] else 0.0
    return Slowest(
        share=min(1.0, float(transfers.min() * flows / fair)),
        mean=float(np.minimum(transfers.sum(axis=1) / fair, 1.0).mean()),
        sender=fabric.name(int(hops[0][slow])),
        bottleneck=_bottleneck(fabric, link, fabric.capacity[link] / fair * flows),
        flows=int(sum((hop == link).sum() for hop in hops)),
        apart=float(crossing),
        rails=fabric.nics,
        alike=even or not scenario.hashed or nics == system.nics.per_node,
    )


def _bottleneck(fabric: Clos, link: int, capacity: float) -> str:
    """Describe a link; it can carry `capacity` flows at full rate."""
    name = fabric.name(link)
    if fabric.spread and not fabric.is_nic(link):
        return f"{capacity:.3g} uplink{'s' if capacity > 1 else ''} of {name}"
    return f"{name}, which carries {capacity:.3g} at full rate"


def drawings(scenario: Scenario, pattern: str) -> int:
    """Return how many drawings are worth their time: large systems hardly differ from one to the next."""
    even, nics = _extent(scenario, pattern)
    if scenario.in_order and (even or not scenario.hashed):
        return 1
    pairs = PATTERNS[pattern].count(scenario.system.nodes)
    return max(1, min(5, MOST_FLOWS // (4 * pairs * nics * scenario.flows)))


def _extent(scenario: Scenario, pattern: str) -> tuple[bool, int]:
    """Return whether hashing is taken as even, and how many NICs of a node are followed: one where all are alike."""
    assert scenario.system.nics
    nics, count = scenario.system.nics.per_node, PATTERNS[pattern].count(scenario.system.nodes) * scenario.flows
    even = PATTERNS[pattern].even and count > MOST_FLOWS
    if scenario.faults:
        return even, nics
    if even or not scenario.hashed:
        return even, 1
    return even, max(1, min(nics, MOST_FLOWS // count))


def median_drawing(drawings: Sequence[Slowest]) -> Slowest:
    """Return the drawing in the middle by share, which can be pointed at, unlike a mean."""
    return sorted(drawings, key=lambda drawing: drawing.share)[len(drawings) // 2]
