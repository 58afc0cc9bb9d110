"""The common part of all results, and of results with a time."""

import math
from collections.abc import Sequence
from typing import ClassVar, Self

from collbench import stats
from collbench.cases import Case
from collbench.notebook import Shown
from collbench.records import Record
from collbench.results.disturbed import Scheduling
from collbench.results.facts import NO_NOTE, CheckFailure, Note, Outcome, labelled
from collbench.units import FASTEST, SLOWEST, counted, format_size


class Answers(Shown):
    """The questions that every kind of result answers; a kind overrides some, often by a field."""

    origin: ClassVar[str] = "measured"  # how its numbers came to be known: measured, imported, predicted; "" for none
    usual: ClassVar[Outcome] = Outcome.OK  # the outcome unless the data is wrong

    platform: str = ""  # platform of the ranks; `model` for a prediction
    reason: str = ""  # why there is no time; empty where there is one
    floor: float | None = None  # seconds that the ranks took meanwhile to copy the fewest bytes the case must move
    estimate: float | None = None  # seconds that the library itself expected of an operation
    enqueue: float | None = None  # seconds of the host to enqueue an operation
    library_bytes: int | None = None  # bytes of a rank's device that the library had taken by then
    algorithm: str = ""  # the algorithm that the library ran by its own log, or that a model expects it to choose
    protocol: str = ""  # the protocol, likewise; of a symmetric kernel of NCCL its name
    digest: str = ""  # a digest of the bits of a sum of random values; empty where it is of no such sum
    channels: int | None = None  # on which the library ran by its own log; None where copy engines moved it, or unsaid

    @property
    def contradiction(self) -> str:
        """A contradiction between fields that are each possible; empty if there is none."""
        return ""

    @property
    def method(self) -> str:
        """Algorithm and protocol that were run, or that a model expects: `ring/ll`; empty where nobody says."""
        return "/".join(filter(None, (self.algorithm, self.protocol)))

    @property
    def ran(self) -> str:
        """The method, and on how many channels: `ring/ll, 4 channels`."""
        return ", ".join(filter(None, (self.method, counted(self.channels, "channel") if self.channels else "")))


class _Facts(Answers, Record, frozen=True, kw_only=True, tag_field="kind"):
    """Facts that may be known of any result.  The field `kind` of a line in a run file tells its kind of result."""

    note: Note = NO_NOTE  # facts about how the numbers came to be
    library: str = ""  # product and version of the library that it called, where the implementation's name has none
    mismatch: CheckFailure | None = None  # fault found by the check; None if it found none, or did not run
    scheduling: Scheduling | None = None  # whether the ranks had their cores; None where it is not known


class CaseResult(_Facts, frozen=True):
    """The result of a case by one implementation."""

    case: Case
    implementation: str

    def __hash__(self) -> int:
        return hash((self.case, self.implementation))

    @property
    def curve(self) -> tuple[Case, str]:
        """The common part of a curve's points: the case without its size, and the implementation."""
        return self.case.kind, self.implementation

    @property
    def what(self) -> str:
        """All of it in words: `allreduce, float, sum, 2 ranks, 1 GiB, ring-flags`."""
        return f"{self.case.title}, {format_size(self.case.nbytes)}, {self.implementation}"

    @property
    def predicted(self) -> bool:
        """Whether a model says so, and nobody measured it."""
        return self.origin == "predicted"

    @property
    def wrong(self) -> str:
        """The fault of the received data, in words; empty if none is known."""
        return str(self.mismatch or "")

    @property
    def right(self) -> bool:
        """Whether there is a time that was measured, here or by another tool, and no result known to be wrong."""
        return bool(self.times) and not self.mismatch

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of an operation: all samples, or one figure that stands for them; empty where there are none."""
        return ()

    @property
    def label(self) -> str:
        """The implementation as people are shown it, with its library where that is known: `mpi: MPICH 5.0.2`."""
        return labelled(self.implementation, self.library)

    @property
    def disturbed(self) -> bool:
        """Whether ranks were off their cores in too many samples for the time to count."""
        return bool(self.scheduling and self.scheduling.disturbed)

    @property
    def check(self) -> str:
        """A table's word on a result with a time: `ok`, `predicted`, or what disturbed it."""
        return str(self.scheduling) if self.disturbed else self.usual.value

    @property
    def outcome(self) -> Outcome:
        """The outcome of the case, in one word."""
        if self.wrong:
            return Outcome.WRONG
        return Outcome.DISTURBED if self.disturbed else self.usual

    @property
    def problem(self) -> str:
        """Why there is no time that is right: `skipped: allreduce only`; empty where there is one."""
        return f"WRONG: {self.wrong}" if self.wrong else ""

    def describe(self) -> str:
        """Return the check of this result as a table shows it: `ok`, `predicted`, `skipped: allreduce only`."""
        return self.problem or self.check


