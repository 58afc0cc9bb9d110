"""Which interconnect is fastest at which size: one collective on several systems, predicted, measured or imported.

An interconnect is a described system or the machine of a run.  A table has a row for each size and a cell for each
interconnect: its best time, and the ratio to the first interconnect's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from collbench.algorithms import is_library
from collbench.analysis import crossover
from collbench.analysis.crossover import Advantage, Contest, fastest_by_size, format_span
from collbench.cases import Case
from collbench.present.columns import USEFUL, Column, data, record
from collbench.results import Prediction, Timed, timed
from collbench.runfile.schema import case_fields
from collbench.runfile.store import NAME, Run
from collbench.stats import number
from collbench.topology.system import System
from collbench.units import format_range, format_seconds, format_size, printable


def common_ranks(systems: Sequence[System]) -> int | None:
    """Return the largest number of ranks that one of the systems has and all can have; None if there is none."""
    for count in sorted({system.ranks for system in systems}, reverse=True):
        if all(can_have(system, count) for system in systems):
            return count
    return None


def can_have(system: System, ranks: int) -> bool:
    """Return whether so many ranks are some GPUs of one node, or whole nodes that exist or that cards can join."""
    whole = ranks % system.gpus == 0 and (system.nics is not None or ranks <= system.ranks)
    return ranks <= system.gpus or whole


Selected = Callable[[Case, str], bool] | None
Chosen = Callable[[str], bool]
"""Whether an implementation of that name may stand for an interconnect."""


@dataclass(frozen=True)
class Interconnect:
    """A described system or the machine of a run, with its times."""

    name: str  # short and unique
    title: str
    results: tuple[Timed, ...]
    remarks: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """`predicted`, `measured`, `imported`, or several of them."""
        return " and ".join(dict.fromkeys(row.origin for row in self.results)) or "nothing"


def of_run(name: str, run: Run, selected: Selected = None) -> Interconnect:
    """Return the machine of a run with the collectives that have a time, as far as they are selected."""
    title = run.header.topology.name or f"a log of {run.header.imported.tool or 'another tool'}"

    # The clock of another tool may have seen no time pass.
    known = (row for row in timed(run.cases) if row.typical > 0)
    rows = [row for row in known if not selected or selected(row.case, row.implementation)]
    remarks = (f"the run was {run.cut_off}",) if run.cut_off else ()
    return Interconnect(name, title, tuple(rows), remarks)


def of_runs(runs: Sequence[Run], selected: Selected = None) -> list[Interconnect]:
    """Return the machines of runs by the names of their folders; a run that is given twice counts once."""
    by_path = {str(run.path): run for run in reversed(runs)}
    paths = list(dict.fromkeys(str(run.path) for run in runs))
    return [of_run(name, by_path[path], selected) for path, name in zip(paths, short_names(paths), strict=True)]


def short_names(words: Sequence[str]) -> list[str]:
    """Shorten systems and paths to the preset's, the file's or the folder's name; whole where two would be alike."""
    paths = [Path(word) for word in words]
    named = [path.absolute().parent.name if path.name == NAME else path.stem for path in paths]
    short = [name or word for name, word in zip(named, words, strict=True)]
    return [name if short.count(name) == 1 else word for word, name in zip(words, short, strict=True)]


class SizeRanking(NamedTuple):
    """Which interconnects are, or may be, the fastest at a size."""

    names: tuple[str, ...]  # the fastest, then those that are not distinguishable from it
    surely: bool  # whether its interval leaves all others behind; else it is likely so

    def __str__(self) -> str:
        """Return `dgx-h100`, `likely dgx-h100`, or `dgx-h100 or hgx-h200 (not distinguishable)`."""
        tied = " (not distinguishable)" if len(self.names) > 1 else ""
        return f"{'' if self.surely else 'likely '}{' or '.join(self.names)}{tied}"

    def place(self, name: str) -> str:
        """Return whether an interconnect is `surely`, `likely` or `perhaps` the fastest; empty if another one is."""
        if name not in self.names:
            return ""
        if len(self.names) > 1:
            return "perhaps"
        return "surely" if self.surely else "likely"


def ranking(named: Sequence[tuple[Timed, str]]) -> SizeRanking:
    """Rank two rows or more of one size, each with its name."""
    rows = sorted(named, key=lambda pair: pair[0].typical)
    (best, name), *others = rows
    tied, surely = [], True
    for row, other in others:
        advantage = Advantage.of(best, row)
        if not advantage.sign:
            tied.append(other)
        surely = surely and (advantage.apart or not advantage.sign)
    return SizeRanking((name, *tied), surely)


