"""A gradient in float64, and how far one in float32 may be from it: a bound that is proved, not tuned.

Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, chapters 3.1 and
3.3): a sum of n products, added in any order, fused or not, is off by at most gamma(n) times the sum of magnitudes,
and an operation by u times its result.  Errors of what goes in are carried on by the magnitudes of what they meet;
softsign changes by no more than its argument, and its derivative by no more than twice that.  What float64 rounds
itself, and the float32 of the bound, are in SLACK; what underflows is in FLOOR.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Job
from collbench.learning.data import Samples
from collbench.learning.network import Floats, parts

UNIT = 2.0**-24  # of float32: half the distance from 1 to the next number
SLACK = 1.001
FLOOR = 1e-30  # far more than thousands of numbers that underflow, each off by 2**-150 or less, come to

Gradient = tuple[NDArray[np.float64], NDArray[np.float64]]
"""A gradient, and how far one in float32 may be from it, number by number."""


def gamma(operations: int) -> float:
    """The relative error that so many roundings can come to (Higham, lemma 3.1)."""
    return operations * UNIT / (1 - operations * UNIT)


class _Bounded:
    """Numbers in float64, and how far those in float32 may be from them, which float32 says well enough; 0.0: exact."""

    def __init__(self, value: Floats, off: Any = 0.0) -> None:
        self.value, self.off = value, off

    @cached_property
    def size(self) -> Floats:
        """Magnitudes."""
        return np.abs(self.value).astype(np.float32)

    @cached_property
    def most(self) -> Floats:
        """What magnitudes in float32 are at most."""
        most: Floats = self.size + self.off
        return most

    @property
    def turned(self) -> "_Bounded":
        return _Bounded(self.value.T, np.transpose(self.off))

    def times(self, other: "_Bounded", plus: Floats | None = None) -> "_Bounded":
        """A matrix product, and perhaps exact numbers added to each row."""
        share = np.float32(gamma(self.value.shape[1] + 1))
        off = (share * self.most + self.off) @ other.size
        if np.ndim(other.off):
            off += self.most @ ((1 + share) * other.off)
        value = self.value @ other.value
        if plus is None:
            return _Bounded(value, off)
        return _Bounded(value + plus, off + share * np.abs(plus).astype(np.float32))

    def each(self, other: "_Bounded") -> "_Bounded":
        """Products of single numbers."""
        off = self.size * other.off + self.off * other.most + np.float32(UNIT) * (self.most * other.most)
        return _Bounded(self.value * other.value, off)

    def summed(self) -> "_Bounded":
        """The sum of all rows."""
        return _Bounded(self.value.sum(axis=0), (self.off + np.float32(gamma(len(self.value))) * self.most).sum(axis=0))


def bounded_gradient(job: Job, weights: NDArray[np.float32], samples: Samples) -> Gradient:
    """The gradient of network.gradient, for weights and samples that are exact."""
    inputs, wanted = (part.astype(np.float64) for part in samples)
    first, offset, second, last = parts(job, weights.astype(np.float64))
    given = _Bounded(inputs)
    before = given.times(_Bounded(first), offset)
    inverse = 1 / (1 + np.abs(before.value))
    between = _Bounded(before.value * inverse, before.off + _few(3))  # an addition, a division, a product; |.| <= 1
    slope = _Bounded(inverse * inverse, 2 * before.off + _few(5))
    answers = between.times(_Bounded(second), last)
    error, scale = answers.value - wanted, np.float32(1 / len(inputs))
    off = answers.off + _few(2) * (np.abs(error).astype(np.float32) + answers.off)
    share = _Bounded(error * float(scale), scale * off)
    back = share.times(_Bounded(second.T)).each(slope)
    made = given.turned.times(back), back.summed(), between.turned.times(share), share.summed()
    exact = np.concatenate([part.value.ravel() for part in made])
    return exact, SLACK * np.concatenate([part.off.ravel() for part in made]).astype(np.float64) + FLOOR


def _few(operations: int) -> np.float32:
    return np.float32(gamma(operations))
