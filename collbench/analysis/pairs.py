"""A case by one implementation in both of two runs: the figures that are compared, and whether the machine moved."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from collbench.analysis.bootstrap import FEWEST
from collbench.cases import Case
from collbench.results import Measurement, Observed, Reported

CENTRES: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min, "max": max}
"""What a log's figure is compared with, of the other run's samples."""
Rounds = Sequence[Sequence[float]]
_MOVED = math.log(1.5)  # of a barrier's time, beyond which the cores are at other distances, and nothing can be said


@dataclass(frozen=True, eq=False)
class Pair:
    """The results of a case by one implementation in BASE and in NEW."""

    base: Observed
    new: Observed

    @property
    def curve(self) -> tuple[Case, str]:
        """The common part of all sizes: the case without its size, and the implementation."""
        return self.base.curve

    @property
    def nbytes(self) -> int:
        """The size of the message."""
        return self.base.case.nbytes

    @property
    def sampled(self) -> bool:
        """Whether both runs have enough samples to judge by."""
        return min(len(self.base.times), len(self.new.times)) >= FEWEST

    @property
    def barriers(self) -> float:
        """How many times as long a barrier took in NEW; 1 where it was not measured in both."""
        base, new = self.base, self.new
        if isinstance(base, Measurement) and isinstance(new, Measurement) and base.barrier and new.barrier:
            return new.barrier / base.barrier
        return 1.0

    @property
    def moved(self) -> bool:
        """Whether a barrier shows that the cores were at other distances in NEW."""
        return abs(math.log(self.barriers)) > _MOVED

    @property
    def statistics(self) -> list[str]:
        """The statistics that logs without samples hold: `mean`, `median`; none where both sides have samples."""
        return sorted({_statistic(self.base), _statistic(self.new)} - {""})

    @property
    def has_means(self) -> bool:
        """Whether a log without samples can be compared: with the same statistic, also of the other side's samples."""
        known = all(_statistic(row) or len(row.times) >= FEWEST for row in (self.base, self.new))
        return known and len(self.statistics) == 1

    @property
    def seconds(self) -> tuple[float, float]:
        """The times to compare: medians, or of samples the statistic that a log without samples holds."""
        statistics = self.statistics
        if not statistics:
            return self.base.typical, self.new.typical
        centre = CENTRES.get(statistics[0], fmean)
        return centre(self.base.times), centre(self.new.times)

    @property
    def log(self) -> float:
        """The logarithm of their ratio NEW/BASE."""
        before, after = self.seconds
        return math.log(after / before)

    @property
    def rounds(self) -> list[list[float]]:
        """The logarithms of the times of the rounds of each side."""
        return [list(map(math.log, row.round_times)) for row in (self.base, self.new)]

    @property
    def starts(self) -> list[list[float]]:
        """The same of each start of the ranks; nothing for a side that was started once."""
        started = [isinstance(row, Measurement) and bool(row.spread) for row in (self.base, self.new)]
        return [logs if several else [] for logs, several in zip(self.rounds, started, strict=True)]

    @property
    def matching_rounds(self) -> tuple[Rounds, Rounds] | None:
        """The samples of each side by round; None unless rounds are as many, two or more, and hold all samples."""
        base, new = self.base, self.new
        if not isinstance(base, Measurement) or not isinstance(new, Measurement):
            return None
        whole = all(sum(row.rounds) == len(row.seconds) and 0 not in row.rounds for row in (base, new))
        return (base.by_round(), new.by_round()) if whole and len(base.rounds) == len(new.rounds) >= 2 else None


def _statistic(row: Observed) -> str:
    """Return the statistic that a log without samples holds; empty for any other row."""
    return row.figure if isinstance(row, Reported) and not row.samples else ""
