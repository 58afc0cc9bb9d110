"""Matrix products whose result is exactly known, however many there were: what ranks compute in a step.

A chain: each product multiplies the last result by the same signed permutation matrix, dense and in float32, so the
library that multiplies knows nothing of it.  Every sum of a product then has one term that is not zero, and is exact in
any order and any format that holds small integers; so after n products every element is known, and a product that was
left out, made twice or made wrong is seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collbench.results.facts import GemmMismatch

Matrix = NDArray[np.float32]
Moment = float | Callable[[], float]
"""When something was reached on a rank's queue, in seconds of a clock that all ranks share; `at` tells once it was.

Where it is known at once it is that number: a call for it would cost more than a clock, and so would its memory.
"""

_LARGEST = 8  # magnitude of an element; TF32 and all wider formats hold it


class Products(Protocol):
    """The matrices of the ranks that a process holds; computing has a queue of its own for every rank."""

    def enqueue(self, rank: int, count: int) -> None:
        """So many products on the computing queue of a local rank."""

    def moment(self, rank: int) -> Moment:
        """When that queue gets here."""

    def hand_over(self, rank: int) -> None:
        """Make what is enqueued next for the rank's collectives wait for what the rank has computed so far."""
        return

    def take_over(self, rank: int) -> None:
        """Make what the rank computes next wait for what is enqueued for its collectives so far."""
        return

    def reset(self) -> None:
        """Start the chains anew."""

    def check(self) -> GemmMismatch | None:
        """*Collective*: the first wrong element over all ranks, or None if every product was made."""


def at(moment: Moment) -> float:
    """Seconds, once the queue has got there."""
    return moment if isinstance(moment, float) else moment()


@dataclass(frozen=True)
class Chain:
    """The matrices of one rank, shape (size, size) each."""

    size: int
    rank: int

    @cached_property
    def _random(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Matrix]:
        draws = np.random.default_rng((self.size, self.rank))
        order, signs = draws.permutation(self.size), draws.choice([-1, 1], self.size)
        return order, signs, draws.integers(-_LARGEST, _LARGEST + 1, (self.size, self.size)).astype(np.float32)

    @property
    def factor(self) -> Matrix:
        """What every product multiplies by, from the left."""
        order, signs, _ = self._random
        matrix = np.zeros((self.size, self.size), np.float32)
        matrix[np.arange(self.size), order] = signs
        return matrix

    @property
    def start(self) -> Matrix:
        """What the first product multiplies."""
        return self._random[2]

    def rows(self, count: int) -> NDArray[np.int32]:
        """Return which row of the start each row of the result is after so many products: from 1 on, times its sign."""
        order, signs, _ = self._random
        row, sign = np.arange(self.size), np.ones(self.size, np.int64)

        # By squaring: `order` is the permutation of 1, 2, 4, 8, ... products.
        while count:
            if count & 1:
                row, sign = order[row], sign * signs[row]
            order, signs = order[order], signs * signs[order]
            count >>= 1
        return (sign * (row + 1)).astype(np.int32)

    def failure(self, count: int, got: Matrix) -> GemmMismatch | None:
        """Return what is wrong with a result after so many products, or None."""
        rows = self.rows(count)
        expected = np.sign(rows).astype(np.float32)[:, None] * self.start[np.abs(rows) - 1]

        # Not `!=`: NaN must differ, which is equal to nothing.
        places: Sequence[NDArray[np.int64]] = np.nonzero(~(got == expected))
        if not len(places[0]):
            return None
        row, column = int(places[0][0]), int(places[1][0])
        values = f"{got[row, column]:g}", f"{expected[row, column]:g}"
        return GemmMismatch(self.rank, count, row, column, *values, wrong=len(places[0]))
