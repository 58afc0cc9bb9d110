"""What the slowest of many ranks is expected to take, by the distribution that a few ranks showed.

No shape is assumed.  If F is the share of samples up to a value, the largest of n draws is that value or less with the
probability F**n; so its expectation is a sum over the samples in order.  How far it is known is found by drawing whole
blocks of samples again (H. Künsch, 1989), since neighbours are alike.
"""

from dataclasses import dataclass

import numpy as np

from collbench.analysis.compare.bootstrap import block_count
from collbench.analysis.jitter.lateness import Floats

DRAWS = 400
_SEED = 20251
_ENOUGH = 3.0  # times as many samples as draws: with fewer the largest of them decides


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
    member = np.arange(rows.shape[1]) * blocks // rows.shape[1]
    flat, block = rows.ravel(), np.tile(member, len(rows))
    order = flat.argsort(kind="stable")
    ordered, block = flat[order], block[order]
    generator = np.random.default_rng((_SEED, blocks))
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS)
    values = [_expectation(ordered, weights[block].astype(float), ranks) for weights in drawn]
    low, high = np.quantile(values, [0.025, 0.975])
    value = _expectation(ordered, np.ones(len(ordered)), ranks)
    beyond = ranks * _ENOUGH > len(ordered)
    return Expected(ranks, value, min(float(low), value), max(float(high), value), beyond)


def _expectation(ordered: Floats, weights: Floats, ranks: int) -> float:
    reached = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    return float(ordered @ np.diff(reached**ranks))
