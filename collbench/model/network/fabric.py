"""What joins the nodes of a described system: links with capacities, and which of them a transfer takes.

Trees of switches, in two forms.  Rail-optimised: NIC r of every node on the leaves of rail r; the rails never meet.
Fat tree: all NICs of a node on the same leaf, which the first tier says by the name "tor" (top of rack).  `torus.py`
has a third form.  The topmost tier joins whatever is below it: its radix is not looked at.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from collbench.errors import UsageError
from collbench.model.network.max_min import Integers, Reals
from collbench.topology.system import System, Tier

_LINK = re.compile(r"([^:]*?)(\d+):([^:]*?)(\d+)")
_NIC = re.compile(r"nic:(\d+)\.(\d+)")
_DRAWS = 64  # of other paths for flows that meet a broken link, before they count as cut off


@dataclass(frozen=True)
class Fault:
    """A link that is down, or runs at half its rate, both ways."""

    link: str  # "leaf3:spine1", "node4:node5" in a torus, or "nic:NODE.NIC"
    left: float = 0.0  # of its rate

    def nic(self) -> tuple[int, int] | None:
        """Node and NIC, if it is the link of one."""
        match = _NIC.fullmatch(self.link)
        return (int(match[1]), int(match[2])) if match else None

    def ends(self) -> tuple[str, int, int]:
        """What it joins, and the numbers of the two: "leaf:spine", 3, 1; an empty name if it is written otherwise."""
        match = _LINK.fullmatch(self.link)
        return (f"{match[1]}:{match[3]}", int(match[2]), int(match[4])) if match else ("", 0, 0)

    def check(self, *names: str) -> None:
        """UsageError with the choices if it is none of those and no NIC."""
        if not self.nic() and self.ends()[0] not in names:
            forms = [*(name.replace(":", "I:") + "J" for name in names), "nic:NODE.NIC"]
            raise UsageError(f"no link {self.link!r}; write {' or '.join(forms)}, numbers from 0")


class Fabric(Protocol):
    """Links 0 .. m-1 carry what the m NICs send, m .. 2m-1 what they receive; NIC i of node n is n * nics + i."""

    nics: int  # of a node, as far as they are modelled
    capacity: Reals  # bytes/s of each link

    def route(self, source: Integers, target: Integers, random: np.random.Generator) -> list[Integers]:
        """Between NICs of the same rail: one array for each step of the way, -1 where there is none; NICs first."""

    def name(self, link: int) -> str:
        """In the words of a `Fault`, for people."""


@dataclass(frozen=True)
class Level:
    """The links between one tier of switches and the next."""

    low: str
    high: str
    span: int  # nodes under one switch of the lower tier, or one group of equal switches
    groups: int  # of those, on all rails together
    per_rail: int  # of those groups
    switches: int  # equal ones in each group
    paths: int  # up from each switch
    lanes: int  # links of a group that are kept apart: switches * paths, or 1 where traffic spreads over all
    first: int  # link going up; those coming down follow after all that go up

    def up(self, nic: Integers, nics: int, rails: int, choice: Integers) -> Integers:
        """The link above a NIC, given a number that chooses the path."""
        group = nic % nics % rails * self.per_rail + nic // nics // self.span
        return self.first + group * self.lanes + choice % self.lanes


class Clos:
    """Tiers of switches, each joined to the next by equal paths.

    Under adaptive routing all paths above a switch count as one wide link, as if it were used without any loss.  With
    `even`, static hashing of so many flows that every path has as many as the others is one wide link as well, of which
    the slowest path decides.  Otherwise each flow is hashed to one path.
    """

    def __init__(self, system: System, nics: int, faults: Sequence[Fault] = (), even: bool = False) -> None:
        assert system.nics
        self.nics, self.nodes = nics, system.nodes
        self.rails = 1 if system.tiers and system.tiers[0].name == "tor" else nics
        adaptive = all(tier.routing == "adaptive" for tier in system.tiers)
        self.spread = adaptive or even
        self.levels: list[Level] = []
        capacity = [nic_links(system, nics, faults)]
        for index in range(len(system.tiers) - 1):
            level = self._level(system.tiers, index, sum(map(len, capacity)))
            rate = system.nics.rate * level.span * nics / self.rails
            rate /= prod(tier.oversubscription for tier in system.tiers[: index + 1])
            lanes = np.full((level.groups, level.switches * level.paths), rate / (level.switches * level.paths))
            _damage(lanes, level, faults)
            each_way = lanes.sum(axis=1) if adaptive else _evenly(lanes) if even else lanes.ravel()
            capacity += [each_way, each_way]
            self.levels.append(level)
        self.capacity = np.concatenate(capacity)
        for fault in faults:
            fault.check(*(f"{level.low}:{level.high}" for level in self.levels))

    def _level(self, tiers: Sequence[Tier], index: int, first: int) -> Level:
        span = prod(tier.radix or self.nodes for tier in tiers[: index + 1])
        per_rail = -(-self.nodes // span)
        switches, paths = prod(tier.paths for tier in tiers[1 : index + 1]), tiers[index + 1].paths
        lanes = 1 if self.spread else switches * paths
        names = tiers[index].name, tiers[index + 1].name
        return Level(*names, span, per_rail * self.rails, per_rail, switches, paths, lanes, first)

    def route(self, source: Integers, target: Integers, random: np.random.Generator) -> list[Integers]:
        """Each flow keeps to one path, drawn from the equal ones that work; UsageError if none does."""
        way = self._draw(source, target, random)
        for _ in range(_DRAWS):
            broken = self._broken(way)
            if not len(broken):
                return way
            for column, again in zip(way, self._draw(source[broken], target[broken], random), strict=True):
                column[broken] = again
        raise UsageError(f"node {source[broken[0]] // self.nics} is cut off from others: too many links are down")

    def _draw(self, source: Integers, target: Integers, random: np.random.Generator) -> list[Integers]:
        way = [source, target + self.nodes * self.nics]
        choice = np.zeros(len(source), dtype=np.int64)
        for level in self.levels:
            apart = source // self.nics // level.span != target // self.nics // level.span
            # a switch further up stands above all lower choices: digits of one number, the latest the lowest
            choice = choice * level.paths + random.integers(level.paths, size=len(source))
            up = level.up(source, self.nics, self.rails, choice)
            down = level.up(target, self.nics, self.rails, choice) + level.groups * level.lanes
            way += [np.where(apart, up, -1), np.where(apart, down, -1)]
        return way

    def _broken(self, way: Sequence[Integers]) -> Integers:
        dead = np.append(self.capacity == 0, False)  # the last one is what -1 finds
        return np.flatnonzero(np.any([dead[column] for column in way[2:]], axis=0)) if way[2:] else np.zeros(0, int)

    def name(self, link: int) -> str:
        """The switch and the path above it, or "all links above leaf 3" where traffic spreads."""
        if link < 2 * self.nodes * self.nics:
            return nic_name(link % (self.nodes * self.nics), self.nics)
        level = next(level for level in reversed(self.levels) if link >= level.first)
        group, lane = divmod((link - level.first) % (level.groups * level.lanes), level.lanes)
        if self.spread:
            first, last = group * level.switches, (group + 1) * level.switches - 1
            return f"the links above {level.low} {first}" + (f"-{last}" if last > first else "")
        switch, path = divmod(lane, level.paths)
        return f"{level.low} {group * level.switches + switch} - {level.high} {path}"


def _damage(lanes: Reals, level: Level, faults: Sequence[Fault]) -> None:
    """Take the rate of faulty links away."""
    low, high = level.low, level.high
    for fault in faults:
        name, switch, path = fault.ends()
        if name != f"{low}:{high}":
            continue
        group, place = divmod(switch, level.switches)
        if group >= level.groups or path >= level.paths:
            last = level.groups * level.switches - 1
            there = f"{low}0 to {low}{last}, each below {high}0 to {high}{level.paths - 1}"
            raise UsageError(f"no link {fault.link!r}; there are {there}")
        lanes[group, place * level.paths + path] *= fault.left


def _evenly(lanes: Reals) -> Reals:
    """What groups of paths carry when every path that works gets the same."""
    alive = lanes > 0
    slowest = np.where(alive, lanes, lanes.max(axis=1, keepdims=True)).min(axis=1)
    return np.asarray(slowest * alive.sum(axis=1), dtype=np.float64)


def nic_links(system: System, nics: int, faults: Sequence[Fault]) -> Reals:
    """Rates of what every NIC sends, then of what it receives; a NIC that is down has none."""
    assert system.nics
    rates = np.full((2, system.nodes, nics), system.nics.rate)
    for fault in faults:
        where = fault.nic()
        if where and (where[0] >= system.nodes or where[1] >= nics):
            raise UsageError(f"no NIC {where[0]}.{where[1]}; nodes are 0 to {system.nodes - 1}, NICs 0 to {nics - 1}")
        if where:
            rates[:, where[0], where[1]] *= fault.left
    return rates.ravel()


def nic_name(nic: int, nics: int) -> str:
    """For people."""
    return f"NIC {nic % nics} of node {nic // nics}"
