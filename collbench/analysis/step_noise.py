"""The noise of step times: percentiles far out, and what the slowest of more ranks would take."""

from dataclasses import dataclass

import numpy as np

from collbench.analysis.bootstrap import autocorrelation_time, block_count
from collbench.analysis.scaling import Estimate
from collbench.analysis.stragglers import Floats

PERCENTS = (50.0, 99.0, 99.9)
_TAIL_ERROR = 0.05  # of the interval of a percentile
_UNCORRELATED = 0.05  # a correlation that counts as none
_CHANCE = 2.0  # events that follow each other as closely as others by chance
_DRAWS = 400  # of blocks of samples, for the interval of an expected maximum
_ENOUGH = 3.0  # times as many samples as ranks: with fewer the largest sample decides
_LEVELS = 400  # of all samples in order, and as many again towards the largest
_MAXIMUM_SEED = 20251


# Percentiles.


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


# The slowest of more ranks.  No shape is assumed: if F is the share of samples up to a value, the largest of n draws is
# that value or less with the probability F**n, so its expectation is a sum over the samples in order.  Its interval is
# found by drawing whole blocks of samples again (H. Kuensch, 1989), since neighbours are alike.


@dataclass(frozen=True)
class ExpectedMaximum(Estimate):
    """Seconds that the slowest of several ranks is expected to take, with a 95 % interval."""

    at_least: bool  # the draws reach beyond the largest sample, so that it may be more


def expected_maximum(samples: Floats, ranks: int) -> ExpectedMaximum:
    """Return the expected maximum of *ranks* independent draws from the distribution of the samples.

    Args:
        samples: In the order in which they were taken, of shape (steps,), or (several, steps) for several ranks that
            are taken for alike.
        ranks: How many draws there are.

    """
    rows = np.atleast_2d(samples)
    blocks = max(2, min(block_count(row) for row in rows))
    block = np.tile(np.arange(rows.shape[1]) * blocks // rows.shape[1], len(rows))
    order = rows.ravel().argsort(kind="stable")
    # Up to which samples in order they are counted; the last level is all of them.
    near = len(order) - np.geomspace(1, len(order), _LEVELS).round().astype(int)
    levels = np.linspace(1, len(order), min(len(order), _LEVELS)).round().astype(int)
    ends = np.unique([*levels, *near[near > 0], len(order)])
    # How many samples up to each level every block has: shape (levels, blocks).
    counts = np.zeros((len(ends), blocks))
    np.add.at(counts, (np.searchsorted(ends, np.arange(len(order)), side="right"), block[order]), 1.0)
    counts = counts.cumsum(axis=0)
    values = np.add.reduceat(rows.ravel()[order], [0, *ends[:-1]]) / np.diff(ends, prepend=0)
    generator = np.random.default_rng((_MAXIMUM_SEED, blocks))
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=_DRAWS)
    low, high = np.quantile(_expectations(values, counts @ drawn.T.astype(float), ranks), [0.025, 0.975])
    value = float(_expectations(values, ends[:, None].astype(float), ranks)[0])
    beyond = ranks * _ENOUGH > len(order)
    return ExpectedMaximum(value, min(float(low), value), max(float(high), value), beyond)


def _expectations(values: Floats, reached: Floats, ranks: int) -> Floats:
    """Return the expected largest of *ranks* draws for each column of sample counts up to a level."""
    shares = (reached / reached[-1]) ** ranks
    expectations: Floats = values @ np.diff(shares, axis=0, prepend=0.0)
    return expectations
