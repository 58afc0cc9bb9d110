"""Order statistics of samples whose distribution nobody knows, and Student's t for means of what is known to vary."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, variance

FIGURES = {
    **{name: name for name in ("mean", "median", "min", "max")},
    "average": "mean",
    "avg": "mean",
    "fastest": "min",
    "minimum": "min",
    "slowest": "max",
    "maximum": "max",
}
"""Words with which a statistic begins, and what kind of number it is then."""


def percentile(samples: Sequence[float], percent: float) -> float:
    """The percentile by linear interpolation between order statistics: NumPy's default.

    NumPy itself takes 100 us for a row's samples, 50 times as long; the ranks ask between two samples.
    """
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The interval of order statistics that covers the median with at least this confidence.

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
    """How many samples may be cut from each end so that the median is outside with at most `doubt`; -1 if none."""
    if count > 1000:  # the normal approximation is off by less than one order statistic here
        return math.floor(count / 2 - NormalDist().inv_cdf(1 - doubt / 2) * math.sqrt(count) / 2) - 1
    probability, total, below = 0.5**count, 0.0, -1
    for cut in range(count // 2):
        total += probability
        if 2 * total > doubt:
            break
        below = cut
        probability *= (count - cut) / (cut + 1)
    return below


def relative_halfwidth(samples: Sequence[float]) -> float:
    """Half the median's 95 % interval over the median: what adaptive sampling drives below its precision."""
    low, high = median_interval(samples)
    return (high - low) / 2 / percentile(samples, 50)


@dataclass(frozen=True)
class Spread:
    """How far medians of different starts of the ranks are apart: a standard deviation of logarithms, and how sure."""

    deviation: float
    freedom: float  # degrees

    def error(self, starts: int) -> float:
        """Return the standard error of the median of so many starts: 1.253 times a mean's (normal, many starts)."""
        return 1.253 * self.deviation / math.sqrt(starts)

    def interval(self, middle: float, starts: int) -> tuple[float, float]:
        """Return the 95 % interval of a median over so many starts."""
        reach = math.exp(student_95(self.freedom) * self.error(starts))
        return middle / reach, middle * reach


PRIOR = Spread(0.04, 2)
"""What sweeps differ by before any start was seen, as a standard deviation of logarithms, and how many degrees of
freedom that is worth: chosen by 28 sweeps and tried on 28 others (docs/log.md).  Sweeps minutes apart differ by a
little more than the starts of one sweep, which take turns; this holds that too."""

FADING = 0.8  # weight of a size's own starts against those of the next smaller size


@dataclass
class Pool:
    """What the starts of a curve's sizes so far say of how far starts are apart.

    Three starts alone would say so little that an interval is four times as wide as it need be.  Neighbouring sizes
    meet the same placement of memory, so what their starts say counts too, by a fifth less from size to size; and what
    is usual of starts anywhere counts as PRIOR (a moderated variance: G. Smyth, 2004).
    """

    squares: float = 0.0  # sum of squared distances of logarithms from the mean of their size
    freedom: float = 0.0

    def add(self, seconds: Sequence[float]) -> Spread:
        """Add the medians of the starts of the next size, and return how far its starts are apart."""
        degrees = len(seconds) - 1
        self.squares = FADING * self.squares + degrees * variance(map(math.log, seconds))
        self.freedom = FADING * self.freedom + degrees
        freedom = PRIOR.freedom + self.freedom
        return Spread(math.sqrt((PRIOR.freedom * PRIOR.deviation**2 + self.squares) / freedom), freedom)


def student_95(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, within 1 % from three degrees of freedom on.

    The expansion of R. Fisher and E. Cornish (1960): SciPy, which has the quantile, takes a tenth of a second to load.
    """
    z = NormalDist().inv_cdf(0.975)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def student(probability: float, freedom: float) -> float:
    """The quantile of Student's t with so many degrees of freedom."""
    from scipy.special import stdtrit  # 0.1 s, which no sweep and no help should wait for

    return float(stdtrit(freedom, probability))