class Cell(NamedTuple):
    """An interconnect at a size: its best row, and its advantage over the first interconnect's."""

    name: str
    row: Timed
    advantage: Advantage | None  # None for the first itself, and where the first has no time
    fastest: str  # as SizeRanking.place says it
    heads: bool  # whether it is the first at its size

    @property
    def ratio(self) -> str:
        """`2.5x` as fast as the first; `~1.1x` where intervals or bands overlap."""
        if self.advantage is None:
            return ""
        return f"{'' if self.advantage.apart else '~'}{self.advantage.times}"

    @property
    def method(self) -> str:
        """The algorithm and protocol that a model expects, or the implementation."""
        return self.row.method or self.row.note.picked or self.row.label


_MARKS = {"surely": "*", "likely": "?", "perhaps": "?", "": " "}
COLUMNS: Sequence[Column[Cell]] = (
    Column("size", lambda cell: format_size(cell.row.case.nbytes) if cell.heads else "", form=">"),
    Column("", lambda cell: f"{_MARKS[cell.fastest]} {printable(cell.name)}", form="<"),
    data("interconnect", lambda cell: cell.name),
    data("origin", lambda cell: cell.row.origin),
    data("implementation", lambda cell: cell.row.implementation),
    data("algorithm", lambda cell: cell.row.algorithm),
    data("protocol", lambda cell: cell.row.protocol),
    Column("time", lambda cell: cell.row.typical, format_seconds, form=">", key="seconds"),
    data("low", lambda cell: number(cell.row.band[0])),
    data("high", lambda cell: number(cell.row.band[1])),
    Column("vs first", lambda cell: cell.ratio, form=">"),
    data("ratio", lambda cell: cell.advantage and cell.advantage.ratio.value),
    data("told_apart", lambda cell: cell.advantage and cell.advantage.apart),
    Column("interval", lambda cell: format_range(*cell.row.band, format_seconds), importance=USEFUL, form=">"),
    Column("algorithm", lambda cell: printable(cell.method), importance=1, form="<"),
    data("fastest", lambda cell: cell.fastest),
)
"""A table of cells, by size and in each by interconnect."""


class SizeLine(NamedTuple):
    """A size at which two interconnects or more have a time: a cell for each, or None where it has none."""

    nbytes: int
    cells: tuple[Cell | None, ...]
    ranking: SizeRanking
    lead: float  # the time of the first behind the fastest, over the slowest not distinguishable from that; 0: none


