"""Steps as arrays: when every rank had computed, against the others, on one clock.

Durations cannot tell the culprit of a step from its victims: whoever waits for a late rank is as long in the collective
as the late rank is in its products.  Arrivals can.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from collbench.cases import SEQUENTIAL
from collbench.results import Result, Series, StepTimes

Floats = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]


@dataclass(frozen=True)
class Steps:
    """All steps of one row, series behind series; arrays by rank and step, in seconds."""

    begun: Floats
    computed: Floats
    done: Floats
    lengths: tuple[int, ...]  # steps of every series

    @classmethod
    def of(cls, series: Sequence[Series]) -> "Steps":
        """At least one series."""
        computed, done = (
            np.concatenate([np.array(getattr(one, name)) for one in series], axis=1) for name in ("computed", "done")
        )
        begun = np.concatenate([np.column_stack([one.begun, np.array(one.done)[:, :-1]]) for one in series], axis=1)
        return cls(begun, computed, done, tuple(one.steps for one in series))

    @property
    def ranks(self) -> int:
        """How many took part."""
        return len(self.computed)

    @property
    def count(self) -> int:
        """Steps, all series together."""
        return sum(self.lengths)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where every series lies."""
        ends = np.cumsum(self.lengths).tolist()
        return tuple(slice(end - length, end) for end, length in zip(ends, self.lengths, strict=True))

    @cached_property
    def seconds(self) -> Floats:
        """Of every step: from the last rank's leaving of the one before to the last rank's leaving of this one."""
        last = self.done.max(axis=0)
        first = [
            np.concatenate([[self.begun[:, own.start].min()], last[own.start : own.stop - 1]]) for own in self.slices
        ]
        seconds: Floats = last - np.concatenate(first)
        return seconds

    @cached_property
    def typical(self) -> float:
        """Seconds of a step, the median."""
        return float(np.median(self.seconds))

    @cached_property
    def computing(self) -> Floats:
        """From a rank's leaving of one step to its having computed the next."""
        return self.computed - self.begun

    @cached_property
    def last(self) -> Places:
        """Which rank was the last to have computed, by step."""
        last: Places = self.computed.argmax(axis=0)
        return last

    @cached_property
    def late(self) -> Floats:
        """How long after the median of the others a rank had computed; negative before it."""
        return behind_others(self.computed)

    @cached_property
    def waited(self) -> Floats:
        """How long a rank had computed before the last one had."""
        waited: Floats = self.computed.max(axis=0) - self.computed
        return waited

    def last_share(self, rank: int) -> float:
        """Of the steps, in which that rank was the last."""
        return float((self.last == rank).mean())

    def cost(self, rank: int) -> float:
        """Of the time of all steps, what the others wait for that rank where it is the last: the mean over them."""
        waited = self.waited[:, self.last == rank].sum() / max(1, self.ranks - 1)
        return float(waited / self.seconds.sum())


def witnesses(results: Iterable[Result]) -> list[tuple[StepTimes, Steps]]:
    """The rows that say who is late; none where steps were held against each other, as in a scaling or in overlap.

    Those have all one number of ranks, of which there are two at least, and one part of a step after the other.
    """
    rows = [(result, result.case.step) for result in results if result.case.step]
    if {step.schedule for _, step in rows} != {SEQUENTIAL} or any(step.mode for _, step in rows):
        return []
    if len({result.case.ranks for result, _ in rows}) > 1:
        return []
    timed = [result for result, _ in rows if isinstance(result, StepTimes) and result.right and result.case.ranks > 1]
    found = ((result, Steps.of(result.series)) for result in timed)
    return [(result, steps) for result, steps in found if steps.typical > 0]


def behind_others(moments: Floats) -> Floats:
    """By how much every row of each column exceeds the median of the column's other rows; 0 if there are none.

    Against the median of all, which it is in itself, a rank of two would be half as late as it is.
    """
    ranks = len(moments)
    if ranks == 1:
        return np.zeros_like(moments)
    order = moments.argsort(axis=0, kind="stable")
    ordered = np.take_along_axis(moments, order, axis=0)
    place = order.argsort(axis=0, kind="stable")
    low, high = (ranks - 2) // 2, (ranks - 1) // 2
    below, above = (np.take_along_axis(ordered, at + (at >= place), axis=0) for at in (low, high))
    behind: Floats = moments - (below + above) / 2
    return behind


def parts_of(steps: slice, length: int) -> Iterator[slice]:
    """One behind the other, all about alike and about that long; at least one."""
    total = steps.stop - steps.start
    count = max(1, round(total / length))
    for part in range(count):
        yield slice(steps.start + total * part // count, steps.start + total * (part + 1) // count)
