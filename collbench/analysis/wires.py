"""What narrower wires bring and take: time saved against error introduced, and the sizes from which they pay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.algorithms import find, is_library
from collbench.cases import Case
from collbench.datatypes import Study, Wire
from collbench.results import Measurement, Result, Timed, timed

Times = Mapping[int, Timed]
"""By size."""


@dataclass(frozen=True)
class Tradeoff:
    """A wire in one kind of case, beside the fastest that is exact and the fastest library, at the sizes of all."""

    case: Case  # of the largest size
    name: str
    wire: Wire
    times: Times
    exact: Times  # the fastest of those that are exact, libraries too
    libraries: Times
    study: Study | None  # None where nothing was measured

    def gain(self, others: Times) -> float | None:
        """Their time over this one's at its largest size; None without any."""
        size = max(self.times)
        return others[size].typical / self.times[size].typical if size in others else None

    def pays_from(self, others: Times) -> int | None:
        """The smallest size from which on this one is faster at all larger ones; None if at the largest it is not."""
        paying = None
        for size in sorted(self.times.keys() & others.keys(), reverse=True):
            if self.times[size].typical >= others[size].typical:
                break
            paying = size
        return paying


def tradeoffs(results: Sequence[Result | Timed]) -> list[Tradeoff]:
    """One for each wire and kind of case, in the order of the results."""
    every = list(timed(results))
    return [
        _tradeoff(every, kind, name)
        for kind, name in dict.fromkeys((one.case.kind, one.implementation) for one in every)
        if _wire(name)
    ]


def _wire(name: str) -> Wire | None:
    way = find(name)
    return way.wire if way else None


def _tradeoff(every: Sequence[Timed], kind: Case, name: str) -> Tradeoff:
    wire = _wire(name)
    assert wire
    same = [one for one in every if one.case.kind == kind]
    own = {one.case.nbytes: one for one in same if one.implementation == name}
    exact = _fastest([one for one in same if not _wire(one.implementation)])
    libraries = _fastest([one for one in same if is_library(one.implementation)])
    studies = (one.errors for one in own.values() if isinstance(one, Measurement) and one.errors)
    return Tradeoff(own[max(own)].case, name, wire, own, exact, libraries, next(studies, None))


def _fastest(rows: Sequence[Timed]) -> Times:
    best: dict[int, Timed] = {}
    for row in sorted(rows, key=lambda row: row.typical, reverse=True):
        best[row.case.nbytes] = row
    return best
