"""Max-min fair rates of many flows over many links, as in a network that treats all flows alike.

Progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): the rates of all flows grow together
until a link is full; the flows through it stop there and the others grow on.  Done literally that is one round for each
level.  Here every link that is the bottleneck of all its flows is settled in the same round (Ros-Giralt et al., On the
Bottleneck Structure of Congestion-Controlled Networks, 2019), which takes a few dozen rounds whatever the size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_SAME = 1e-9  # relative difference of two levels that count as equal: they are sums in a different order


@dataclass(frozen=True)
class Paths:
    """The links that each flow takes: those of flow f are links[starts[f] : starts[f + 1]]."""

    starts: Integers  # one more than there are flows
    links: Integers

    @classmethod
    def of(cls, columns: Sequence[Integers]) -> "Paths":
        """Build paths from one array for each hop, with an entry for each flow; -1 where a flow has no such hop."""
        table = np.stack(columns, axis=1)
        taken = table >= 0
        starts = np.concatenate([[0], np.cumsum(taken.sum(axis=1))])
        return cls(starts.astype(np.int64), table[taken])

    @property
    def count(self) -> int:
        """Number of flows."""
        return len(self.starts) - 1

    def owners(self) -> Integers:
        """Return the flow that each entry of `links` belongs to."""
        return np.repeat(np.arange(self.count), np.diff(self.starts))


@dataclass(frozen=True)
class Rates:
    """The rate of each flow, and the link that allows it no more."""

    rates: Reals  # in the unit of the capacities
    bottleneck: Integers  # a link for each flow


def max_min(paths: Paths, capacity: Reals) -> Rates:
    """Return the only allocation in which no flow could get more without taking from a flow that has less.

    Raises:
        ValueError: A flow has no links, a link does not exist, or a capacity is negative or NaN.

    """
    room = np.array(capacity, dtype=np.float64)
    _check(paths, room)
    rates, bottleneck = np.zeros(paths.count), np.full(paths.count, -1)
    flows, lengths, links = np.arange(paths.count), np.diff(paths.starts), paths.links
    while len(flows):
        demand = np.bincount(links, minlength=len(room))
        level = np.divide(room, demand, out=np.full(len(room), np.inf), where=demand > 0)
        least, link = _settled(level, lengths, links)
        done = link >= 0
        rates[flows[done]] = least[done]
        bottleneck[flows[done]] = link[done]
        gone = np.repeat(done, lengths)
        spent = np.bincount(links[gone], np.repeat(least[done], lengths[done]), len(room))
        room = np.maximum(room - spent, 0.0)
        flows, lengths, links = flows[~done], lengths[~done], links[~gone]
    return Rates(rates, bottleneck)


def _settled(level: Reals, lengths: Integers, links: Integers) -> tuple[Reals, Integers]:
    """Return for each flow the lowest level on its path, and the link that holds all its flows there or -1.

    A link does so when none of its flows is held lower elsewhere.  The levels of other links only rise as flows are
    settled, so nothing that comes later can hold these flows lower.
    """
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    here = level[links]
    least = np.minimum.reduceat(here, starts)
    lower_elsewhere = np.repeat(least, lengths) < here * (1 - _SAME)
    waits = np.bincount(links[lower_elsewhere], minlength=len(level)) > 0
    return least, np.maximum.reduceat(np.where(waits[links], -1, links), starts)


def _check(paths: Paths, capacity: Reals) -> None:
    if (np.diff(paths.starts) < 1).any():
        raise ValueError("a flow has no links")
    if ((paths.links < 0) | (paths.links >= len(capacity))).any():
        raise ValueError("a link does not exist")
    if not (capacity >= 0).all():
        raise ValueError("a capacity is negative")
