"""Rows of run files: measured steps, predicted steps, and training runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from statistics import fmean
from typing import NamedTuple, Self

from collbench.commands.step.work import job_of
from collbench.results.base import CaseResult, FromModel, Sampled, Timed
from collbench.results.disturbed import Scheduling
from collbench.units import FASTEST, SLOWEST, Count, Duration, Moment, Seconds, counted


class StepParts(NamedTuple):
    """Seconds of a step."""

    computing: Moment
    waiting: Moment  # for the last rank to finish computing
    exposed: Moment  # communication not hidden by computing


@dataclass(frozen=True)
class Series:
    """Steps back to back on all ranks, which start together: moments in seconds on one clock.

    By rank and step, `computed` is the end of computing and `done` the end of communication.  A rank begins a step when
    it is done with the previous one.
    """

    begun: tuple[Moment, ...]  # by rank: the first step
    computed: tuple[tuple[Moment, ...], ...]
    done: tuple[tuple[Moment, ...], ...]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.done[0])

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.done)

    @property
    def seconds(self) -> float:
        """Mean seconds of a step: from the first rank's first moment to the last rank's last."""
        return (max(moments[-1] for moments in self.done) - min(self.begun)) / self.steps

    def begins(self, rank: int) -> tuple[float, ...]:
        """Return the moments at which a rank began its steps."""
        return (self.begun[rank], *self.done[rank][:-1])

    def in_order(self, rank: int) -> bool:
        """Return whether the moments of a rank do not go backwards."""
        moments = zip(self.begins(rank), self.computed[rank], self.done[rank], strict=True)
        return all(begun <= computed <= done for begun, computed, done in moments)

    @cached_property
    def last_computed(self) -> tuple[float, ...]:
        """When the last rank finished computing, by step."""
        return tuple(map(max, zip(*self.computed, strict=True)))

    def parts(self, rank: int) -> StepParts:
        """Return the mean parts of a step of a rank; while it waits it may be sending."""
        begun, computed, done = map(fmean, (self.begins(rank), self.computed[rank], self.done[rank]))
        # With overlap a rank may be done with its buckets before the last rank has computed.
        until = [min(last, done) for last, done in zip(self.last_computed, self.done[rank], strict=True)]
        waiting = fmean(until) - computed
        return StepParts(computed - begun, waiting, max(0.0, done - computed - waiting))


class StepTimes(Sampled, frozen=True, tag="steps"):
    """Checked steps of one case by one implementation, in series interleaved with those of others.

    A sample is the mean of a series, so that it includes delays passed from step to step.
    """

    series: tuple[Series, ...]
    rounds: tuple[int, ...] = ()  # series in each round of an interleaved run, in order
    clock: Duration = 0.0  # seconds by which the clocks of two ranks may differ

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of a step in every series."""
        return tuple(series.seconds for series in self.series)

    @property
    def launches(self) -> int:
        """Steps in a series."""
        return self.series[0].steps if self.series else 1

    @property
    def parts(self) -> StepParts:
        """The mean parts of a step over ranks and series."""
        every = [series.parts(rank) for series in self.series for rank in range(series.ranks)]
        return StepParts(*map(fmean, zip(*every, strict=True))) if every else StepParts(math.nan, math.nan, math.nan)

    @property
    def contradiction(self) -> str:
        """The first inconsistency of a series: number or order of moments, rounds, or time."""
        ranks = self.case.ranks
        for series in self.series:
            lengths = set(map(len, (*series.computed, *series.done)))
            if not len(series.begun) == len(series.computed) == len(series.done) == ranks or len(lengths) != 1:
                return f"a series without the same number of moments for each of {counted(ranks, 'rank')}"
            if 0 in lengths or not all(series.in_order(rank) for rank in range(ranks)):
                return "a series with moments that go backwards, or without moments"
        if self.rounds and (min(self.rounds) < 1 or sum(self.rounds) != len(self.series)):
            return "rounds that do not add up to its series"
        if not all(FASTEST < seconds < SLOWEST for seconds in self.times):
            return "an invalid time: zero, negative, or outside 1e-15 to 1e9 s"
        return ""

    def joined(self, results: Sequence[Self]) -> Self:
        """Return all rounds of one implementation as one result; `self` is the last round."""
        return replace(
            self,
            series=tuple(chain.from_iterable(result.series for result in results)),
            rounds=tuple(len(result.series) for result in results),
            scheduling=Scheduling.joined((result.scheduling, len(result.times)) for result in results),
        )


class StepPrediction(FromModel, Timed, frozen=True, tag="predicted-steps"):
    """The predicted seconds of a step, and the band that should hold nine of ten steps."""

    parts: StepParts
    low: Seconds
    high: Seconds
    algorithm: str = ""  # the library's expected choice
    protocol: str = ""
    platform: str = "model"

    @property
    def typical(self) -> float:
        """Seconds of a step: the sum of its parts."""
        return sum(self.parts)


StepRow = StepTimes | StepPrediction
"""A step with a time, measured or predicted."""


class LossPoint(NamedTuple):
    """A point of a loss curve: the loss of the shared weights."""

    batches: Count  # of all ranks, applied to the weights
    seconds: Moment  # after the start
    loss: float  # on held-out samples


class Trained(CaseResult, frozen=True, tag="training"):
    """One checked training run; the implementation is its synchronisation strategy."""

    platform: str
    points: tuple[LossPoint, ...]  # from the first weights to the last
    seconds: Duration  # until the last update
    steps: tuple[Count, ...]  # applied to the weights, by rank
    computing: tuple[Duration, ...]  # seconds for those steps, by rank
    age: float = 0.0  # mean staleness of a gradient: updates between reading the weights and changing them

    @property
    def contradiction(self) -> str:
        """A run without time, or with points that go backwards."""
        if self.points and not self.seconds > FASTEST:
            return "an invalid time: a training run that took no time"
        for before, after in pairwise(self.points):
            if after.seconds < before.seconds or after.batches < before.batches:
                return "points of a training run that go backwards"
        return ""

    @property
    def right(self) -> bool:
        """Whether it has loss points and passed its check."""
        return bool(self.points) and not self.mismatch

    @property
    def rate(self) -> float:
        """Training samples per second of all ranks together."""
        return sum(self.steps) * job_of(self.case).batch / self.seconds

    @property
    def least(self) -> float:
        """The lowest loss at any point; infinite if no loss is a number."""
        return min((point.loss for point in self.points if not math.isnan(point.loss)), default=math.inf)

    def reached(self, target: float) -> LossPoint | None:
        """Return the first point with loss *target*, linearly interpolated; None if the run never reaches it."""
        if self.points and self.points[0].loss <= target:
            return self.points[0]
        for before, after in pairwise(self.points):
            if before.loss > target >= after.loss:
                # Losses of noisy samples go up and down: the first crossing counts.
                share = (before.loss - target) / (before.loss - after.loss)
                batches = before.batches + share * (after.batches - before.batches)
                return LossPoint(round(batches), before.seconds + share * (after.seconds - before.seconds), target)
        return None
