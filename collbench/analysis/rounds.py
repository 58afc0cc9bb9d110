"""Numbers of steps that took turns, round by round, so that drift of the machine cancels in their ratios."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from collbench.results import StepPrediction, StepRow
from collbench.stats import median_interval
from collbench.units import format_figure


@dataclass(frozen=True)
class Estimate:
    """A number and the interval in which it should lie; infinite ends where nobody can tell."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """The same in other units; the factor is above 0."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def text(self, unit: str = "") -> str:
        """`1.62x (1.58 .. 1.66)`; `?` for an end that nobody knows."""
        low, high = (format_figure(end) for end in (self.low, self.high))
        return f"{format_figure(self.value)}{unit} ({low} .. {high})"

    @property
    def known(self) -> bool:
        """Whether it has an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def by_round(result: StepRow) -> list[float]:
    """Seconds of a step in every round of those that took turns; in every series, where nobody took turns.

    Of a prediction, which has one number, that.
    """
    if isinstance(result, StepPrediction):
        return [result.typical]
    ends = [sum(result.rounds[:place]) for place in range(len(result.rounds) + 1)]
    spans = pairwise(ends) if result.rounds else ((place, place + 1) for place in range(len(result.times)))
    return [fmean(result.times[start:end]) for start, end in spans]


def estimated(values: Sequence[float]) -> Estimate:
    """The median of rounds with its interval; infinite ends where there are fewer than six."""
    return Estimate(median(values), *median_interval(values))
