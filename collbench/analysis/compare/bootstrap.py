"""How well a median is known, from samples that follow each other: a block bootstrap, with the same draws every time.

Samples taken one after the other are alike, so whole stretches of them are resampled (H. Künsch, 1989, with stretches
that do not overlap).  A stretch lasts at least the cube root of the number of samples, and longer than the samples
remember, as far as enough stretches remain.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Places = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]

DRAWS = 1000
FEWEST = 5  # samples below which nothing is said of their median
_BLOCKS = (7, 100)  # the fewest, as long as there are as many samples, and the most
_LEVELS = 401  # order statistics among which a resampled median is looked for: beyond, they are closer than it is known
_REMEMBERED = 2.0  # autocorrelation times that a block lasts
_SEED = 20250
_UNTHREADED = 200_000  # multiplications of a product; OpenBLAS starts threads beyond 262,144
_PARTS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # into which the draws may be divided


def log_medians(samples: Floats, stream: int) -> tuple[Floats, int]:
    """DRAWS medians of resampled samples, as logarithms, and the number of blocks that were resampled.

    Spread as if there were no end of blocks: a resample of few strays too little.  Different `stream`s are independent.
    """
    count = len(samples)
    order = np.argsort(samples, kind="stable")
    ordered = samples[order]
    blocks = block_count(samples)
    member = np.zeros((blocks, count), np.float32)
    member[(np.arange(count) * blocks // count)[order], np.arange(count)] = 1
    below = member.cumsum(axis=1)  # of each block, how many samples are among the lowest so many
    levels = _levels(count)
    logs = np.log(ordered[levels])
    least, most = _halves(below[:, levels], _drawn(blocks, stream))
    centre = math.log(np.median(ordered))
    return centre + ((logs[least] + logs[most]) / 2 - centre) * math.sqrt(blocks / (blocks - 1)), blocks


def _halves(below: Floats, drawn: Floats) -> tuple[Places, Places]:
    """In each resample, the first levels that half of the samples, and more than half of them, do not lie above.

    In products so small that a BLAS keeps to one thread: its threads cost more than they save, and hundreds of times
    more on a busy machine.
    """
    blocks, levels = below.shape
    parts = next((parts for parts in _PARTS if levels * blocks * DRAWS <= parts * _UNTHREADED), DRAWS)
    counts = below.T @ drawn.reshape(blocks, parts, -1).swapaxes(0, 1)  # (parts, levels, resamples of a part)
    half = counts[:, -1:] / 2
    least, most = (np.add.reduce(fewer, axis=1, dtype=np.int16).ravel() for fewer in (counts < half, counts <= half))
    return least, most


@lru_cache(maxsize=256)
def _levels(count: int) -> Places:
    """The places of the order statistics at which resamples are counted."""
    return np.unique(np.linspace(0, count - 1, min(count, _LEVELS)).round().astype(int))


def block_count(samples: Floats) -> int:
    """Into how many blocks the samples are divided."""
    count = len(samples)
    length = max(count ** (1 / 3), _REMEMBERED * memory(samples))
    fewest, most = _BLOCKS
    return int(min(max(count / length, fewest), most, count))


def memory(samples: Floats) -> float:
    """For how many samples being above or below the median lasts: 1 if they are independent (autocorrelation time)."""
    side = np.sign(samples - np.median(samples))
    power = float(side @ side)
    total = 1.0
    for lag in range(1, len(side) // 4):
        alike = float(side[:-lag] @ side[lag:]) / power if power else 0.0
        if alike <= 0.05:
            break
        total += 2 * alike
    return total


@lru_cache(maxsize=256)
def _drawn(blocks: int, stream: int) -> Floats:
    """How often each block is in each resample (blocks, DRAWS)."""
    generator = np.random.default_rng((_SEED, blocks, stream))
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS)
    return np.ascontiguousarray(drawn.T, np.float32)
