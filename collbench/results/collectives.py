"""Results of collectives: measured, reported, predicted, explained, skipped or failed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from statistics import fmean, median
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from msgspec import Meta

from collbench import stats
from collbench.datatypes import Study
from collbench.notebook import Shown
from collbench.records import Record
from collbench.results.base import CaseResult, FromModel, Observed, Sampled, Timed
from collbench.results.disturbed import Scheduling
from collbench.results.facts import Outcome
from collbench.stats import Spread
from collbench.units import FASTEST, Count, Duration, Seconds


class Measurement(Sampled, frozen=True, tag="measurement"):
    """Checked samples of one case by one implementation: seconds per operation of the slowest rank, in order."""

    launches: int  # operations in each sample, which is their mean
    seconds: tuple[Seconds, ...]
    estimate: Seconds | None = None  # the library's own estimate
    algorithm: str = ""  # that the library ran by its own log, on rank 0
    protocol: str = ""
    channels: Count | None = None  # on which it ran
    enqueue: Seconds | None = None  # the host's time to enqueue an operation without a graph
    library_bytes: Count | None = None  # device memory used by the library, in bytes per rank
    rounds: tuple[int, ...] = ()  # samples in each round of an interleaved run, in order
    floor: Seconds | None = None  # to copy the case's fewest bytes during the run
    barrier: Seconds | None = None  # of a barrier by flags during the run: latency between cores
    errors: Study | None = None  # of a wire format that is not exact, from the same run
    spread: Spread | None = None  # of the medians of several starts; each start is a round

    @property
    def times(self) -> tuple[float, ...]:
        """The samples."""
        return self.seconds

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the median; with several starts it includes the spread between starts."""
        if not self.spread:
            return stats.median_interval(self.times)
        return self.spread.interval(self.typical, len(self.rounds))

    def by_round(self) -> list[tuple[float, ...]]:
        """Return the samples of every round; a run without interleaving is one round."""
        ends = list(accumulate(self.rounds or (len(self.seconds),), initial=0))
        return [self.seconds[first:last] for first, last in pairwise(ends)]

    @property
    def round_times(self) -> tuple[float, ...]:
        """The median of each round."""
        return tuple(median(samples) for samples in self.by_round() if samples)

    def joined(self, results: Sequence[Self]) -> Self:
        """Return all rounds of one implementation as one result; this is the last round."""
        return replace(
            self,
            seconds=tuple(chain.from_iterable(result.seconds for result in results)),
            rounds=tuple(len(result.seconds) for result in results),
            floor=_median_known(result.floor for result in results),
            barrier=_median_known(result.barrier for result in results),
            scheduling=Scheduling.joined((result.scheduling, len(result.times)) for result in results),
        )


def _median_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def sample_in_words(results: Iterable[CaseResult]) -> str:
    """Return text such as `the mean of 64 to 4,096 operations` if samples are means, else ""."""
    counts = {result.launches for result in results if isinstance(result, Measurement) and result.times}
    least, most = min(counts, default=1), max(counts, default=1)
    if most == 1:
        return ""
    return f"the mean of {least:,} to {most:,} operations" if least < most else f"the mean of {most:,} operations"


class Reported(Observed, frozen=True, tag="reported"):
    """Another tool's result of a case, with its evidence; collbench did not check it."""

    origin: ClassVar[str] = "imported"

    seconds: Duration  # per operation, as printed; 0 if not printed
    statistic: str  # statistic over operations and ranks: "mean of 20 operations, mean over ranks"
    wrong_elements: int | None = None  # that the tool found; None if it did not look
    samples: tuple[Seconds, ...] = ()  # of single operations, if printed
    printed: Mapping[str, Any] = {}  # fields as printed, by the format's names
    rounds: tuple[Seconds, ...] = ()  # of a case with several rows; `seconds` is their median

    @property
    def wrong(self) -> str:
        """How many elements are wrong."""
        return f"{self.wrong_elements} elements" if self.wrong_elements else ""

    @property
    def contradiction(self) -> str:
        """A time that is none."""
        return "a time that is none: less than 1e-15 s" if 0 < self.seconds <= FASTEST else ""

    @property
    def figure(self) -> str:
        """The statistic of the time, from the first word of `statistic`; the median if there are samples."""
        first = (*self.statistic.split(maxsplit=1), "")[0].strip(",:").lower()
        return "median" if self.samples else stats.FIGURES.get(first, "figure")

    @property
    def check(self) -> str:
        """The verdict: reported by another tool, checked or not."""
        return f"reported {self.figure}{', not checked' if self.wrong_elements is None else ''}"

    @property
    def right(self) -> bool:
        """Whether there is a time and no known wrong element; some tools do not check."""
        return self.seconds > 0 and not self.wrong

    @property
    def times(self) -> tuple[float, ...]:
        """The samples, or the printed figure."""
        return self.samples or (self.seconds,)

    @property
    def round_times(self) -> tuple[float, ...]:
        """Its rounds, or the one figure."""
        return self.rounds or (self.typical,)

    @property
    def band(self) -> tuple[float, float]:
        """The fastest and the slowest of several rounds, else the interval."""
        return (min(self.rounds), max(self.rounds)) if self.rounds else super().band

    @property
    def worst(self) -> Self:
        """The result by its slowest round; itself if it has one round."""
        return replace(self, seconds=max(self.rounds), samples=()) if self.rounds else self