class Timed(CaseResult, frozen=True):
    """A result with a time, measured or predicted: all that tables, plots and comparisons need of either."""

    @property
    def typical(self) -> float:
        """Seconds of an operation: the figure to quote."""
        raise NotImplementedError

    @property
    def band(self) -> tuple[float, float]:
        """Seconds between which it should lie; NaN where that is not known."""
        raise NotImplementedError

    @property
    def algbw(self) -> float:
        """Bytes of the array per second."""
        return self.case.nbytes / self.typical

    @property
    def busbw(self) -> float:
        """Bus bandwidth: bytes per second that each link would carry in an ideal algorithm.

        It is algbw times the collective's `bus_factor` (collectives.py), as in nccl-tests (doc/PERFORMANCE.md).
        """
        return self.algbw * self.case.collective.bus_factor(self.case.ranks)


class Observed(Timed, frozen=True):
    """A result that happened on a machine, measured here or by another tool."""

    platform: str

    def percentile(self, percent: float) -> float:
        """Return the percentile of the samples in seconds; 0 is the fastest, 100 the slowest."""
        return stats.percentile(self.times, percent)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the median."""
        return stats.median_interval(self.times)

    @property
    def relative_halfwidth(self) -> float:
        """Half the 95 % interval of the median, over the median."""
        low, high = self.interval
        return (high - low) / 2 / self.typical

    @property
    def typical(self) -> float:
        """The median of all times that are known, which may be a single mean."""
        return self.percentile(50)

    @property
    def round_times(self) -> tuple[float, ...]:
        """Seconds of an operation in each round; of a result that was not repeated, one figure."""
        return (self.typical,)

    @property
    def worst(self) -> Self:
        """The result by its slowest round, where another tool repeated it: no median may hide that one."""
        return self

    @property
    def figure(self) -> str:
        """The statistic of `typical`: a value of stats.FIGURES, or "figure" if unknown."""
        return "median"

    @property
    def band(self) -> tuple[float, float]:
        """The interval; NaN, which Matplotlib leaves out, where too few samples were taken to have one."""
        low, high = self.interval
        return (low, high) if math.isfinite(high) else (math.nan, math.nan)


class Repeated(CaseResult, frozen=True):
    """A result of one of several rounds or starts of the ranks, which can be joined."""

    @property
    def launches(self) -> int:
        """Operations, or steps, that each sample is the mean of."""
        return 1

    def joined(self, results: Sequence[Self]) -> Self:
        """Return all rounds of one implementation as one result; this is the last round."""
        raise NotImplementedError


class Sampled(Observed, Repeated, frozen=True):
    """A result that was sampled here."""


class FromModel(Answers):
    """A Timed result that a model predicts, with the band in which nine of ten should lie."""

    origin = "predicted"
    usual = Outcome.PREDICTED
    low: float
    high: float

    @property
    def typical(self) -> float:
        """Seconds of an operation: the figure to quote."""
        raise NotImplementedError

    @property
    def band(self) -> tuple[float, float]:
        """The seconds between which nine of ten should lie."""
        return self.low, self.high

    @property
    def contradiction(self) -> str:
        """A time that is none."""
        possible = FASTEST < self.typical < SLOWEST
        return "" if possible else "a time that is none: its parts add up to less than 1e-15 s, or more than 1e9 s"
