"""Whether a rank is late, as a rule or now and then: by more than chance, by more than a little, and throughout.

A rank that something else disturbs for a while is late in every step of it, hundreds one behind the other, and steps
are no independent witnesses.  Whole stretches are: a rank is accused only if it is notably late in most of them, or if
it costs the others notably more than any other rank does in most series.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from collbench.analysis.bootstrap import memory
from collbench.analysis.jitter.lateness import Floats, Steps, parts_of
from collbench.stats import median_interval

NOTABLE = 0.05  # of a step: what costs less is not worth a search
DOUBT = 0.01  # of accusing anybody where nobody is late, all ranks together
STRETCH = 0.05  # seconds at least: ten times what a scheduler gives a process at once
WANTED = 24  # stretches: with less than nine nothing is sure of two ranks, with less than 14 nothing of 64
_REMEMBERED = 2.0  # autocorrelation times that a stretch lasts
_MOST = 2 / 3  # of the stretches, and of the series: where a rank must be notably late to be called late throughout


class Finding(Enum):
    """What is said of a rank, or of all of them."""

    LATE = "late"
    OFTEN = "late now and then"
    CLEAR = "clear"
    UNCLEAR = "unclear"


_GRAVEST = Finding.LATE, Finding.OFTEN, Finding.UNCLEAR, Finding.CLEAR


@dataclass(frozen=True)
class Testimony:
    """What stretches and series say of one rank."""

    rank: int
    ranks: int  # in all
    stretches: tuple[float, ...]  # its median lateness in each, in steps of usual length
    series: tuple[float, ...]  # the same
    costs: tuple[float, ...]  # what more the others wait for it than for any other, by series, as a share of the time

    @property
    def late(self) -> float:
        """How late it is in the median."""
        return float(np.median(self.stretches))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Of the median of the stretches; without an end where they are too few."""
        return self._interval(self.stretches)

    def _interval(self, values: Sequence[float]) -> tuple[float, float]:
        return median_interval(values, 1 - DOUBT / self.ranks)

    @property
    def finding(self) -> Finding:
        """Late as a rule or now and then, not late, or nobody can tell."""
        low, high = self.interval
        if low > NOTABLE and _mostly(self.stretches) and _mostly(self.series):
            return Finding.LATE
        if self._interval(self.costs)[0] > NOTABLE and _mostly(self.costs):
            return Finding.OFTEN
        return Finding.CLEAR if high < NOTABLE else Finding.UNCLEAR


@dataclass(frozen=True)
class Verdict:
    """On all ranks."""

    testimonies: tuple[Testimony, ...]

    def ranks(self, finding: Finding) -> list[int]:
        """Those of whom that is said."""
        return [one.rank for one in self.testimonies if one.finding is finding]

    @property
    def finding(self) -> Finding:
        """Late if any rank is, clear if every one is."""
        return next(one for one in _GRAVEST if self.ranks(one))


def verdict(rows: Sequence[Steps]) -> Verdict:
    """On the ranks of a run, by the rows of all its implementations, which computed the same in turn.

    A rank that only one of them lets go later than the others is not late in most stretches.
    """
    return Verdict(tuple(_testimony(rows, rank) for rank in range(rows[0].ranks)))


def _testimony(rows: Sequence[Steps], rank: int) -> Testimony:
    shares = [(steps, steps.late[rank] / steps.typical) for steps in rows]
    of_stretches = (median for steps, late in shares for median in _medians(late, stretches(steps)))
    of_series = (median for steps, late in shares for median in _medians(late, steps.slices))
    costs = (cost for steps in rows for cost in _costs(steps, rank))
    return Testimony(rank, rows[0].ranks, tuple(of_stretches), tuple(of_series), tuple(costs))


def _costs(steps: Steps, rank: int) -> Iterator[float]:
    """By series, what the others wait where that rank is the last, less where the costliest of the others is."""
    for own in steps.slices:
        waited = np.bincount(steps.last[own], steps.waited[:, own].sum(axis=0), steps.ranks)
        yield float(waited[rank] - np.delete(waited, rank).max()) / (steps.ranks - 1) / float(steps.seconds[own].sum())


def _mostly(values: Sequence[float]) -> bool:
    """Whether most are notable."""
    return bool((np.array(values) > NOTABLE).mean() >= _MOST)


def _medians(values: Floats, places: Sequence[slice]) -> tuple[float, ...]:
    return tuple(float(np.median(values[place])) for place in places)


def stretches(steps: Steps) -> list[slice]:
    """Parts of series that know little of each other: each as long as disturbances last, and as lateness is remembered.

    If that leaves too few, they are shorter than is remembered, as long as they last as disturbances do.
    """
    shortest = max(1, round(STRETCH / max(steps.typical, 1e-9)))
    wanted = max(shortest, round(_REMEMBERED * _memory(steps)))
    length = max(shortest, min(wanted, steps.count // WANTED))
    return [part for own in steps.slices for part in parts_of(own, length)]


def _memory(steps: Steps) -> float:
    """For how many steps the lateness of a rank lasts, of the one that remembers longest; in the longest series."""
    longest = max(steps.slices, key=lambda own: own.stop - own.start)
    return max(memory(steps.late[rank, longest]) for rank in range(steps.ranks))
