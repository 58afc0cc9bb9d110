"""What narrower wires bring and take: time saved against error introduced, and the sizes from which they pay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.algorithms import is_library
from collbench.analysis.crossover import fastest_by_size
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
        if nbytes is None:
            continue
        rows = [row for row in every if row.case.kind == kind]
        times = {row.case.nbytes: row for row in rows if row.implementation == name}
        exact = fastest_by_size(row for row in rows if wire_nbytes(row.implementation) is None)
        libraries = fastest_by_size(row for row in rows if is_library(row.implementation))
        studies = [row.errors for row in times.values() if isinstance(row, Measurement) and row.errors]
        study = studies[0] if studies else None
        found.append(Tradeoff(times[max(times)].case, name, nbytes, times, exact, libraries, study))
    return found
