"""Max-min fair rates of many flows over many links, as in a network that treats all flows alike.

Progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): the rates of all flows grow together
until a link is full, the flows through it stop there, the others grow on.  Done literally that is one round for each
level; here every link that is a bottleneck for all its flows is settled in the same round (Ros-Giralt et al., On the
Bottleneck Structure of Congestion-Controlled Networks, 2019), which takes a few dozen rounds whatever the size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_SAME = 1e-9  # two levels that differ by less, relatively, are one: they are sums in different order


@dataclass(frozen=True)
class Paths:
    """Which links each flow takes: those of flow f are links[starts[f] : starts[f + 1]]."""

    starts: Integers  # one more than there are flows
    links: Integers

    @classmethod
    def of(cls, columns: Sequence[Integers]) -> "Paths":
        """From one array for each step of the way, as long as there are flows; -1 where a flow has no such step."""
        table = np.stack(columns, axis=1)
        taken = table >= 0
        starts = np.concatenate([[0], np.cumsum(taken.sum(axis=1))])
        return cls(starts.astype(np.int64), table[taken])

    @property
    def count(self) -> int:
        """Of flows."""
        return len(self.starts) - 1

    def owners(self) -> Integers:
        """The flow that each entry of `links` belongs to."""
        return np.repeat(np.arange(self.count), np.diff(self.starts))


@dataclass(frozen=True)
class Rates:
    """What each flow gets, and the link that lets it have no more."""

    rates: Reals  # in the unit of the capacities
    bottleneck: Integers  # a link for each flow


def max_min(paths: Paths, capacity: Reals, weights: Reals | None = None) -> Rates:
    """The one allocation in which no flow could get more without taking from one that has less (for its weight).

    Weights are 1 unless given: a flow of weight 2 counts as two flows that always get the same.  ValueError for a flow
    without links, a link that does not exist, a negative capacity, or a weight that is not positive.
    """
    weight = np.ones(paths.count) if weights is None else np.asarray(weights, dtype=np.float64)
    room = np.array(capacity, dtype=np.float64)
    _check(paths, room, weight)
    rates, bottleneck = np.zeros(paths.count), np.full(paths.count, -1)
    flows, lengths, links = np.arange(paths.count), np.diff(paths.starts), paths.links
    while len(flows):
        heavy = np.repeat(weight[flows], lengths)
        demand = np.bincount(links, heavy, len(room))
        level = np.divide(room, demand, out=np.full(len(room), np.inf), where=demand > 0)
        least, link = _settled(level, lengths, links)
        done = link >= 0
        rates[flows[done]] = (weight[flows] * least)[done]
        bottleneck[flows[done]] = link[done]
        gone = np.repeat(done, lengths)
        spent = np.bincount(links[gone], np.repeat((weight[flows] * least)[done], lengths[done]), len(room))
        room = np.maximum(room - spent, 0.0)
        flows, lengths, links = flows[~done], lengths[~done], links[~gone]
    return Rates(rates, bottleneck)


def _settled(level: Reals, lengths: Integers, links: Integers) -> tuple[Reals, Integers]:
    """For each flow: the lowest level on its way, and the link that holds all its flows there, or -1 if none does yet.

    A link does when none of its flows is held lower elsewhere.  The levels of other links only rise as flows are
    settled, so nothing that comes later can hold these flows lower.
    """
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    here = level[links]
    least = np.minimum.reduceat(here, starts)
    lower_elsewhere = np.repeat(least, lengths) < here * (1 - _SAME)
    waits = np.bincount(links[lower_elsewhere], minlength=len(level)) > 0
    return least, np.maximum.reduceat(np.where(waits[links], -1, links), starts)


def _check(paths: Paths, capacity: Reals, weight: Reals) -> None:
    def refuse(what: str, wrong: NDArray[np.bool_]) -> None:
        if wrong.any():
            raise ValueError(f"{what} (at {int(np.flatnonzero(wrong)[0])})")

    refuse("a flow has no links", np.diff(paths.starts) < 1)
    refuse("a link does not exist", (paths.links < 0) | (paths.links >= len(capacity)))
    refuse("a capacity is negative", ~(capacity >= 0))
    refuse("a weight is not positive", ~(weight > 0))
