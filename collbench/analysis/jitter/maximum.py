"""What the slowest of many ranks is expected to take, by the distribution that a few ranks showed.

No shape is assumed.  If F is the share of samples up to a value, the largest of n draws is that value or less with the
probability F**n; so its expectation is a sum over the samples in order.  How far it is known is found by drawing whole
blocks of samples again (H. Künsch, 1989), since neighbours are alike.
"""

from dataclasses import dataclass

import numpy as np

from collbench.analysis.bootstrap import block_count
from collbench.analysis.jitter.lateness import Floats, Places

DRAWS = 400
_SEED = 20251
_ENOUGH = 3.0  # times as many samples as draws: with fewer the largest of them decides
_LEVELS = 400  # of all samples in order, and once more the closer, the closer to the largest


@dataclass(frozen=True)
class Expected:
    """Seconds that the slowest of so many ranks is expected to take, with a 95 % interval."""

    ranks: int
    value: float
    low: float
    high: float
    at_least: bool  # the draws reach beyond the largest sample, so that it may be more


def expected_maximum(samples: Floats, ranks: int) -> Expected:
    """Of independent draws from what the samples, in the order in which they were taken, come from.

    `samples` has the shape (steps,), or (several, steps) for several ranks that are taken for alike.
    """
    rows = np.atleast_2d(samples)
    blocks = max(2, min(block_count(row) for row in rows))
    block = np.tile(np.arange(rows.shape[1]) * blocks // rows.shape[1], len(rows))
    order = rows.ravel().argsort(kind="stable")
    ends = _levels(len(order))
    counts = _counts(block[order], ends, blocks)  # of the samples up to a level, those of each block
    values = np.add.reduceat(rows.ravel()[order], [0, *ends[:-1]]) / np.diff(ends, prepend=0)
    generator = np.random.default_rng((_SEED, blocks))
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS)
    low, high = np.quantile(_expectations(values, counts @ drawn.T.astype(float), ranks), [0.025, 0.975])
    value = float(_expectations(values, ends[:, None].astype(float), ranks)[0])
    return Expected(ranks, value, min(float(low), value), max(float(high), value), ranks * _ENOUGH > len(order))


def _levels(count: int) -> Places:
    """Up to which samples in order they are counted: up to all of them at last."""
    near = count - np.geomspace(1, count, _LEVELS).round().astype(int)
    levels = np.unique([*np.linspace(1, count, min(count, _LEVELS)).round().astype(int), *near, count])
    return levels[levels > 0]


def _counts(block: Places, ends: Places, blocks: int) -> Floats:
    level = np.searchsorted(ends, np.arange(len(block)), side="right")
    counts = np.zeros((len(ends), blocks))
    np.add.at(counts, (level, block), 1.0)
    return counts.cumsum(axis=0)


def _expectations(values: Floats, reached: Floats, ranks: int) -> Floats:
    """Of the largest of so many, by column of `reached`: how many samples there are up to a level."""
    shares = (reached / reached[-1]) ** ranks
    expectations: Floats = values @ np.diff(shares, axis=0, prepend=0.0)
    return expectations
