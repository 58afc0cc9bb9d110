"""The noise of step times: percentiles far out, and for how long a disturbance lasts."""

import numpy as np

from collbench.analysis.bootstrap import autocorrelation_time
from collbench.analysis.stragglers import Floats
from collbench.stats import Estimate

PERCENTS = (50.0, 99.0, 99.9)
_TAIL_ERROR = 0.05  # of the interval of a percentile
_UNCORRELATED = 0.05  # a correlation that counts as none
_CHANCE = 2.0  # events that follow each other as closely as others by chance


def tail(samples: Floats, percent: float) -> Estimate | None:
    """Return a percentile with its 95 % interval.

    None where the interval would need samples beyond the largest (p99.9 needs 3,688).

    Distribution-free: the number of independent samples below a percentile is binomial (W. R. Thompson, 1936).  Long
    steps that come together are one event: they count as fewer, by how long being above the percentile lasts.
    """
    if not len(samples):
        return None
    value = float(np.quantile(samples, percent / 100))
    independent = int(len(samples) / event_length((samples > value).astype(float)))
    from scipy.special import bdtr  # imported here since it takes 0.1 s

    # Of the order statistics that hold the percentile between them: the probability of at most so many below.
    below = bdtr(np.arange(independent + 1), independent, percent / 100)
    first = int(np.searchsorted(below, _TAIL_ERROR / 2, side="right"))
    last = int(np.searchsorted(below, 1 - _TAIL_ERROR / 2)) + 1
    if not independent or first < 1 or last > independent:
        return None
    low, high = np.quantile(samples, (first / independent, last / independent))
    return Estimate(value, float(low), float(high))


def event_length(values: Floats) -> float:
    """Return for how many steps an event lasts (autocorrelation time), 1 if all are independent; *values*: 0 or 1."""
    least = max(_UNCORRELATED, _CHANCE / max(1.0, values.sum()))
    return autocorrelation_time(values - values.mean(), least)
