"""Stragglers: late ranks, how often and how late they are, and their cost.

Durations cannot tell a late rank from its victims: both take equally long, one in products and the others in the
collective.  Arrival times on one clock can.

A disturbed rank is late in hundreds of consecutive steps, so single steps are not independent, but long stretches are.
A rank counts as late only if it is notably late in most stretches, or if in most series it costs the others notably
more than any other rank does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from collbench.analysis.bootstrap import memory
from collbench.commands.step.rows import Series, StepRow, StepTimes
from collbench.commands.step.work import SEQUENTIAL, Step, step_of
from collbench.results import Result
from collbench.results.facts import PACED
from collbench.stats import Estimate

NOTABLE = 0.05  # of a step: a smaller cost is not worth a search
ERROR = 0.01  # probability of naming any rank when none is late
STRETCH = 0.05  # minimum seconds of a stretch: ten time slices of the scheduler
STRETCHES = 24  # the goal: deciding needs at least 9 for two ranks, and 14 for 64
_REMEMBERED = 2.0  # autocorrelation times in a stretch
_MOST = 2 / 3  # share of stretches and of series in which a late rank must be notably late

Floats = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]


@dataclass(frozen=True)
class StepArrays:
    """All steps of one row with series concatenated: arrays by rank and step, in seconds."""

    slices: tuple[slice, ...]  # the steps of every series
    seconds: Floats  # by step: from the last rank's end of the step before to the last rank's end
    computing: Floats  # from a rank's end of one step to its having computed the next
    last: Places  # the rank that finished computing last, by step
    late: Floats  # from the median end of computing of the other ranks to that of this rank; negative if earlier
    waited: Floats  # from a rank's end of computing to that of the last rank
    ranks: int
    count: int  # of steps, all series together
    median: float  # seconds of a step

    @classmethod
    def of(cls, series: Sequence[Series]) -> "StepArrays":
        """Build the arrays from at least one series."""
        computed = np.concatenate([np.array(part.computed) for part in series], axis=1)
        done = np.concatenate([np.array(part.done) for part in series], axis=1)
        begun = np.concatenate([np.column_stack([part.begun, np.array(part.done)[:, :-1]]) for part in series], axis=1)
        ends = np.cumsum([part.steps for part in series]).tolist()
        last_done = done.max(axis=0)
        before = np.concatenate([[0.0], last_done[:-1]])
        starts = [0, *ends[:-1]]
        # Series are separated by pauses, so the first step of each starts at its own beginning.
        before[starts] = begun[:, starts].min(axis=0)
        return cls(
            slices=tuple(slice(start, end) for start, end in zip(starts, ends, strict=True)),
            seconds=last_done - before,
            computing=computed - begun,
            last=computed.argmax(axis=0),
            late=after_others(computed),
            waited=computed.max(axis=0) - computed,
            ranks=len(computed),
            count=len(last_done),
            median=float(np.median(last_done - before)),
        )

    def last_share(self, rank: int) -> float:
        """Return the share of steps in which a rank was last."""
        return float((self.last == rank).mean())

    def cost(self, rank: int) -> float:
        """Return the mean time that another rank waits for *rank* where it is last, as a share of all time."""
        waited = self.waited[:, self.last == rank].sum() / max(1, self.ranks - 1)
        return float(waited / self.seconds.sum())


def straggler_rows(results: Iterable[Result]) -> list[tuple[StepTimes, StepArrays]]:
    """Return the rows of a straggler test, with arrays; none for runs of scaling or overlap.

    All rows must have the same number of ranks, at least two, and sequential steps.
    """
    rows = [result for result in results if isinstance(result.case.work, Step)]
    kinds = {(step_of(result.case).schedule, step_of(result.case).mode, result.case.ranks) for result in rows}
    if len(kinds) != 1 or kinds.pop()[:2] != (SEQUENTIAL, ""):
        return []
    right = [result for result in rows if isinstance(result, StepTimes) and result.right and result.case.ranks > 1]
    pairs = [(result, StepArrays.of(result.series)) for result in right]
    return [(result, steps) for result, steps in pairs if steps.median > 0]


def scaled_arrays(row: StepTimes) -> StepArrays:
    """Return the arrays of a scaling row by rounds, as its series are short.

    Ranks leave the barrier before a series one by one, so they are assumed to begin it together.
    """
    together = []
    for series in row.series:
        pairs = zip(series.begun, series.computed, strict=True)
        computed = tuple((first - begun + min(series.begun), *more) for begun, (first, *more) in pairs)
        together.append(replace(series, begun=(min(series.begun),) * series.ranks, computed=computed))
    steps = StepArrays.of(together)
    ends = np.cumsum([0, *(row.rounds or (1,) * len(row.series))])
    rounds = [slice(steps.slices[start].start, steps.slices[end - 1].stop) for start, end in pairwise(ends)]
    return replace(steps, slices=tuple(rounds))


def after_others(moments: Floats) -> Floats:
    """Return by how much each value exceeds the median of its column's other rows; there are at least two rows.

    The median of all rows would halve the lateness of one of two ranks.
    """
    # The median of the others comes from the sorted column, with later positions shifted by one.
    order = moments.argsort(axis=0, kind="stable")
    ordered = np.take_along_axis(moments, order, axis=0)
    ranking = order.argsort(axis=0, kind="stable")
    low, high = (len(moments) - 2) // 2, (len(moments) - 1) // 2
    below, above = (np.take_along_axis(ordered, at + (at >= ranking), axis=0) for at in (low, high))
    after: Floats = moments - (below + above) / 2
    return after


def split(steps: slice, length: int) -> Iterator[slice]:
    """Yield consecutive parts of about equal length, each about *length* long; at least one."""
    total = steps.stop - steps.start
    count = max(1, round(total / length))
    for part in range(count):
        yield slice(steps.start + total * part // count, steps.start + total * (part + 1) // count)


def stretches(steps: StepArrays) -> list[slice]:
    """Return nearly independent parts of series: at least STRETCH long, and as long as lateness is correlated.

    If that gives fewer than STRETCHES, parts may be shorter than the correlation, but never than STRETCH.
    """
    shortest = max(1, round(STRETCH / max(steps.median, 1e-9)))
    longest_series = max(steps.slices, key=lambda series: series.stop - series.start)
    remembered = max(memory(steps.late[rank, longest_series]) for rank in range(steps.ranks))
    desired = max(shortest, round(_REMEMBERED * remembered))
    # Too few stretches decide nothing, so aim at STRETCHES.
    length = max(shortest, min(desired, steps.count // STRETCHES))
    return [part for series in steps.slices for part in split(series, length)]


class Finding(Enum):
    """The verdict on a rank."""

    LATE = "late"
    OFTEN = "late now and then"
    CLEAR = "clear"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class RankStatistics:
    """Lateness and cost of one rank, by stretches and series."""

    rank: int
    ranks: int  # in all
    stretches: tuple[float, ...]  # by stretch: median lateness over the median step
    series: tuple[float, ...]  # the same by series
    costs: tuple[float, ...]  # by series: share of time lost to it, minus that of the next worst rank
    last: float  # share of the steps in which it was last
    cost: float  # share of the time that the others wait for it
    computing: float  # median seconds of a step

    @cached_property
    def late(self) -> Estimate:
        """Return the median lateness over the median step; too few stretches give no interval."""
        return Estimate.of_median(self.stretches, 1 - ERROR / self.ranks)

    @property
    def finding(self) -> Finding:
        """Return whether the rank is late in most stretches, now and then, or not, or whether that is unclear."""
        stretches, series, costs = (
            bool((np.array(values) > NOTABLE).mean() >= _MOST) for values in (self.stretches, self.series, self.costs)
        )
        if self.late.surely_above(NOTABLE) and stretches and series:
            return Finding.LATE
        if costs and Estimate.of_median(self.costs, 1 - ERROR / self.ranks).surely_above(NOTABLE):
            return Finding.OFTEN
        return Finding.CLEAR if self.late.surely_below(NOTABLE) else Finding.UNCLEAR

    @property
    def is_straggler(self) -> bool:
        """Return whether the rank is late, in most stretches or now and then."""
        return self.finding in (Finding.LATE, Finding.OFTEN)

    @property
    def in_words(self) -> str:
        """Return a sentence on a rank that is late."""
        return (
            f"rank {self.rank} is {self.finding.value}: last in {self.last:.0%} of the steps, "
            f"by {_of_step(self.late)}; the others wait for it {self.cost:.0%} of the time"
        )


def straggler_test(rows: Sequence[StepArrays]) -> list[RankStatistics]:
    """Judge every rank by the rows of all implementations of a run, which computed the same work in turn.

    A rank that is late with only one implementation is not late in most stretches.
    """
    ranks = rows[0].ranks
    parts = [stretches(steps) for steps in rows]
    statistics = []
    for rank in range(ranks):
        by_stretch: list[float] = []
        by_series: list[float] = []
        costs: list[float] = []
        for steps, of_steps in zip(rows, parts, strict=True):
            late = steps.late[rank] / steps.median
            by_stretch += [float(np.median(late[stretch])) for stretch in of_steps]
            by_series += [float(np.median(late[series])) for series in steps.slices]
            costs += [_excess_cost(steps, rank, series) for series in steps.slices]
        shares = [(steps.last_share(rank), steps.cost(rank), np.median(steps.computing[rank])) for steps in rows]
        means = np.mean(shares, axis=0).tolist()
        statistics.append(RankStatistics(rank, ranks, tuple(by_stretch), tuple(by_series), tuple(costs), *means))
    return statistics


def _excess_cost(steps: StepArrays, rank: int, series: slice) -> float:
    """Return the share of time lost to the rank, minus that of the next worst rank."""
    waited = np.bincount(steps.last[series], steps.waited[:, series].sum(axis=0), steps.ranks)
    excess = float(waited[rank] - np.delete(waited, rank).max())
    return excess / (steps.ranks - 1) / float(steps.seconds[series].sum())


def verdicts(results: Iterable[Result]) -> list[str]:
    """Return the verdict on the ranks of a run, from all rows of a straggler test; nothing without such rows.

    Rows in which devices waited for the host are ignored: the rank that the host serves last is not a straggler.
    Step lengths differ between implementations, so lateness is a share of a step.
    """
    measured = straggler_rows(results)
    rows = [steps for result, steps in measured if not result.note.paced]
    if not rows:
        return [f"inconclusive: {PACED}"] if measured else []
    statistics = straggler_test(rows)
    if late := [rank.in_words for rank in statistics if rank.is_straggler]:
        return ["; ".join(late)]
    unclear = [rank for rank in statistics if rank.finding is Finding.UNCLEAR]
    if not unclear:
        latest = max(statistics, key=lambda rank: rank.last).rank
        shares = np.concatenate([steps.late[latest, steps.last == latest] / steps.median for steps in rows])
        return [f"no straggler; rank {latest} is last most often, by {np.median(shares):.1%} of a step"]
    worst = max(unclear, key=lambda rank: rank.late.value)
    more = f" (as may {len(unclear) - 1} more)" if len(unclear) > 1 else ""
    return [
        f"inconclusive: rank {worst.rank} may be late{more}, by {_of_step(worst.late)}; "
        "take more --steps, or end other programs"
    ]


def late_in_scaling(rows: Sequence[StepRow]) -> list[str]:
    """Return for each scaling row a line on its late ranks and their cost, or "".

    All rows on the most ranks together must call a rank late, in at least STRETCHES stretches.
    """
    most = max((row.case.ranks for row in rows), default=1)
    arrays: dict[int, StepArrays] = {}
    for place, row in enumerate(rows):
        if isinstance(row, StepTimes) and row.case.ranks == most > 1 and not row.note.paced:
            arrays[place] = scaled_arrays(row)
    together = straggler_test(list(arrays.values())) if arrays else []
    late = {rank.rank for rank in together if rank.is_straggler and len(rank.stretches) >= STRETCHES}
    lines = [""] * len(rows)
    for place, steps in arrays.items() if late else ():
        found = [rank for rank in straggler_test([steps]) if rank.is_straggler and rank.rank in late]
        lines[place] = "; ".join(rank.in_words for rank in found)
    return lines


def _of_step(late: Estimate) -> str:
    return f"{late.text('{:z.1%}'.format)} of a step"


def costliest(steps: StepArrays) -> list[RankStatistics]:
    """Return the ranks of a row judged by this row alone, the costliest first."""
    return sorted(straggler_test([steps]), key=lambda rank: rank.cost, reverse=True)