@dataclass(frozen=True)
class InterconnectTable:
    """A kind of case on several interconnects, whose numbers of ranks may differ."""

    kind: Case  # without size; without ranks where these differ
    interconnects: tuple[Interconnect, ...]  # those with a time
    ranks: tuple[int, ...]  # of each
    lines: tuple[SizeLine, ...]  # by size

    @property
    def title(self) -> str:
        """`allreduce, float, sum, 16 ranks`; without ranks where these differ."""
        return self.kind.title if self.kind.ranks else self.kind.title.rpartition(", ")[0]

    @property
    def unlike(self) -> str:
        """That the interconnects do not have the same number of ranks, if so."""
        if len(set(self.ranks)) == 1:
            return ""
        pairs = zip(self.interconnects, self.ranks, strict=True)
        each = (f"{interconnect.name} {count}" for interconnect, count in pairs)
        return f"not the same number of ranks: {', '.join(each)}"

    @property
    def winning_ranges(self) -> list[str]:
        """The fastest interconnects by range of sizes: `likely dgx-h100 8 B to 2 KiB, by 1.9x .. 2.4x`."""
        ranges = []
        for _, alike in groupby(self.lines, lambda line: (set(line.ranking.names), line.ranking.surely)):
            lines = list(alike)
            words = f"{lines[0].ranking} {format_span(lines[0].nbytes, lines[-1].nbytes)}"
            leads = [line.lead for line in lines if line.lead]
            by = f", by {format_range(min(leads), max(leads), crossover.format_times)}" if leads else ""
            ranges.append(words + by)
        return ranges

    @property
    def contests(self) -> tuple[Contest, ...]:
        """Each interconnect against the first, over the sizes that both have a time for."""
        first, *others = (interconnect.name for interconnect in self.interconnects)
        contests = []
        for name in others:
            points = tuple(cell.advantage for cell in self.cells if cell.name == name and cell.advantage)
            if points:
                contests.append(Contest(self.kind, first, name, points))
        return tuple(contests)

    @property
    def cells(self) -> list[Cell]:
        """All cells, by size and in each in the order of the interconnects."""
        return [cell for line in self.lines for cell in line.cells if cell]

    @property
    def columns(self) -> list[Column[Cell]]:
        """The columns, of which one says what an interval is where all of it is predicted."""
        known = "nine in ten" if all(isinstance(cell.row, Prediction) for cell in self.cells) else "interval"
        return [replace(column, name=known) if column.name == "interval" else column for column in COLUMNS]

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each size and interconnect, for JSON and CSV: seconds, and the ratio to the first."""
        return [case_fields(cell.row.case) | record(COLUMNS, cell) for cell in self.cells]

    def verdict(self) -> list[str]:
        """Return which is fastest where, in sentences; as a fact only where intervals and bands do not overlap."""
        expected = any(isinstance(cell.row, Prediction) for cell in self.cells)
        fastest = f"{'should be fastest' if expected else 'fastest'}: {'; '.join(self.winning_ranges)}"
        names = set(chain.from_iterable(line.ranking.names for line in self.lines))
        if len(names) == 1:
            (name,) = names
            fastest = f"{name} {'' if expected else 'is '}{fastest.replace(f'{name} ', '')}"
        return [fastest, *map(crossover.in_words, self.contests)]


def tables(interconnects: Sequence[Interconnect], chosen: Chosen | None = None) -> list[InterconnectTable]:
    """Return a table for each kind of case of which two interconnects, in the order of the columns, share a size.

    The fastest stands for an interconnect, of those that are `chosen`; without a choice of its library's times, or of
    its exact implementations where it has no library.
    """
    results = chain.from_iterable(interconnect.results for interconnect in interconnects)
    kinds = dict.fromkeys(map(_kind, results))
    every = [_table(kind, interconnects, chosen) for kind in kinds]
    return [table for table in every if table.lines]


def left_out(interconnects: Sequence[Interconnect], compared: Iterable[InterconnectTable]) -> list[str]:
    """Return a sentence for each interconnect that is in no table, which says why."""
    shown = {interconnect.name for table in compared for interconnect in table.interconnects}
    reasons = []
    for interconnect in interconnects:
        if interconnect.name in shown:
            continue
        why = "; ".join(interconnect.remarks) or "no time of a case and size that another one has"
        if interconnect.results and all(row.note.bound for row in interconnect.results):
            why = "nothing measured stands behind what is predicted, which is a bound and no expectation"
        reasons.append(f"{interconnect.name}: {why}")
    return reasons


def _kind(row: Timed) -> Case:
    """Return what rows of a table have in common; the numbers of ranks may differ."""
    return replace(row.case.kind, ranks=0)


def _table(kind: Case, interconnects: Sequence[Interconnect], chosen: Chosen | None) -> InterconnectTable:
    found = {one: _usable([row for row in one.results if _kind(row) == kind], chosen) for one in interconnects}
    rows = {interconnect: usable for interconnect, usable in found.items() if usable}

    # The largest number of ranks that all have, or else the largest of each.
    counts = [{row.case.ranks for row in usable} for usable in rows.values()]
    common = set.intersection(*counts) if counts else set()
    ranks = tuple(max(common or count) for count in counts)
    curves = []
    for usable, count in zip(rows.values(), ranks, strict=True):
        # What was measured later counts, by implementation.
        latest = {(row.case.nbytes, row.implementation): row for row in usable if row.case.ranks == count}
        curves.append(fastest_by_size(latest.values()))
    names = [interconnect.name for interconnect in rows]
    lines = []
    for nbytes in sorted(set().union(*curves)):
        best = [curve.get(nbytes) for curve in curves]
        if len(best) - best.count(None) > 1:
            lines.append(_line(nbytes, names, best))
    title = replace(kind, ranks=ranks[0] if len(set(ranks)) == 1 else 0)
    return InterconnectTable(title, tuple(rows), ranks, tuple(lines))


def _line(nbytes: int, names: Sequence[str], rows: Sequence[Timed | None]) -> SizeLine:
    """Return a size of a table from the best row of each interconnect."""
    named = [(row, name) for row, name in zip(rows, names, strict=True) if row]
    ranked, first = ranking(named), rows[0]
    behind = [row.typical for row, name in named if name not in ranked.names]
    level = max(row.typical for row, name in named if name in ranked.names)
    cells: list[Cell | None] = []
    for row, name in zip(rows, names, strict=True):
        over = Advantage.of(row, first) if row and first and row is not first else None
        cells.append(Cell(name, row, over, ranked.place(name), row is named[0][0]) if row else None)
    return SizeLine(nbytes, tuple(cells), ranked, min(behind) / level if behind else 0.0)


def _usable(rows: Sequence[Timed], chosen: Chosen | None) -> list[Timed]:
    """Return the rows that may stand for an interconnect; not those that are a bound and no expectation."""
    expected: list[Any] = [row for row in rows if not row.note.bound]
    if chosen:
        return [row for row in expected if chosen(row.implementation)]
    return crossover.rivals([row for row in expected if is_library(row.implementation)] or expected)
