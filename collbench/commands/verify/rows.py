"""Rows of run files of `collbench verify --bits`: bits and errors of sums."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from collbench.cases import Work
from collbench.datatypes import Array, Datatype, wire_nbytes
from collbench.host.sanitize import GREATEST
from collbench.properties import PROPERTIES
from collbench.records import Record
from collbench.results.base import Repeated
from collbench.units import Count, counted

RANKS, CALLS, RESTART, GRAPH = "ranks", "calls", "restart", "graph"
POSITION, SIZE = "position", "size"
ALIKE = RANKS, CALLS, RESTART, GRAPH
"""Trials that must give the same bits for a result to be reproducible."""
COMPARED = *ALIKE, *(each.subject for each in PROPERTIES.values()), POSITION, SIZE
ErrorSize = Annotated[float, Meta(ge=0, le=1e300)]
Places = NDArray[np.int64]
_TRUNCATED = 2.0  # error over its bound, which is for additions that round to nearest, if additions truncate
_OCTAVE = 8  # elements of each octave with stored bits


@dataclass(frozen=True)
class Bits(Work):
    """Repeated sums of random values."""

    FIELD: ClassVar = "random_sum"
    MODULE: ClassVar = "collbench.commands.verify.measured"

    law: str

    @property
    def words(self) -> tuple[str, ...]:
        """The law of the values."""
        return "bits", f"{self.law} values"


class BitDifference(Record, frozen=True):
    """The first element with different bits; `str` has its values."""

    what: str  # one of COMPARED
    where: str  # place in words: `call 17 of up to 50, rank 3`
    index: Count = 0
    got: str = ""
    before: str = ""
    elements: Count = 0  # number that differ; 0 if the row stores none of them
    ulps: Count = 0  # largest difference

    def __str__(self) -> str:
        if not self.elements:
            return f"{self.where}: different bits, in elements that the run file does not store"
        first = f"{self.where}: element {self.index:,} is {self.got}, not {self.before}"
        return f"{first}; different bits in {counted(self.elements, 'element')}, by up to {counted(self.ulps, 'ULP')}"


class SumError(NamedTuple):
    """Errors of sums against exact ones."""

    elements: int
    median: ErrorSize  # in ULPs of the type
    most: ErrorSize
    of_bound: ErrorSize  # largest ratio to the error bound of additions in the type, in any order
    accumulation: str  # type of partial sums that the errors show, or "narrower" than the sum's; "" if unknown
    of_wire: ErrorSize = 0.0  # largest ratio to the error bound of a narrow wire format; 0 without one


class SumBits(Repeated, frozen=True, tag="bits"):
    """Facts about the bits of a sum."""

    platform: str
    digest: str  # of all bits of the sum
    bits: tuple[int, ...]  # the bits of the elements at `places`, as signed integers
    calls: int
    compared: tuple[str, ...]  # members of COMPARED
    error: SumError
    differences: tuple[BitDifference, ...] = ()

    @property
    def wrong(self) -> str:
        """Why the sum is wrong, or differs between calls, on ranks, in a graph or after a restart; else empty."""
        ratio = self.error.of_bound / _TRUNCATED if wire_nbytes(self.implementation) is None else self.error.of_wire
        if ratio > 1:
            return f"wrong sum: the error is {ratio:.2g} times the largest of additions in any order"
        return next((f"{found.what}: {found}" for found in self.differences if found.what in ALIKE), "")

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def check(self) -> str:
        """The number of calls with the same bits, and the error of the sum."""
        error = f"error of {self.error.median:.2g} ULPs, at most {self.error.most:.2g}"
        return f"the same bits in {counted(self.calls, 'call')}, {error}"

    def joined(self, results: Sequence[Self]) -> Self:
        """Join the rows of all starts: the first row, with the differences within and between starts."""
        first, *others = results
        compared = (*first.compared, *[RESTART][: len(others)])
        differences: dict[str, BitDifference] = {}
        for number, row in enumerate(results, 1):
            other = first.against(row, RESTART, f"start {number} of {len(results)}")
            for each in (*row.differences, *filter(None, [other])):
                differences.setdefault(each.what, each)
        return replace(first, compared=compared, differences=tuple(differences.values()))

    def against(self, other: Self, what: str, where: str) -> BitDifference | None:
        """Return the difference of another row's bits, or None.

        Elements that both rows store are compared; for rows of the same size, also the digests of all elements.
        """
        dtype = self.case.dtype
        count = min(len(self.bits), len(other.bits))
        bits = (np.array(row.bits[:count], f"i{dtype.itemsize}").view(dtype.storage) for row in (self, other))
        first = difference(what, f"{where}, of {counted(count, 'element')}", dtype, *bits)
        if first:
            return replace(first, index=int(places(other.case.block)[first.index]))
        same = self.case.nbytes != other.case.nbytes or self.digest == other.digest
        return None if same else BitDifference(what, where)


def difference(what: str, where: str, dtype: Datatype, before: Array, got: Array) -> BitDifference | None:
    """Return the first element with different bits and the number of such elements; None if all bits agree."""
    words = f"i{dtype.itemsize}"
    (indices,) = np.nonzero(before.view(words) != got.view(words))
    if not len(indices):
        return None
    new, old = (str(dtype.decode(array[indices[:1]])[0]) for array in (got, before))
    apart = _ulps(dtype, before[indices], got[indices])
    return BitDifference(what, where, int(indices[0]), new, old, len(indices), apart)


def _ulps(dtype: Datatype, before: Array, got: Array) -> int:
    """Return the largest distance between elements, in numbers of the type."""
    ordered = []
    for stored in (before, got):
        # Map neighbouring numbers to neighbouring integers: the bits of negative numbers fall as these rise.
        whole = stored.view(f"i{dtype.itemsize}").astype(np.int64)
        ordered.append(np.where(whole < 0, -(2 ** (8 * dtype.itemsize - 1)) - whole, whole))
    apart = np.maximum(*ordered).view(np.uint64) - np.minimum(*ordered).view(np.uint64)
    return min(int(apart.max()), GREATEST)


def places(count: int) -> Places:
    """Return the elements with stored bits: some of each octave, the same ones for any count."""
    octaves = range(_OCTAVE.bit_length() - 1, (count - 1).bit_length())
    later = [np.arange(2**octave, min(count, 2 ** (octave + 1)), 2**octave // _OCTAVE) for octave in octaves]
    return np.concatenate([np.arange(min(count, _OCTAVE)), *later])
