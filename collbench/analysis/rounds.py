"""Seconds of steps that took turns, round by round, so that drift of the machine cancels in their ratios."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from collbench.results import StepPrediction, StepRow
from collbench.stats import median_interval
from collbench.units import format_figure


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; an end that is not known is infinite."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """Return the estimate in other units; the factor is above 0."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def text(self, unit: str = "") -> str:
        """Return `1.62x (1.58 .. 1.66)`; `?` stands for an end that is not known."""
        low, high = (format_figure(end) for end in (self.low, self.high))
        return f"{format_figure(self.value)}{unit} ({low} .. {high})"

    @property
    def known(self) -> bool:
        """Return whether both ends of the interval are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def by_round(result: StepRow) -> list[float]:
    """Return the seconds of a step in every round; by series where there were no rounds; one number of a prediction."""
    if isinstance(result, StepPrediction):
        return [result.typical]
    if not result.rounds:
        return list(result.times)
    found, start = [], 0
    for count in result.rounds:
        found.append(fmean(result.times[start : start + count]))
        start += count
    return found


def estimated(values: Sequence[float]) -> Estimate:
    """Return the median of rounds with its interval; the ends are infinite where there are fewer than six rounds."""
    return Estimate(median(values), *median_interval(values))
