"""What a case with a step yields: when every rank had computed and when it was done, step by step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Self

from collbench.flaws import Flaw
from collbench.observed import Observed, Timed, joined_scheduling
from collbench.outcome import Outcome

COMPUTED, COMMUNICATED = "computed", "communicated"
"""What a rank does in a step; the one may go on while the other does."""


@dataclass(frozen=True)
class Activity:
    """What a rank did for a bucket of a step that was looked at closely; seconds since the step's first moment."""

    rank: int
    what: str  # COMPUTED or COMMUNICATED
    bucket: int
    start: float
    seconds: float


@dataclass(frozen=True)
class Series:
    """Steps back to back on all ranks, from a meeting: moments in seconds of one clock.

    `computed` is when a rank had computed, `done` when it had all that the step hands round; both by rank and by step.
    A rank begins a step when it is done with the one before.
    """

    begun: tuple[float, ...]  # by rank: the first step
    computed: tuple[tuple[float, ...], ...]
    done: tuple[tuple[float, ...], ...]

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self.done[0])

    @property
    def ranks(self) -> int:
        """How many took part."""
        return len(self.done)

    @property
    def seconds(self) -> float:
        """Of a step, the mean: from the first rank's first moment to the last rank's last."""
        return (max(own[-1] for own in self.done) - min(self.begun)) / self.steps

    def begins(self, rank: int) -> tuple[float, ...]:
        """When a rank began every step."""
        return (self.begun[rank], *self.done[rank][:-1])

    @cached_property
    def last_computed(self) -> tuple[float, ...]:
        """When the last rank had computed, by step."""
        return tuple(map(max, zip(*self.computed, strict=True)))

    def computing(self, rank: int) -> float:
        """Seconds of a step in which a rank computes, the mean."""
        return _between(self.begins(rank), self.computed[rank])

    def waiting(self, rank: int) -> float:
        """Seconds of a step in which a rank has computed and another has not, the mean; while it may be sending."""
        until = [min(last, done) for last, done in zip(self.last_computed, self.done[rank], strict=True)]
        return _between(self.computed[rank], until)

    def exposed(self, rank: int) -> float:
        """Seconds of a step in which a rank still communicates and nobody computes any more, the mean."""
        return max(0.0, _between(self.computed[rank], self.done[rank]) - self.waiting(rank))


PartOf = Callable[[Series, int], float]


def _between(starts: Sequence[float], ends: Sequence[float]) -> float:
    return fmean(ends) - fmean(starts)


@dataclass(frozen=True)
class StepTimes(Observed):
    """Checked steps of one case by one implementation, in series that take turns with those of others.

    A sample is the mean of a series, so that what one step hands on to the next counts.
    """

    series: tuple[Series, ...]
    mismatch: Flaw | None = None  # what is wrong with it
    library: str = ""  # as in a Measurement
    rounds: tuple[int, ...] = field(default=())  # series in each round of an interleaved run, in order
    activities: tuple[Activity, ...] = ()  # of one more step, of those looked at the one of median length
    clock: float = 0.0  # seconds by which moments of different ranks may be off against each other

    @property
    def wrong(self) -> str:
        """What the check says against it."""
        return str(self.mismatch or "")

    @property
    def right(self) -> bool:
        """Whether it was timed, which what is wrong is not."""
        return bool(self.series) and not self.mismatch

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of a step in every series."""
        return tuple(series.seconds for series in self.series)

    @property
    def seconds(self) -> tuple[float, ...]:
        """The same: what a round has spent is its sum times the launches."""
        return self.times

    @property
    def launches(self) -> int:
        """Steps in a series."""
        return self.series[0].steps if self.series else 1

    def computing(self) -> float:
        """Seconds of a step in which a rank computes: the mean over ranks and series."""
        return self._mean(Series.computing)

    def waiting(self) -> float:
        """Seconds of a step in which a rank waits for others to have computed, likewise."""
        return self._mean(Series.waiting)

    def exposed(self) -> float:
        """Seconds of a step of communication that nobody's computing hides, likewise."""
        return self._mean(Series.exposed)

    def _mean(self, part: PartOf) -> float:
        means = [part(series, rank) for series in self.series for rank in range(series.ranks)]
        return fmean(means) if means else math.nan

    def joined(self, results: Sequence[Self]) -> Self:
        """All rounds of one implementation in one; this is the last."""
        series = tuple(one for result in results for one in result.series)
        activities = next((result.activities for result in results if result.activities), ())
        rounds = tuple(len(result.series) for result in results)
        scheduling = joined_scheduling(results)
        return replace(self, series=series, rounds=rounds, activities=activities, scheduling=scheduling)


@dataclass(frozen=True)
class StepPrediction(Timed):
    """What a step should take by the model, and the band in which nine of ten should lie; all in seconds."""

    parts: tuple[float, float, float]  # computing, waiting for the slowest rank, exposed communication
    low: float
    high: float
    algorithm: str = ""  # that the library would choose
    protocol: str = ""
    platform: str = "model"
    usual = Outcome.PREDICTED

    @property
    def typical(self) -> float:
        """All parts together."""
        return sum(self.parts)

    @property
    def band(self) -> tuple[float, float]:
        """Where nine of ten should lie."""
        return self.low, self.high

    def computing(self) -> float:
        """As in StepTimes."""
        return self.parts[0]

    def waiting(self) -> float:
        """As in StepTimes."""
        return self.parts[1]

    def exposed(self) -> float:
        """As in StepTimes."""
        return self.parts[2]


StepRow = StepTimes | StepPrediction
"""A step with a time, measured or predicted."""
