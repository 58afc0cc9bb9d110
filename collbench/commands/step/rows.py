"""Rows of run files: moments of every rank in series of steps, predicted steps, and training runs."""

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
    waiting: Moment  # for the last rank to have computed
    exposed: Moment  # communication that no computing hides


@dataclass(frozen=True)
class Series:
    """Steps back to back on all ranks, which start together: moments in seconds of one clock.

    `computed` is when a rank had computed, `done` when it had all that the step communicates; both by rank and by step.
    A rank begins a step when it is done with the step before.
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
        """Return when a rank began every step."""
        return (self.begun[rank], *self.done[rank][:-1])

    def in_order(self, rank: int) -> bool:
        """Return whether the moments of a rank do not go backwards."""
        moments = zip(self.begins(rank), self.computed[rank], self.done[rank], strict=True)
        return all(begun <= computed <= done for begun, computed, done in moments)

    @cached_property
    def last_computed(self) -> tuple[float, ...]:
        """When the last rank had computed, by step."""
        return tuple(map(max, zip(*self.computed, strict=True)))

    def parts(self, rank: int) -> StepParts:
        """Return the mean parts of a step of a rank; while it waits it may be sending."""
        begun, computed, done = map(fmean, (self.begins(rank), self.computed[rank], self.done[rank]))
        # With overlap a rank may be done with its buckets before the last rank has computed.
        until = [min(last, done) for last, done in zip(self.last_computed, self.done[rank], strict=True)]
        waiting = fmean(until) - computed
        return StepParts(computed - begun, waiting, max(0.0, done - computed - waiting))


class StepTimes(Sampled, frozen=True, tag="steps"):
    """Checked steps of one case by one implementation, in series that take turns with those of others.

    A sample is the mean of a series, so that what a step leaves to the next step counts.
    """

    series: tuple[Series, ...]
    rounds: tuple[int, ...] = ()  # series in each round of an interleaved run, in order
    clock: Duration = 0.0  # seconds by which moments of different ranks may be off against each other

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
        """The parts of a step, the mean over ranks and series."""
        every = [series.parts(rank) for series in self.series for rank in range(series.ranks)]
        return StepParts(*map(fmean, zip(*every, strict=True))) if every else StepParts(math.nan, math.nan, math.nan)

    @property
    def contradiction(self) -> str:
        """A series with too many moments or too few, or in another order, or without time."""
        ranks = self.case.ranks
        for series in self.series:
            lengths = set(map(len, (*series.computed, *series.done)))
            if not len(series.begun) == len(series.computed) == len(series.done) == ranks or len(lengths) != 1:
                return f"a series that does not hold as many moments of each of {counted(ranks, 'rank')}"
            if 0 in lengths or not all(series.in_order(rank) for rank in range(ranks)):
                return "a series whose moments go backwards, or that has none"
        if self.rounds and (min(self.rounds) < 1 or sum(self.rounds) != len(self.series)):
            return "rounds that are not those of its series"
        if not all(FASTEST < seconds < SLOWEST for seconds in self.times):
            return "a time that is none: zero, negative, or beyond 1e-15 to 1e9 s"
        return ""

    def joined(self, results: Sequence[Self]) -> Self:
        """Return all rounds of one implementation as one result; this is the last round."""
        return replace(
            self,
            series=tuple(chain.from_iterable(result.series for result in results)),
            rounds=tuple(len(result.series) for result in results),
            scheduling=Scheduling.joined((result.scheduling, len(result.times)) for result in results),
        )


class StepPrediction(FromModel, Timed, frozen=True, tag="predicted-steps"):
    """The expected seconds of a step by the model, and the band in which nine of ten should lie."""

    parts: StepParts
    low: Seconds
    high: Seconds
    algorithm: str = ""  # that the library would choose
    protocol: str = ""
    platform: str = "model"

    @property
    def typical(self) -> float:
        """All parts together."""
        return sum(self.parts)


StepRow = StepTimes | StepPrediction
"""A step with a time, measured or predicted."""


class LossPoint(NamedTuple):
    """The loss of weights that all ranks shared."""

    batches: Count  # that went into them, of all ranks
    seconds: Moment  # after the start
    loss: float  # on samples that no rank was trained with


class Trained(CaseResult, frozen=True, tag="training"):
    """One checked training run; the implementation is its synchronisation strategy."""

    platform: str
    points: tuple[LossPoint, ...]  # from the first weights to the last
    seconds: Duration  # until the last update
    steps: tuple[Count, ...]  # of every rank, those that went into the weights
    computing: tuple[Duration, ...]  # seconds of every rank, for those steps
    age: float = 0.0  # mean staleness of a gradient: updates between reading the weights and changing them

    @property
    def contradiction(self) -> str:
        """A run without time, or points that go backwards."""
        if self.points and not self.seconds > FASTEST:
            return "a time that is none: a training run without any"
        for before, after in pairwise(self.points):
            if after.seconds < before.seconds or after.batches < before.batches:
                return "points of a training run that go backwards"
        return ""

    @property
    def right(self) -> bool:
        """Whether it has figures, and passed its check."""
        return bool(self.points) and not self.mismatch

    @property
    def rate(self) -> float:
        """Samples per second that were trained with, by all ranks together."""
        return sum(self.steps) * job_of(self.case).batch / self.seconds

    @property
    def least(self) -> float:
        """The lowest loss at any point; infinite where no loss is a number."""
        return min((point.loss for point in self.points if not math.isnan(point.loss)), default=math.inf)

    def reached(self, target: float) -> LossPoint | None:
        """Return where the loss is first as low as *target*, on a line between two points; None if it never is."""
        if self.points and self.points[0].loss <= target:
            return self.points[0]
        for before, after in pairwise(self.points):
            if before.loss > target >= after.loss:
                # Losses of noisy samples go up and down: the first crossing counts.
                share = (before.loss - target) / (before.loss - after.loss)
                batches = before.batches + share * (after.batches - before.batches)
                return LossPoint(round(batches), before.seconds + share * (after.seconds - before.seconds), target)
        return None
