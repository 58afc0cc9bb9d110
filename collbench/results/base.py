"""The base class of all results, and of results with a time."""

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

WIDEST = 1.0  # relative half-width of the 95 % interval above which a time is shown, but not compared


class Answers(Shown):
    """The common interface of all kinds of result; a kind overrides some members, often by a field."""

    origin: ClassVar[str] = "measured"  # origin of its numbers: measured, imported, predicted; "" for none
    usual: ClassVar[Outcome] = Outcome.OK  # the outcome unless the data is wrong

    platform: str = ""  # platform of the ranks; `model` for a prediction
    reason: str = ""  # why there is no time, or ""
    floor: float | None = None  # seconds to copy the case's fewest bytes during the run
    estimate: float | None = None  # the library's own estimate in seconds
    enqueue: float | None = None  # the host's seconds to enqueue an operation
    library_bytes: int | None = None  # device memory used by the library, in bytes per rank
    algorithm: str = ""  # the algorithm that the library ran by its own log, or that a model expects it to choose
    protocol: str = ""  # the protocol, likewise; of a symmetric kernel of NCCL its name
    digest: str = ""  # a digest of the bits of a sum of random values, or ""
    channels: int | None = None  # from the library's log; None for copy engines or if unknown

    @property
    def contradiction(self) -> str:
        """A contradiction between fields that are each valid, or ""."""
        return ""

    @property
    def method(self) -> str:
        """Algorithm and protocol that ran or are predicted, as in `ring/ll`; empty if unknown."""
        return "/".join(filter(None, (self.algorithm, self.protocol)))

    @property
    def ran(self) -> str:
        """The method and its channels: `ring/ll, 4 channels`."""
        return ", ".join(filter(None, (self.method, counted(self.channels, "channel") if self.channels else "")))


class _Facts(Answers, Record, frozen=True, kw_only=True, tag_field="kind"):
    """Optional facts of any result. A run file's field `kind` names the class of result."""

    note: Note = NO_NOTE  # caveats of the numbers
    library: str = ""  # product and version of the called library, if the implementation's name lacks them
    mismatch: CheckFailure | None = None  # failure found by the check, or None
    scheduling: Scheduling | None = None  # whether the ranks kept their cores; None if unknown


class CaseResult(_Facts, frozen=True):
    """The result of a case by one implementation."""

    case: Case
    implementation: str

    def __hash__(self) -> int:
        return hash((self.case, self.implementation))

    @property
    def curve(self) -> tuple[Case, str]:
        """The key of the result's curve: the case without its size, and the implementation."""
        return self.case.kind, self.implementation

    @property
    def what(self) -> str:
        """The result's case in words: `allreduce, float, sum, 2 ranks, 1 GiB, ring-flags`."""
        return f"{self.case.title}, {format_size(self.case.nbytes)}, {self.implementation}"

    @property
    def predicted(self) -> bool:
        """Whether the time is predicted, not measured."""
        return self.origin == "predicted"

    @property
    def wrong(self) -> str:
        """The fault of the received data in words, or ""."""
        return str(self.mismatch or "")

    @property
    def right(self) -> bool:
        """Whether a time was measured, by collbench or another tool, and no result is known to be wrong."""
        return bool(self.times) and not self.mismatch

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds per operation: all samples, or a single figure; empty without a time."""
        return ()

    @property
    def label(self) -> str:
        """The displayed name of the implementation, with its library if known: `mpi: MPICH 5.0.2`."""
        return labelled(self.implementation, self.library)

    @property
    def disturbed(self) -> bool:
        """Whether ranks were off their cores in too many samples."""
        return bool(self.scheduling and self.scheduling.disturbed)

    @property
    def unsure(self) -> bool:
        """Whether the time is too uncertain to compare: disturbed, or its 95 % interval is over 100 % of it."""
        return self.disturbed

    @property
    def check(self) -> str:
        """A table's verdict on a result with a time: `ok`, `predicted`, or the disturbance."""
        return str(self.scheduling) if self.disturbed else self.usual.value

    @property
    def outcome(self) -> Outcome:
        """The outcome of the case, in one word."""
        if self.wrong:
            return Outcome.WRONG
        return Outcome.DISTURBED if self.disturbed else self.usual

    @property
    def problem(self) -> str:
        """Why there is no right time, as in `skipped: allreduce only`, or ""."""
        return f"WRONG: {self.wrong}" if self.wrong else ""

    def describe(self) -> str:
        """Return the check of this result as a table shows it: `ok`, `predicted`, `skipped: allreduce only`."""
        return self.problem or self.check


class Timed(CaseResult, frozen=True):
    """A result with a time, measured or predicted: the interface for tables, plots and comparisons."""

    @property
    def typical(self) -> float:
        """Seconds of an operation: the figure to quote."""
        raise NotImplementedError

    @property
    def band(self) -> tuple[float, float]:
        """Lower and upper bound in seconds; NaN if unknown."""
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
    def unsure(self) -> bool:
        """Whether the time is too uncertain to compare; without an interval it counts as known."""
        return self.disturbed or (self.right and self.typical > 0 and WIDEST < self.relative_halfwidth < math.inf)

    @property
    def typical(self) -> float:
        """The median of all known times, or a single mean."""
        return self.percentile(50)

    @property
    def round_times(self) -> tuple[float, ...]:
        """Seconds per operation in each round; a single figure without rounds."""
        return (self.typical,)

    @property
    def worst(self) -> Self:
        """The result by its slowest round, if another tool repeated it, since a median may hide that round."""
        return self

    @property
    def figure(self) -> str:
        """The statistic of `typical`: a value of stats.FIGURES, or "figure" if unknown."""
        return "median"

    @property
    def band(self) -> tuple[float, float]:
        """The interval; NaN, which Matplotlib omits, if there are too few samples."""
        low, high = self.interval
        return (low, high) if math.isfinite(high) else (math.nan, math.nan)


class Repeated(CaseResult, frozen=True):
    """A result of one round or start of the ranks, which can be joined with others."""

    @property
    def launches(self) -> int:
        """Number of operations or steps in each sample, which is their mean."""
        return 1

    def joined(self, results: Sequence[Self]) -> Self:
        """Return all rounds of one implementation as one result; this is the last round."""
        raise NotImplementedError


class Sampled(Observed, Repeated, frozen=True):
    """A result that collbench sampled."""


class FromModel(Answers):
    """A predicted result, with the band that should hold nine of ten measurements."""

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
        """The bounds in seconds that should hold nine of ten measurements."""
        return self.low, self.high

    @property
    def contradiction(self) -> str:
        """An invalid time."""
        possible = FASTEST < self.typical < SLOWEST
        return "" if possible else "a time that is none: its parts add up to less than 1e-15 s, or more than 1e9 s"
