"""What a case yields: checked samples, another tool's word, what a model expects, or a reason for having none."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, Self

from collbench import stats
from collbench.flaws import Flaw
from collbench.note import NO_NOTE, Note
from collbench.observed import CaseResult, Observed, Timed, joined_scheduling
from collbench.outcome import Outcome
from collbench.planned import PlannedStep
from collbench.stats import Spread
from collbench.step_times import StepPrediction, StepTimes
from collbench.tracks import LAUNCH, PARTS, PHASES, Track, mean_spent
from collbench.trained import Trained
from collbench.wires import Study


@dataclass(frozen=True)
class Measurement(Observed):
    """Checked samples of one case by one implementation: seconds per operation of the slowest rank, in order."""

    launches: int  # operations that each sample is the mean of
    seconds: tuple[float, ...]
    mismatch: Flaw | None = None  # what is wrong with it
    estimate: float | None = None  # seconds that the library itself expected of an operation
    rounds: tuple[int, ...] = ()  # samples in each round of an interleaved run, in order
    floor: float | None = None  # seconds that the ranks took meanwhile to move the fewest bytes it must move
    barrier: float | None = None  # seconds of a barrier of the ranks meanwhile, by flags: how far their cores are apart
    library: str = ""  # whose product carried it out, with its version, where the implementation's name does not say it
    errors: Study | None = None  # of its wire, found in the same run, where it is not exact
    spread: Spread | None = None  # of the medians of several starts of the ranks, each of which is a round

    @property
    def wrong(self) -> str:
        """What the check or the clock says against it."""
        return str(self.mismatch or "")

    @property
    def right(self) -> bool:
        """Whether it was timed, which what is wrong is not."""
        return bool(self.seconds) and not self.mismatch

    @property
    def times(self) -> tuple[float, ...]:
        """The samples."""
        return self.seconds

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the median: of what another start would give too, where ranks were started several times."""
        if not self.spread:
            return stats.median_interval(self.times)
        return self.spread.interval(self.typical, len(self.rounds))

    def by_round(self) -> list[tuple[float, ...]]:
        """Return the samples of every round; all of them as one where nobody took turns."""
        ends = list(accumulate(self.rounds or (len(self.seconds),), initial=0))
        return [self.seconds[first:last] for first, last in pairwise(ends)]

    def joined(self, results: Sequence[Self]) -> Self:
        """All rounds of one implementation in one; this is the last."""
        floors = [result.floor for result in results if result.floor is not None]
        barriers = [result.barrier for result in results if result.barrier is not None]
        return replace(
            self,
            seconds=tuple(sample for result in results for sample in result.seconds),
            rounds=tuple(len(result.seconds) for result in results),
            floor=median(floors) if floors else None,
            barrier=median(barriers) if barriers else None,
            scheduling=joined_scheduling(results),
        )


@dataclass(frozen=True)
class Untimed(CaseResult):
    """A case without a time, and why."""

    platform: str
    reason: str


class Skipped(Untimed):
    """An implementation that cannot do this case, and why."""

    usual = Outcome.SKIPPED


class Failed(Untimed):
    """A case that crashed or hung, and how."""

    usual = Outcome.FAILED


@dataclass(frozen=True)
class Prediction(Timed):
    """What a case should take by the model: seconds of an operation, and the band in which nine of ten should lie."""

    seconds: float
    low: float
    high: float
    algorithm: str = ""  # that the library would choose
    protocol: str = ""
    platform: str = "model"
    usual = Outcome.PREDICTED

    @property
    def typical(self) -> float:
        """What is expected."""
        return self.seconds

    @property
    def band(self) -> tuple[float, float]:
        """Where nine of ten should lie."""
        return self.low, self.high


@dataclass(frozen=True)
class Reported(Observed):
    """What another tool printed of a case, and how far it can be relied on: nobody here checked it."""

    seconds: float  # of an operation, as printed
    statistic: str  # what that is of which operations and ranks: "mean of 20 operations, mean over ranks"
    wrong_elements: int | None = None  # that the tool found; None if it did not look
    samples: tuple[float, ...] = ()  # seconds of single operations, if it printed those too
    printed: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the row's own words, by the format's names

    @property
    def wrong(self) -> str:
        """How many elements."""
        return f"{self.wrong_elements} elements" if self.wrong_elements else ""

    @property
    def figure(self) -> str:
        """As the statistic begins; the median where there are samples."""
        first = (*self.statistic.split(maxsplit=1), "")[0].strip(",:").lower()
        return "median" if self.samples else stats.FIGURES.get(first, "figure")

    @property
    def standing(self) -> str:
        """What the number is worth, in words: it is another tool's, of some kind, and was looked at or not."""
        return f"reported {self.figure}, {'not checked' if self.wrong_elements is None else 'ok'}"

    @property
    def right(self) -> bool:
        """Whether there is a time and no wrong element; some tools do not look for any."""
        return self.seconds > 0 and not self.wrong

    @property
    def times(self) -> tuple[float, ...]:
        """The samples, or the one figure that was printed."""
        return self.samples or (self.seconds,)


@dataclass(frozen=True)
class Explanation(CaseResult):
    """Where the time of a checked operation went."""

    platform: str
    seconds: float  # an operation, as it is measured: the median
    traced: float  # the same while a log is kept
    tracks: tuple[Track, ...]  # of one typical operation; none for a library, which cannot be looked into
    note: Note = NO_NOTE

    def spent(self, part: str) -> float:
        """Seconds in a phase, the mean over the ranks; or LAUNCH, in none of them: before, behind and between kernels.

        NaN without tracks.
        """
        if part == LAUNCH:
            return max(0.0, self.traced - sum(map(self.spent, PHASES))) if self.tracks else math.nan
        return mean_spent(self.tracks, part)

    def share(self, part: str) -> float:
        """Of all parts together; 0 where the clock saw no time pass, NaN without tracks."""
        return self.spent(part) / whole if (whole := sum(map(self.spent, PARTS))) else 0.0

    @property
    def overhead(self) -> float:
        """What keeping the log added, as a share of the time without it."""
        return self.traced / self.seconds - 1


Sampled = Measurement | StepTimes
"""What was sampled here, in rounds that can be joined."""

Result = (
    Measurement
    | StepTimes
    | StepPrediction
    | Trained
    | PlannedStep
    | Reported
    | Skipped
    | Failed
    | Explanation
    | Prediction
)


def timed(results: Iterable[Result | Timed]) -> Iterator[Timed]:
    """Yield collectives that have a time: measured or reported, right and not disturbed; or predicted.  No steps."""
    for result in results:
        known = isinstance(result, Prediction) or (
            isinstance(result, Observed) and result.right and not result.disturbed
        )
        if known and isinstance(result, Timed) and not result.case.step:
            yield result


def observed(results: Iterable[Result]) -> Iterator[Observed]:
    """The same without predictions."""
    return (result for result in timed(results) if isinstance(result, Observed))
