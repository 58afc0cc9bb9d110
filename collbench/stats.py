"""Statistics: estimates with intervals, order statistics, and Student's t."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median, variance
from typing import NamedTuple

from collbench.units import format_figure, format_interval

FIGURES = {
    **{name: name for name in ("mean", "median", "min", "max")},
    "average": "mean",
    "avg": "mean",
    "fastest": "min",
    "minimum": "min",
    "slowest": "max",
    "maximum": "max",
}
"""First words of a statistic's name, with its kind."""


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the percentile by linear interpolation between order statistics, NumPy's default."""
    # NumPy itself takes 100 us for a row's samples, 50 times as long, and ranks call this between samples.
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of order statistics that covers the median with at least this confidence.

    Exact for any continuous distribution of independent samples (binomial argument; W. R. Thompson, 1936).  With
    fewer than six samples no interval reaches 95 %, and the result is (-inf, inf).
    """
    below = _tail_count(len(samples), 1 - confidence)
    if below < 0:
        return -math.inf, math.inf
    ordered = sorted(samples)
    return ordered[below], ordered[-1 - below]


@lru_cache(maxsize=4096)
def _tail_count(count: int, doubt: float) -> int:
    """Return the most samples to cut from each end while the interval misses the median with at most `doubt`; or -1."""
    # The normal approximation is off by less than one order statistic here.
    if count > 1000:
        return math.floor(count / 2 - NormalDist().inv_cdf(1 - doubt / 2) * math.sqrt(count) / 2) - 1
    # The probability that k of the samples lie below the median, and that at most k do.
    probability, total = 0.5**count, 0.0
    for cut in range(count // 2):
        total += probability
        if 2 * total > doubt:
            return cut - 1
        probability *= (count - cut) / (cut + 1)
    return count // 2 - 1


def relative_halfwidth(samples: Sequence[float]) -> float:
    """Return half the median's 95 % interval over the median, as adaptive sampling compares it with its precision."""
    low, high = median_interval(samples)
    return (high - low) / 2 / percentile(samples, 50)


def number(value: float) -> float | None:
    """Return a number for JSON, None for NaN and infinity."""
    return value if math.isfinite(value) else None


class Estimate(NamedTuple):
    """A number with its interval; an unknown end is infinite or NaN."""

    value: float
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of_median(cls, samples: Sequence[float], confidence: float = 0.95) -> "Estimate":
        """Return the median of samples with its `median_interval`."""
        return cls(median(samples), *median_interval(samples, confidence))

    @property
    def known(self) -> bool:
        """Whether both ends of the interval are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high

    def scaled(self, factor: float) -> "Estimate":
        """Return the estimate times a positive factor."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def holds(self, number: float) -> bool:
        """Return whether a number lies in the interval."""
        return self.low <= number <= self.high

    def surely_above(self, bound: float) -> bool:
        """Return whether all of the interval lies above a bound."""
        return self.low > bound

    def surely_below(self, bound: float) -> bool:
        """Return whether all of the interval lies below a bound."""
        return self.high < bound

    def surely_level(self, margin: float) -> bool:
        """Return whether all of the interval of a ratio lies within a relative margin of 1."""
        return 1 / (1 + margin) <= self.low and self.high <= 1 + margin

    def text(self, form: Callable[[float], str] = format_figure, unit: str = "") -> str:
        """Return text such as `1.62x (1.58 .. 1.66)` for the unit `x`; "" for NaN."""
        if math.isnan(self.value):
            return ""
        return f"{form(self.value)}{unit}{format_interval(self.low, self.high, form)}"

    def fields(self, name: str) -> dict[str, float | None]:
        """Return the number under that name and both ends for JSON; None if not finite."""
        return {name: number(self.value), "low": number(self.low), "high": number(self.high)}


@dataclass(frozen=True)
class Spread:
    """Spread of the medians of different starts: a standard deviation of logarithms, with its degrees of freedom."""

    deviation: float
    freedom: float  # degrees

    def error(self, starts: int) -> float:
        """Return the standard error of the median over `starts`: 1.253 times a mean's (normal, many starts)."""
        return 1.253 * self.deviation / math.sqrt(starts)

    def interval(self, middle: float, starts: int) -> tuple[float, float]:
        """Return the 95 % interval of a median over `starts`."""
        reach = math.exp(student_95(self.freedom) * self.error(starts))
        return middle / reach, middle * reach


PRIOR = Spread(0.04, 2)
"""Prior spread between sweeps, chosen on 28 sweeps and tested on 28 others (docs/log.md).

It includes the difference between sweeps minutes apart, which is a little larger than that between interleaved starts.
"""

FADING = 0.8  # weight of a size's own starts against those of the next smaller size


@dataclass
class Pool:
    """The spread between starts, pooled over the sizes of a curve (a moderated variance: G. Smyth, 2004).

    Three starts alone would make intervals four times as wide as necessary.
    """

    squares: float = 0.0  # sum of squared distances of logarithms from the mean of their size
    freedom: float = 0.0

    def add(self, seconds: Sequence[float]) -> Spread:
        """Add the medians of the starts of the next size, and return their pooled spread."""
        # Neighbouring sizes share the placement of memory, so their starts count too, with weights fading by size.
        degrees = len(seconds) - 1
        self.squares = FADING * self.squares + degrees * variance(map(math.log, seconds))
        self.freedom = FADING * self.freedom + degrees
        freedom = PRIOR.freedom + self.freedom
        return Spread(math.sqrt((PRIOR.freedom * PRIOR.deviation**2 + self.squares) / freedom), freedom)


def student_95(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, within 1 % for at least three degrees of freedom."""
    # The expansion of R. Fisher and E. Cornish (1960), as SciPy takes 0.1 s to load.
    z = NormalDist().inv_cdf(0.975)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def student(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t with `freedom` degrees of freedom."""
    # SciPy takes 0.1 s to load, too long for a sweep or help.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))
