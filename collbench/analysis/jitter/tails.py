"""Percentiles far out, with intervals, and none where too few steps were measured to know them."""

from dataclasses import dataclass

import numpy as np

from collbench.analysis.jitter.lateness import Floats

PERCENTS = (50.0, 99.0, 99.9)
_DOUBT = 0.05
_ALIKE = 0.05  # a correlation that is none
_CHANCE = 2.0  # events that follow each other as closely as others by chance


@dataclass(frozen=True)
class Tail:
    """A percentile of samples, with the interval that covers it with 95 %."""

    percent: float
    value: float
    low: float
    high: float


def tail(samples: Floats, percent: float) -> Tail | None:
    """None where the interval would need samples beyond the largest: p99.9 takes 3,688 that are independent.

    Distribution-free: the number of samples below a percentile is binomial (W. R. Thompson, 1936).  Long steps that
    come together are one event: they count as fewer, by how long being above the percentile lasts.
    """
    if not len(samples):
        return None
    value = float(np.quantile(samples, percent / 100))
    known = int(len(samples) / remembered((samples > value).astype(float)))
    levels = _levels(known, percent / 100)
    if levels is None:
        return None
    low, high = np.quantile(samples, levels)
    return Tail(percent, value, float(low), float(high))


def remembered(values: Floats) -> float:
    """For how many steps an event lasts: 1 if all are independent (autocorrelation time); `values` are 0 or 1."""
    apart = values - values.mean()
    power = float(apart @ apart)
    least = max(_ALIKE, _CHANCE / max(1.0, values.sum()))
    total = 1.0
    for lag in range(1, len(apart) // 4):
        alike = float(apart[:-lag] @ apart[lag:]) / power if power else 0.0
        if alike <= least:
            break
        total += 2 * alike
    return total


def _levels(count: int, share: float) -> tuple[float, float] | None:
    """The order statistics that hold the percentile between them, as shares of all; None if there are none."""
    from scipy.special import bdtr  # 0.1 s, for those who need it

    below = bdtr(np.arange(count + 1), count, share)  # probability of at most so many below
    low = int(np.searchsorted(below, _DOUBT / 2, side="right"))
    high = int(np.searchsorted(below, 1 - _DOUBT / 2)) + 1
    return (low / count, high / count) if count and low >= 1 and high <= count else None
