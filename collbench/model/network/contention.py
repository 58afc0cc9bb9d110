"""How much of its NIC's rate the slowest transfer of a pattern gets, if all transfers run at once on a fabric."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from collbench.errors import UsageError
from collbench.model.network.fabric import Clos, Fabric, Fault
from collbench.model.network.max_min import Integers, Paths, Rates, Reals, max_min
from collbench.model.network.patterns import PATTERNS, Pairs, around, on_nics
from collbench.model.network.torus import Torus
from collbench.topology.system import System

MOST = 400_000
"""Flows that are followed one by one.  Beyond, an all-to-all is even on its paths, and other patterns stand for all
rails by as many as fit."""
_EVEN = MOST // 4  # of those that then stand for the others: that they are alike, not many, makes them right


@dataclass(frozen=True)
class Scenario:
    """A system with injected faults and load."""

    system: System
    faults: tuple[Fault, ...] = ()
    job: float = 0.0  # what another job would take of a full link, 0 to below 1
    scattered: bool | None = None  # the job's nodes in random order; None: unless they form a torus

    @property
    def torus(self) -> bool:
        """Whether nodes are joined to each other, without switches."""
        tiers = self.system.tiers
        return bool(tiers) and all(tier.name == "torus" for tier in tiers)

    @property
    def hashed(self) -> bool:
        """Whether a flow keeps to one of several paths."""
        return not self.torus and any(tier.routing == "ecmp" for tier in self.system.tiers)

    @property
    def in_order(self) -> bool:
        """Whether neighbours in the job are neighbours in the fabric."""
        return self.torus if self.scattered is None else not self.scattered

    @property
    def flows(self) -> int:
        """Into how many a transfer is split, evenly, so that it ends with the slowest."""
        return max((tier.flows for tier in self.system.tiers), default=1) if self.hashed else 1


@dataclass(frozen=True)
class Slowest:
    """The slowest transfer, and where it is held up."""

    share: float  # of what it would get if only NICs had limits
    mean: float  # of all transfers, none counted above 1
    sender: str
    link: str  # where it is held up
    meeting: int  # this job's flows there
    others: int  # another job's
    room: float  # flows that the link could carry at full speed
    apart: float  # share of the transfers that leave their leaf
    rails: int  # that were followed
    alike: bool  # whether the others are the same, so that nothing is missed


def solve(scenario: Scenario, pattern: str, seed: int = 0) -> Slowest:
    """One drawing of order and hashes; UsageError for one node, no NICs, a link that is not there, a node cut off."""
    system = scenario.system
    if system.nodes < 2 or not system.nics:
        raise UsageError(f"{system.name} has nothing between nodes here; give 2 nodes or more, with network cards")
    even, nics = _extent(scenario, pattern)
    flows = 1 if even else scenario.flows
    fabric = _fabric(scenario, nics, even)
    random = np.random.default_rng(seed)
    order = np.arange(system.nodes) if scenario.in_order else random.permutation(system.nodes)
    most = _EVEN if even else MOST
    pairs = on_nics(PATTERNS[pattern].pairs(system.nodes, most // (nics * flows)), order, nics)
    fair = system.nics.rate / max(int(np.bincount(end).max()) for end in pairs)
    down = [nic for fault in scenario.faults if fault.left == 0 and (nic := fault.nic())]
    dead = np.array([node * nics + nic for node, nic in down], dtype=np.int64)
    sender, receiver = (np.repeat(end, flows) for end in around(pairs, nics, dead))
    own = fabric.route(sender, receiver, random)
    other = _others(scenario, fabric, (sender, receiver), random) if scenario.job else None
    paths, capacity, weights = _together(own, other, fabric, fair / flows, scenario.job)
    rates = max_min(paths, capacity, weights)
    alike = even or not scenario.hashed or nics == system.nics.per_node
    return _slowest(fabric, own, rates, paths, flows, fair, alike)


def draws(scenario: Scenario, pattern: str) -> int:
    """How many drawings are worth their time: large systems hardly differ from one to the next."""
    even, nics = _extent(scenario, pattern)
    if scenario.in_order and (even or not scenario.hashed):
        return 1
    pairs = PATTERNS[pattern].count(scenario.system.nodes)
    return max(1, min(5, MOST // (4 * pairs * nics * scenario.flows)))


def _extent(scenario: Scenario, pattern: str) -> tuple[bool, int]:
    """Whether hashing is taken as even, and how many NICs of a node are looked at: one where all are alike."""
    assert scenario.system.nics
    every, count = scenario.system.nics.per_node, PATTERNS[pattern].count(scenario.system.nodes) * scenario.flows
    even = PATTERNS[pattern].even and count > MOST
    if scenario.faults:
        return even, every
    return even, 1 if even or not scenario.hashed else max(1, min(every, MOST // count))


def _fabric(scenario: Scenario, nics: int, even: bool) -> Fabric:
    if scenario.torus:
        return Torus(scenario.system, nics, scenario.faults)
    return Clos(scenario.system, nics, scenario.faults, even)


def _others(scenario: Scenario, fabric: Fabric, pairs: Pairs, random: np.random.Generator) -> list[Integers]:
    """Another job's flows: between the same switches as this job's, with NICs and hashes of their own."""
    between = fabric.route(*pairs, random)[2:]
    return [len(fabric.capacity) + np.arange(len(pairs[0])), *between]


def _together(
    own: list[Integers], other: list[Integers] | None, fabric: Fabric, full: float, job: float
) -> tuple[Paths, Reals, Reals | None]:
    if other is None:
        return Paths.of(own), fabric.capacity, None
    weight = job / (1 - job)
    count = len(own[0])
    nothing = np.full(count, -1)
    steps = zip_longest(own, [other[0], nothing, *other[1:]], fillvalue=nothing)
    columns = [np.concatenate(both) for both in steps]
    weights = np.repeat([1.0, weight], count)
    return Paths.of(columns), np.concatenate([fabric.capacity, np.full(count, weight * full)]), weights


def _slowest(
    fabric: Fabric, own: list[Integers], rates: Rates, paths: Paths, flows: int, fair: float, alike: bool
) -> Slowest:
    count = len(own[0])
    transfers = rates.rates[:count].reshape(-1, flows)
    slow = int(rates.rates[:count].argmin())
    link = int(rates.bottleneck[slow])
    there = paths.owners()[paths.links == link]
    crossing = np.any([step >= 0 for step in own[2:]], axis=0).mean() if own[2:] else 0.0
    return Slowest(
        share=min(1.0, float(transfers.min() * flows / fair)),
        mean=float(np.minimum(transfers.sum(axis=1) / fair, 1.0).mean()),
        sender=fabric.name(int(own[0][slow])),
        link=fabric.name(link),
        meeting=int((there < count).sum()),
        others=int((there >= count).sum()),
        room=float(fabric.capacity[link] / fair * flows),
        apart=float(crossing),
        rails=fabric.nics,
        alike=alike,
    )


def median(drawings: Sequence[Slowest]) -> Slowest:
    """The one in the middle by share: a drawing that can be pointed at, unlike a mean of them."""
    return sorted(drawings, key=lambda drawing: drawing.share)[len(drawings) // 2]
