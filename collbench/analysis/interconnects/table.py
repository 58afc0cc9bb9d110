"""Interconnects side by side: at each size the time of each, and its ratio to the first."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from collbench.algorithms import is_library
from collbench.analysis.advantage import Advantage
from collbench.analysis.crossover import Contest, in_words, rivals
from collbench.analysis.interconnects.interconnect import Interconnect
from collbench.analysis.interconnects.reigns import Change, Lead, Reign, changes, lead, reigns
from collbench.cases import Case
from collbench.results import Prediction, Timed

Wanted = Callable[[str], bool]
"""Whether an implementation of that name may stand for an interconnect."""


class Cell(NamedTuple):
    """An interconnect at a size: its best row, and its advantage over the first interconnect's."""

    row: Timed
    advantage: Advantage | None  # of the first itself none; nor where that has no time

    @property
    def ratio(self) -> str:
        """`2.5x` as fast as the first; `~1.1x` where intervals or bands overlap."""
        if self.advantage is None:
            return ""
        return f"{'' if self.advantage.apart else '~'}{self.advantage.times}"

    @property
    def way(self) -> str:
        """By what: the algorithm and protocol that a model expects, or the implementation."""
        row = self.row
        chosen = [row.algorithm, row.protocol] if isinstance(row, Prediction) else []
        return "/".join(filter(None, chosen)) or row.note.picked or row.label


class Line(NamedTuple):
    """A size at which two interconnects or more have a time: a cell for each, or None where it has none."""

    nbytes: int
    cells: tuple[Cell | None, ...]
    lead: Lead


@dataclass(frozen=True)
class Table:
    """One kind of case on several interconnects, whose numbers of ranks may differ."""

    kind: Case  # without size; without ranks where these differ
    interconnects: tuple[Interconnect, ...]  # those with a time
    ranks: tuple[int, ...]  # of each
    lines: tuple[Line, ...]  # by size

    @property
    def title(self) -> str:
        """`allreduce, float, sum, 16 ranks`; without ranks where these differ."""
        return self.kind.title if self.kind.ranks else self.kind.title.rpartition(", ")[0]

    @property
    def unlike(self) -> str:
        """That they do not have the same number of ranks, if so."""
        if len(set(self.ranks)) == 1:
            return ""
        each = (f"{one.name} {count}" for one, count in zip(self.interconnects, self.ranks, strict=True))
        return f"not the same number of ranks: {', '.join(each)}"

    @property
    def reigns(self) -> tuple[Reign, ...]:
        """Who wins from where on."""
        return reigns((line.nbytes, line.lead) for line in self.lines)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Where the fastest becomes another."""
        return changes(self.reigns)

    @property
    def contests(self) -> tuple[Contest, ...]:
        """Each interconnect against the first, over the sizes that both have a time for."""
        first, *others = (interconnect.name for interconnect in self.interconnects)
        found = []
        for place, name in enumerate(others, 1):
            cells = [line.cells[place] for line in self.lines]
            points = tuple(cell.advantage for cell in cells if cell and cell.advantage)
            found += [Contest(self.kind, first, name, points)] if points else []
        return tuple(found)

    def verdict(self) -> list[str]:
        """Who wins from where on, in sentences; a fact only where intervals and bands leave room between them."""
        expected = any(isinstance(cell.row, Prediction) for line in self.lines for cell in line.cells if cell)
        fastest = f"{'should be fastest' if expected else 'fastest'}: {'; '.join(map(str, self.reigns))}"
        return [fastest, *map(str, self.changes), *map(in_words, self.contests)]


def tables(interconnects: Sequence[Interconnect], wanted: Wanted | None = None) -> list[Table]:
    """A table for each kind of case of which two have a size in common, in the order of the first that has it.

    `wanted` chooses implementations; without it an interconnect is as fast as its library, or as its exact
    implementations where it has no library.  The fastest of them stands for it.
    """
    kinds = dict.fromkeys(_kind(row.case) for interconnect in interconnects for row in interconnect.results)
    found = [_table(kind, interconnects, wanted) for kind in kinds]
    return [table for table in found if table.lines]


def left_out(interconnects: Sequence[Interconnect], found: Iterable[Table]) -> list[str]:
    """For each that is in no table, a sentence that says why."""
    there = {one.name for table in found for one in table.interconnects}
    return [f"{one.name}: {_why(one)}" for one in interconnects if one.name not in there]


def _why(one: Interconnect) -> str:
    if one.results and all(row.note.bound for row in one.results):
        return "nothing measured stands behind what is predicted, which is a bound and no expectation"
    return "; ".join(one.remarks) or "no time of a case and size that another one has"


def _kind(case: Case) -> Case:
    return replace(case, nbytes=0, ranks=0)


def _table(kind: Case, interconnects: Sequence[Interconnect], wanted: Wanted | None) -> Table:
    rows = {one: _chosen([row for row in one.results if _kind(row.case) == kind], wanted) for one in interconnects}
    rows = {one: those for one, those in rows.items() if those}
    ranks = _ranks([{row.case.ranks for row in those} for those in rows.values()])
    best = [
        _best([row for row in those if row.case.ranks == count])
        for those, count in zip(rows.values(), ranks, strict=True)
    ]
    sizes = sorted({nbytes for curve in best for nbytes in curve})
    names = [one.name for one in rows]
    columns = {nbytes: [curve.get(nbytes) for curve in best] for nbytes in sizes}
    lines = tuple(
        _line(nbytes, names, those) for nbytes, those in columns.items() if len(those) - those.count(None) > 1
    )
    title = replace(kind, ranks=ranks[0] if len(set(ranks)) == 1 else 0)
    return Table(title, tuple(rows), tuple(ranks), lines)


def _chosen(rows: Sequence[Timed], wanted: Wanted | None) -> list[Timed]:
    """Without what is a bound and no expectation."""
    told = [row for row in rows if not row.note.bound]
    if wanted:
        return [row for row in told if wanted(row.implementation)]
    own: list[Any] = [row for row in told if is_library(row.implementation)] or told
    return rivals(own)


def _ranks(counts: Sequence[set[int]]) -> list[int]:
    """Of each the largest number of ranks that all have, or else its own largest."""
    common = set.intersection(*counts) if counts else set()
    return [max(common or own) for own in counts]


def _best(rows: Sequence[Timed]) -> dict[int, Timed]:
    """By size, the fastest; of what was measured twice the later, by implementation."""
    latest = {(row.case.nbytes, row.implementation): row for row in rows}
    best: dict[int, Timed] = {}
    for (nbytes, _), row in latest.items():
        if nbytes not in best or row.typical < best[nbytes].typical:
            best[nbytes] = row
    return best


def _line(nbytes: int, names: Sequence[str], rows: Sequence[Timed | None]) -> Line:
    first = rows[0]
    cells = tuple(
        Cell(row, Advantage.of(row, first) if first and row is not first else None) if row else None for row in rows
    )
    there = [(row, name) for row, name in zip(rows, names, strict=True) if row]
    return Line(nbytes, cells, lead(there))
