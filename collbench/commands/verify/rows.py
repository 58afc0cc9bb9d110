"""Rows of run files: whether a sum has the same bits whenever and wherever it is made, and how far off it is."""

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
"""What must have the same bits for a result to be reproducible."""
COMPARED = *ALIKE, *(each.subject for each in PROPERTIES.values()), POSITION, SIZE
ErrorSize = Annotated[float, Meta(ge=0, le=1e300)]
Places = NDArray[np.int64]
_WILD = 2.0**-3  # of all terms together: sums that are farther off are none, unless a wire is narrow
_OCTAVE = 8  # elements of each octave of which a row has the bits


@dataclass(frozen=True)
class Bits(Work):
    """A sum of random values is made again and again."""

    FIELD: ClassVar = "random_sum"
    MODULE: ClassVar = "collbench.commands.verify.measured"

    law: str

    @property
    def words(self) -> tuple[str, ...]:
        """The law of the values."""
        return "bits", f"{self.law} values"


class BitDifference(Record, frozen=True):
    """The first element that has other bits; `str` says what it was and is."""

    what: str  # of COMPARED
    where: str  # what changed: `call 17 of up to 50, rank 3`
    index: Count = 0
    got: str = ""
    before: str = ""
    elements: Count = 0  # that differ; 0 of a row that has none of them
    ulps: Count = 0  # by which they do at most

    def __str__(self) -> str:
        if not self.elements:
            return f"{self.where}: other bits, in elements that the run file does not have"
        first = f"{self.where}: element {self.index:,} is {self.got}, not {self.before}"
        return f"{first}; other bits in {counted(self.elements, 'element')}, by up to {counted(self.ulps, 'ULP')}"


class SumError(NamedTuple):
    """How far sums are from exact ones."""

    elements: int
    median: ErrorSize  # in ULPs of the type
    most: ErrorSize
    of_bound: ErrorSize  # the largest, over what additions in the type may lose in any order
    accumulation: str  # the type of partial sums that errors betray, or "narrower" than the sum's; "" if they do not


class SumBits(Repeated, frozen=True, tag="bits"):
    """Facts about the bits of a sum."""

    platform: str
    digest: str  # of all bits of the sum
    bits: tuple[int, ...]  # the bits of the elements at `places`, as signed integers
    calls: int  # that were made
    compared: tuple[str, ...]  # of COMPARED
    error: SumError
    differences: tuple[BitDifference, ...] = ()

    @property
    def wrong(self) -> str:
        """Why the sum is none, or not the same in every call, on all ranks, in a graph and after a restart."""
        additions = max(1, self.case.ranks - 1) * 2.0**-self.case.dtype.precision
        if wire_nbytes(self.implementation) is None and self.error.of_bound * additions > _WILD:
            return "no sum: it is farther off than any type can bring it"
        return next((f"{found.what}: {found}" for found in self.differences if found.what in ALIKE), "")

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def check(self) -> str:
        """How often the bits were the same, and how far off the sum is."""
        error = f"error of {self.error.median:.2g} ULPs, at most {self.error.most:.2g}"
        return f"the same bits in {counted(self.calls, 'call')}, {error}"

    def joined(self, results: Sequence[Self]) -> Self:
        """Return the rows of all starts as one: the first, with what differs in any or between them."""
        first, *others = results
        compared = (*first.compared, *[RESTART][: len(others)])
        found: dict[str, BitDifference] = {}
        for number, row in enumerate(results, 1):
            other = first.against(row, RESTART, f"start {number} of {len(results)}")
            for each in (*row.differences, *filter(None, [other])):
                found.setdefault(each.what, each)
        calls = min(row.calls for row in results)
        return replace(first, calls=calls, compared=compared, differences=tuple(found.values()))

    def against(self, other: Self, what: str, where: str) -> BitDifference | None:
        """Return how the bits of another row differ, in the elements that both have; of one size, in any element."""
        dtype = self.case.dtype
        count = min(len(self.bits), len(other.bits))
        bits = (np.array(row.bits[:count], f"i{dtype.itemsize}").view(dtype.storage) for row in (self, other))
        found = difference(what, f"{where}, of {count} elements", dtype, *bits)
        if found:
            return replace(found, index=int(places(other.case.block)[found.index]))
        same = self.case.nbytes != other.case.nbytes or self.digest == other.digest
        return None if same else BitDifference(what, where)


def difference(what: str, where: str, dtype: Datatype, before: Array, got: Array) -> BitDifference | None:
    """Return the first element with other bits than before, and how many there are; None where there is none."""
    words = f"i{dtype.itemsize}"
    (indices,) = np.nonzero(before.view(words) != got.view(words))
    if not len(indices):
        return None
    one, other = (str(dtype.decode(array[indices[:1]])[0]) for array in (got, before))
    apart = _ulps(dtype, before[indices], got[indices])
    return BitDifference(what, where, int(indices[0]), one, other, len(indices), apart)


def _ulps(dtype: Datatype, before: Array, got: Array) -> int:
    """Return how many numbers of the type lie between two at most."""
    ordered = []
    for stored in (before, got):
        # Integers that are one apart where numbers are neighbours: those of numbers below 0 fall as bits rise.
        whole = stored.view(f"i{dtype.itemsize}").astype(np.int64)
        ordered.append(np.where(whole < 0, -(2 ** (8 * dtype.itemsize - 1)) - whole, whole))
    apart = np.maximum(*ordered).view(np.uint64) - np.minimum(*ordered).view(np.uint64)
    return min(int(apart.max()), GREATEST)


def places(count: int) -> Places:
    """Return the elements of which a row has the bits: some of each octave, the same ones however many there are."""
    octaves = range(_OCTAVE.bit_length() - 1, (count - 1).bit_length())
    later = [np.arange(2**octave, min(count, 2 ** (octave + 1)), 2**octave // _OCTAVE) for octave in octaves]
    return np.concatenate([np.arange(min(count, _OCTAVE)), *later])