class Prediction(FromModel, Timed, frozen=True, tag="prediction"):
    """The model's time of a case: seconds per operation, and the band that should hold nine of ten measurements."""

    seconds: Seconds
    low: Seconds
    high: Seconds
    algorithm: str = ""  # that the library would choose
    protocol: str = ""
    platform: str = "model"

    @property
    def typical(self) -> float:
        """The expected seconds."""
        return self.seconds


class Untimed(CaseResult, frozen=True):
    """A case without a time, with the reason."""

    origin: ClassVar[str] = ""

    platform: str
    reason: str

    @property
    def problem(self) -> str:
        """The reason: `skipped: allreduce only`."""
        return f"{'FAILED' if self.usual.bad else self.usual.value}: {self.reason}"


class Skipped(Untimed, frozen=True, tag="skipped"):
    """An implementation that does not support this case, with the reason."""

    usual: ClassVar[Outcome] = Outcome.SKIPPED


class Failed(Untimed, frozen=True, tag="failed"):
    """A case that crashed or hung, with the reason."""

    usual: ClassVar[Outcome] = Outcome.FAILED


WAITED, MOVED, ADDED, PUBLISHED = "waited", "moved", "added", "published"
PHASES = (WAITED, MOVED, ADDED, PUBLISHED)
"""Activities of a rank in an operation: wait for another, move bytes, add and move, make results visible."""
LAUNCH = "launch"
PARTS = (LAUNCH, *PHASES)
"""All categories of an operation's time."""
_ANOTHER = 0.5  # largest overhead of logging, as a share of an operation's time


class Span(NamedTuple):
    """Part of a track: a phase, its start after the track's start, and its duration, in seconds."""

    phase: str
    start: float
    seconds: float


class Track(Shown, Record, frozen=True):
    """The log of one block of a rank in one operation (a host-driven rank has one block)."""

    rank: int
    block: int
    start: float  # seconds, by a clock that all ranks share
    seconds: Duration
    spent: Annotated[Mapping[str, Duration], Meta(min_length=len(PHASES))]  # seconds by phase
    spans: tuple[Span, ...]  # in order
    lost: Count = 0  # spans that did not fit in the log, but count in `spent`


class Explanation(CaseResult, frozen=True, tag="explanation"):
    """Where the time of a checked operation went."""

    platform: str
    seconds: Seconds  # median per operation, without logging
    traced: Seconds  # the same with logging
    tracks: tuple[Track, ...]  # of one typical operation; none for a library
    algorithm: str = ""  # that a library ran by its own log, on rank 0
    protocol: str = ""
    channels: Count | None = None  # on which it ran

    @property
    def contradiction(self) -> str:
        """A phase missing from a track, or a log without time."""
        if not all(track.spent.keys() >= set(PHASES) for track in self.tracks):
            return f"a track that does not say what was spent on {', '.join(PHASES)}"
        return "its log holds no time at all" if self.tracks and not sum(map(self.spent, PARTS)) > 0 else ""

    @property
    def right(self) -> bool:
        """True: only a checked operation is explained."""
        return True

    def spent(self, part: str) -> float:
        """Return the seconds in a phase, averaged over the ranks' longest tracks; NaN without tracks.

        LAUNCH is the time outside all phases: before, after and between kernels.
        """
        if not self.tracks:
            return math.nan
        if part == LAUNCH:
            return max(0.0, self.traced - sum(map(self.spent, PHASES)))

        # A rank's slowest block counts: sorted last, it remains.
        longest = {track.rank: track for track in sorted(self.tracks, key=lambda track: track.seconds)}
        return fmean(track.spent[part] for track in longest.values())

    def share(self, part: str) -> float:
        """Return a part's share of the total; 0 if no time passed, NaN without tracks."""
        whole = sum(map(self.spent, PARTS))
        return self.spent(part) / whole if whole else 0.0

    @property
    def overhead(self) -> float:
        """The overhead of logging, as a share of the time without it."""
        return self.traced / self.seconds - 1

    @property
    def altered(self) -> str:
        """A remark, with the added time, if logging changed the operation too much; else ""."""
        return f"logged: {self.overhead:+.0%}, another program" if self.overhead > _ANOTHER else ""
