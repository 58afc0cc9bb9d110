"""Gain and loss of narrower wires: time saved against error introduced, and the sizes from which they pay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.algorithms import is_library
from collbench.analysis.crossover import fastest_by_size
from collbench.cases import Case
from collbench.datatypes import Study, wire_nbytes
from collbench.results import Measurement, Result, Timed, by_key, timed

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
    kinds = by_key(timed(results), lambda row: row.case.kind)
    every = []
    for (kind, name), curve in by_key(timed(results), lambda row: row.curve).items():
        nbytes = wire_nbytes(name)
        if nbytes is None:
            continue
        times = {row.case.nbytes: row for row in curve}
        exact = fastest_by_size(row for row in kinds[kind] if wire_nbytes(row.implementation) is None)
        libraries = fastest_by_size(row for row in kinds[kind] if is_library(row.implementation))
        studies = (row.errors for row in times.values() if isinstance(row, Measurement) and row.errors)
        case = times[max(times)].case
        every.append(Tradeoff(case, name, nbytes, times, exact, libraries, next(studies, None)))
    return every
