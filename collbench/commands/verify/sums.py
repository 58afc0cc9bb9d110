"""Values to add, sums of them that are exact, and how far from these a result is.

Values are made of the raw words of a counter-based generator, which NumPy keeps as they are from release to release,
by additions and multiplications alone: so they have the same bits on every machine.  An element's value depends on
its law, its rank and its index, not on how many there are.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from collbench.commands.verify.rows import SumError
from collbench.datatypes import DATATYPES, Array, Datatype

Numbers = NDArray[np.float64]
_OTHER = 2**32  # streams behind those of ranks
_AT_ONCE = 2**18  # elements
_ROOT_OF_3 = 1.7320508075688772
_LAYER = 1024  # elements of one scale
_TELLING = 128  # elements from which on a rounding at each addition shows in some of them for sure
_WIDE = {"float": "double", "half": "float", "bfloat16": "float"}  # what may keep partial sums instead
_ENDLESS = 1e100
_SLACK = 1 + 2.0**-10  # for terms of second order in the bound


def _uniform(stream: int, first: int, count: int) -> Numbers:
    """Return four numbers below 1 for each element of a stream, of shape (4, count)."""
    words = np.random.Philox(key=stream).advance(first).random_raw(4 * count)  # four at each step of its counter
    return (words >> np.uint64(11)).astype(np.float64).reshape(count, 4).T * 2.0**-53


def _normal(stream: int, first: int, count: int) -> Numbers:
    """Return numbers that are nearly normal, with a standard deviation of 1: sums of four that are not."""
    one, two, three, four = _uniform(stream, first, count)

    # The factor takes them off the grid of the uniform numbers, on which additions would be exact.
    normal: Numbers = (one + two + (three + four) - 2.0) * _ROOT_OF_3
    return normal


def _wide(rank: int, first: int, count: int) -> Numbers:
    """Return the same times a power of two from 2**-25 to 2**6."""
    exponents = (32 * _uniform(_OTHER + rank, first, count)[0]).astype(np.int64) - 25
    wide: Numbers = np.ldexp(_normal(rank, first, count), exponents)
    return wide


def _gradient(rank: int, first: int, count: int) -> Numbers:
    """Return noise of each rank with a mean of all of them, a quarter of it, in layers with scales of 2**-8 to 1/2."""
    start = first // _LAYER
    layers = np.arange(first, first + count) // _LAYER - start
    scales = (8 * _uniform(2 * _OTHER + 1, start, int(layers[-1]) + 1)[0]).astype(np.int64) - 8
    mean = 0.25 * _normal(2 * _OTHER, first, count)
    gradient: Numbers = np.ldexp(_normal(rank, first, count) + mean, scales[layers])
    return gradient


LAWS: dict[str, Callable[[int, int, int], Numbers]] = {"normal": _normal, "wide": _wide, "gradient": _gradient}
"""What ranks add, by name: so many values of a rank from one on, of shape (count,)."""


def values(law: str, dtype: Datatype, rank: int, count: int) -> Array:
    """Return what a rank adds: storage values, shape (count,)."""
    added = np.zeros(count, dtype.storage)
    for first in range(0, count, _AT_ONCE):  # which takes 200 bytes for an element meanwhile
        part = added[first : first + _AT_ONCE]
        part[:] = dtype.encode(LAWS[law](rank, first, len(part)))
    return added


def with_term(parts: Sequence[Numbers], term: Numbers) -> list[Numbers]:
    """Return parts that add up to those before and one more term, exactly, the smallest first (J. Shewchuk, 1997)."""
    grown = []
    for part in parts:
        # Knuth's sum of two: what the rounded sum lost is a number of its own.
        total = term + part
        virtual = total - term
        grown.append((term - (total - virtual)) + (part - virtual))
        term = total
    return [*grown, term]


def exact(terms: Iterable[Numbers]) -> list[Numbers]:
    """Return parts whose sum is that of the terms, element by element, without any rounding."""
    return reduce(with_term, terms, [])


def nearest(parts: Sequence[Numbers]) -> Numbers:
    """Return the sum of such parts to the last bit of a float64 or nearly: they do not overlap."""
    return reduce(np.add, parts)


def _ulp(dtype: Datatype, numbers: Numbers) -> Numbers:
    """Return how far numbers of the type are apart there; below the smallest normal one as far as at that."""
    smallest = float(dtype.decode(np.ones(1, f"u{dtype.itemsize}").view(dtype.storage))[0])
    spacing = np.ldexp(1.0, np.frexp(numbers)[1] - dtype.precision)
    return np.where(numbers == 0, smallest, np.maximum(spacing, smallest))


class ExactSums:
    """Sums of what ranks add, as they would be without rounding: of `terms` with shape (ranks, elements)."""

    def __init__(self, dtype: Datatype, terms: Array) -> None:
        numbers = [dtype.decode(row).astype(np.float64) for row in terms]
        self._dtype, self._ranks, self._parts = dtype, len(numbers), exact(numbers)

        # Each of ranks - 1 additions loses up to half a unit of a partial sum, none of which is larger than all terms
        # together (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2).
        self._added = (len(numbers) - 1) * reduce(np.add, map(np.abs, numbers)) * _SLACK

    def error(self, got: Array) -> SumError:
        """Return how far sums, as storage values of shape (elements,), are off, and what that says."""
        dtype, total = self._dtype, nearest(self._parts)
        sums = np.nan_to_num(dtype.decode(got).astype(np.float64), nan=_ENDLESS, posinf=_ENDLESS, neginf=-_ENDLESS)
        off = np.abs(nearest(with_term(self._parts, -sums)))
        bound, wide = self._added * 2.0**-dtype.precision, _WIDE.get(dtype.name)
        of_bound = float(np.max(off / np.where(bound > 0, bound, 1.0)))

        # Where terms cancel to nothing, the exact sum has no unit in the last place, and the result has one.
        ulps = off / _ulp(dtype, np.maximum(np.abs(total), np.abs(sums)))

        # Partial sums of a wider type are rounded to this one once, at the end; of two ranks every sum is.
        accumulation = dtype.name if self._ranks > 2 and len(got) >= _TELLING else ""
        if accumulation and wide:
            once = _ulp(dtype, total) / 2 + self._added * 2.0 ** -DATATYPES[wide].precision
            accumulation = wide if np.all(off <= once) else accumulation
        return SumError(
            elements=len(got),
            median=float(np.median(ulps)),
            most=float(ulps.max()),
            of_bound=of_bound,
            accumulation=accumulation if of_bound <= 1 else "narrower",
        )
