"""What narrower wires bring and take: time saved against error introduced, and the sizes from which they pay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.algorithms import is_library
from collbench.cases import Case
from collbench.datatypes import Study, wire_nbytes
from collbench.results import Measurement, Result, Timed, timed

Times = Mapping[int, Timed]
"""Results by size in bytes."""


@dataclass(frozen=True)
class Tradeoff:
    """A narrow implementation in one kind of case, next to the fastest exact one and the fastest library."""

    case: Case  # of the largest size
    name: str  # of the implementation
    nbytes: float  # on the wire for each element
    times: Times
    exact: Times  # the fastest of the exact implementations, libraries included
    libraries: Times
    study: Study | None  # None where nothing was measured

    def gain(self, others: Times) -> float | None:
        """Return the others' time over this one's at its largest size; None if they have no time there."""
        size = max(self.times)
        return others[size].typical / self.times[size].typical if size in others else None

    def pays_from(self, others: Times) -> int | None:
        """Return the smallest size from which on this one is faster at all larger ones; None if it never is."""
        paying = None
        for size in sorted(self.times.keys() & others.keys(), reverse=True):
            if self.times[size].typical >= others[size].typical:
                break
            paying = size
        return paying


def tradeoffs(results: Sequence[Result | Timed]) -> list[Tradeoff]:
    """Return a trade-off for each narrow implementation and kind of case, in the order of the results."""
    every = list(timed(results))
    found = []
    for kind, name in dict.fromkeys((row.case.kind, row.implementation) for row in every):
        nbytes = wire_nbytes(name)
        if nbytes is not None:
            found.append(_tradeoff([row for row in every if row.case.kind == kind], name, nbytes))
    return found


def _tradeoff(rows: Sequence[Timed], name: str, nbytes: float) -> Tradeoff:
    times = {row.case.nbytes: row for row in rows if row.implementation == name}
    studies = [row.errors for row in times.values() if isinstance(row, Measurement) and row.errors]
    return Tradeoff(
        case=times[max(times)].case,
        name=name,
        nbytes=nbytes,
        times=times,
        exact=_fastest([row for row in rows if wire_nbytes(row.implementation) is None]),
        libraries=_fastest([row for row in rows if is_library(row.implementation)]),
        study=studies[0] if studies else None,
    )


def _fastest(rows: Sequence[Timed]) -> Times:
    best: dict[int, Timed] = {}
    for row in sorted(rows, key=lambda row: row.typical, reverse=True):
        best[row.case.nbytes] = row
    return best
