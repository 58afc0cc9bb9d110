"""Stragglers: the rank that is late, always or now and then, by how much, and its cost to the others.

Durations cannot tell a long step's cause from its victims: a rank that waits for a late one is as long in the
collective as the late rank is in its products.  Moments of arrival on one clock can.

A disturbed rank is late in hundreds of steps, one after another, so single steps are not independent; long stretches
are.  A rank is called late only if it is notably late in most stretches, or if it costs the others notably more than
any other rank does in most series.
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
from collbench.commands.step.work import SEQUENTIAL, Step
from collbench.results import Result
from collbench.results.facts import PACED
from collbench.stats import Estimate
from collbench.units import format_seconds

NOTABLE = 0.05  # of a step: a rank that costs less is not worth a search
ERROR = 0.01  # probability of naming a rank where none is late, all ranks together
STRETCH = 0.05  # seconds that a stretch lasts at least: ten times what a scheduler gives a process at once
STRETCHES = 24  # the goal: fewer than 9 cannot decide about two ranks, fewer than 14 not about 64
_REMEMBERED = 2.0  # autocorrelation times that a stretch lasts
_MOST = 2 / 3  # of the stretches, and of the series, in which a rank must be notably late

Floats = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]


@dataclass(frozen=True)
class StepArrays:
    """All steps of one row, series after series: arrays by rank and step, in seconds."""

    slices: tuple[slice, ...]  # the steps of every series
    seconds: Floats  # by step: from the last rank's end of the step before to the last rank's end
    computing: Floats  # from a rank's end of one step to its having computed the next
    last: Places  # the rank that was the last to have computed, by step
    late: Floats  # how long after the median of the others a rank had computed; negative before it
    waited: Floats  # how long a rank had computed before the last one had
    ranks: int
    count: int  # of steps, all series together
    median: float  # seconds of a step

    @classmethod
    def of(cls, series: Sequence[Series]) -> "StepArrays":
        """Make the arrays of at least one series."""
        computed = np.concatenate([np.array(part.computed) for part in series], axis=1)
        done = np.concatenate([np.array(part.done) for part in series], axis=1)
        begun = np.concatenate([np.column_stack([part.begun, np.array(part.done)[:, :-1]]) for part in series], axis=1)
        ends = np.cumsum([part.steps for part in series]).tolist()
        last_done = done.max(axis=0)
        before = np.concatenate([[0.0], last_done[:-1]])
        starts = [0, *ends[:-1]]
        # Between two series there is a pause: the first step of each counts from its own begin.
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
        """Return the share of the steps in which a rank was the last."""
        return float((self.last == rank).mean())

    def cost(self, rank: int) -> float:
        """Return what the others wait for a rank where it is the last, the mean over them, as a share of all time."""
        waited = self.waited[:, self.last == rank].sum() / max(1, self.ranks - 1)
        return float(waited / self.seconds.sum())


def straggler_rows(results: Iterable[Result]) -> list[tuple[StepTimes, StepArrays]]:
    """Return the rows that tell who is late; none where steps were compared with each other (scaling, overlap).

    All rows must have the same number of ranks, two at least, and do one part of a step after the other.
    """
    rows = [(result, result.case.work) for result in results if isinstance(result.case.work, Step)]
    if {step.schedule for _, step in rows} != {SEQUENTIAL} or any(step.mode for _, step in rows):
        return []
    if len({result.case.ranks for result, _ in rows}) > 1:
        return []
    pairs = []
    for result, _ in rows:
        if isinstance(result, StepTimes) and result.right and result.case.ranks > 1:
            steps = StepArrays.of(result.series)
            if steps.median > 0:
                pairs.append((result, steps))
    return pairs


def scaled_arrays(row: StepTimes) -> StepArrays:
    """Return the arrays of a row that took turns with other numbers of ranks, whose series are short: by rounds.

    Ranks leave the meeting before a series one after the other, so they are taken to begin it together.
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
    """Return by how much every row of each column exceeds the median of the column's other rows; 0 if there are none.

    Against the median of all rows, of two ranks one would be half as late as it is.
    """
    ranks = len(moments)
    if ranks == 1:
        return np.zeros_like(moments)

    # The median of the others is read off the sorted column: positions behind the own one move up by one.
    order = moments.argsort(axis=0, kind="stable")
    ordered = np.take_along_axis(moments, order, axis=0)
    ranking = order.argsort(axis=0, kind="stable")
    low, high = (ranks - 2) // 2, (ranks - 1) // 2
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
    """Return parts of series that are nearly independent: as long as disturbances last, and as lateness is remembered.

    Where that leaves too few they are shorter than lateness is remembered, but last as long as disturbances do.
    """
    shortest = max(1, round(STRETCH / max(steps.median, 1e-9)))
    longest_series = max(steps.slices, key=lambda series: series.stop - series.start)
    remembered = max(memory(steps.late[rank, longest_series]) for rank in range(steps.ranks))
    desired = max(shortest, round(_REMEMBERED * remembered))
    # Too few stretches decide nothing, so there are STRETCHES if disturbances leave room for as many.
    length = max(shortest, min(desired, steps.count // STRETCHES))
    parts: list[slice] = []
    for series in steps.slices:
        parts += split(series, length)
    return parts


class Finding(Enum):
    """A sentence about a rank, or all ranks."""

    LATE = "late"
    OFTEN = "late now and then"
    CLEAR = "clear"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class RankStatistics:
    """How late one rank is by stretches and series, and what it costs."""

    rank: int
    ranks: int  # in all
    stretches: tuple[float, ...]  # its median lateness in each, over the median step
    series: tuple[float, ...]  # the same by series
    costs: tuple[float, ...]  # by series: what the others wait for it beyond the costliest other rank, as a time share
    last: float  # share of the steps in which it was the last
    cost: float  # share of the time that the others wait for it
    computing: float  # median seconds of a step

    @cached_property
    def late(self) -> Estimate:
        """Return the median lateness over the median step; there is no interval where there are too few stretches."""
        return Estimate.of_median(self.stretches, 1 - ERROR / self.ranks)

    @property
    def finding(self) -> Finding:
        """Return whether the rank is late as a rule, now and then, or not, or whether that is unclear."""
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
        """Return whether it is late, as a rule or now and then."""
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

    A rank that only one implementation lets go later than the others is not late in most stretches.
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
    """Return the verdict on the ranks of a run, by all rows that tell who is late; nothing without such rows.

    Where devices wait for the host, the rank that the host serves last is late: that is the host's order, not a
    straggler.  Implementations have steps of different lengths, so lateness is a share of a step.
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
        return [f"no straggler; rank {latest} is latest most often, by {np.median(shares):.1%} of a step"]
    worst = max(unclear, key=lambda rank: rank.late.value)
    more = f" (as may {len(unclear) - 1} more)" if len(unclear) > 1 else ""
    return [
        f"inconclusive: rank {worst.rank} may be late{more}, by {_of_step(worst.late)}; "
        "take more --steps, or end other programs"
    ]


def late_in_scaling(rows: Sequence[StepRow]) -> list[str]:
    """Return for each of these rows of a scaling who is surely late there, and what that costs; or nothing.

    A rank is named by all rows on the most ranks together, if there are as many stretches as elsewhere.
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
    """Return the ranks of a row, those that cost the others most first, judged by this row alone."""
    return sorted(straggler_test([steps]), key=lambda rank: rank.cost, reverse=True)


def signed(seconds: float) -> str:
    """Return a time that may be negative as text."""
    return f"{'-' if seconds < 0 else ''}{format_seconds(abs(seconds))}"
