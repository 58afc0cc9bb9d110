"""What rows of a run have in common: a case by one implementation, perhaps a time, perhaps one that was observed."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from collbench import stats
from collbench.cases import Case
from collbench.labels import labelled
from collbench.note import NO_NOTE, Note
from collbench.outcome import Outcome
from collbench.scheduling import Scheduling


@dataclass(frozen=True)
class CaseResult:
    """A case by one implementation: what all rows of a run have in common."""

    case: Case
    implementation: str
    scheduling: Scheduling | None = field(default=None, kw_only=True)
    """Whether the ranks had their cores; None where ranks have none, or nobody looked."""

    usual: ClassVar[Outcome] = Outcome.OK  # the outcome unless the data is wrong

    @property
    def wrong(self) -> str:
        """What is wrong with the received data; empty if nothing is known to be."""
        return ""

    @property
    def label(self) -> str:
        """As people are shown it: the implementation, and where a row has it the library, `mpi: MPICH 5.0.2`."""
        return labelled(self.implementation, getattr(self, "library", ""))

    @property
    def disturbed(self) -> bool:
        """Whether ranks were off their cores in so many samples that the time is the machine's."""
        return bool(self.scheduling and self.scheduling.disturbed)

    @property
    def check(self) -> str:
        """What a table says of a row with a time: `ok`, or what disturbed it."""
        return str(self.scheduling) if self.scheduling and self.disturbed else "ok"

    @property
    def outcome(self) -> Outcome:
        """What became of it."""
        if self.wrong:
            return Outcome.WRONG
        return Outcome.DISTURBED if self.disturbed else self.usual


def joined_scheduling(results: Sequence["Observed"]) -> Scheduling | None:
    """Return the scheduling of the rounds of one row; None where nobody looked in any of them."""
    looked = [(result.scheduling, len(result.times)) for result in results if result.scheduling]
    return Scheduling.joined([part for part, _ in looked], [samples for _, samples in looked]) if looked else None


@dataclass(frozen=True)
class Timed(CaseResult, ABC):
    """What has a time, measured or predicted: all that tables, plots and comparisons need of either."""

    note: Note = field(default=NO_NOTE, kw_only=True)

    @property
    @abstractmethod
    def typical(self) -> float:
        """Seconds of an operation: the figure to quote."""

    @property
    @abstractmethod
    def band(self) -> tuple[float, float]:
        """Seconds between which it should lie; NaN where nobody can tell."""

    @property
    def algbw(self) -> float:
        """Bytes of the array per second."""
        return self.case.nbytes / self.typical

    @property
    def busbw(self) -> float:
        """What each link would carry per second in an ideal algorithm (nccl-tests doc/PERFORMANCE.md)."""
        return self.algbw * self.case.collective.bus_factor(self.case.ranks)


@dataclass(frozen=True)
class Observed(Timed):
    """What happened on a machine, whoever looked."""

    platform: str

    @property
    @abstractmethod
    def right(self) -> bool:
        """Whether there is a time, and no result known to be wrong."""

    @property
    @abstractmethod
    def times(self) -> tuple[float, ...]:
        """All that is known of an operation's seconds: samples, or one figure that stands for them."""

    def percentile(self, percent: float) -> float:
        """Seconds that so many per cent of the samples do not exceed; 0 is the fastest, 100 the slowest."""
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
        """The median of all times that are known, which may be one mean."""
        return self.percentile(50)

    @property
    def figure(self) -> str:
        """Of what kind `typical` is: a value of stats.FIGURES, or "figure" where nobody says."""
        return "median"

    @property
    def band(self) -> tuple[float, float]:
        """The interval; NaN, which Matplotlib leaves out, where too few samples were taken to have one."""
        low, high = self.interval
        return (low, high) if math.isfinite(high) else (math.nan, math.nan)
