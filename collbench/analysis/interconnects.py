"""Comparison of interconnects: the fastest of several systems at each size.

An interconnect is a described system or the machine of a run, with predicted, measured or imported times.  A table has
a row for each size and a cell for each interconnect: its best time, and the ratio to the first interconnect's.
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
    """Return the largest number of ranks of a system that all systems can have, or None."""
    for count in sorted({system.ranks for system in systems}, reverse=True):
        if all(can_have(system, count) for system in systems):
            return count
    return None


def can_have(system: System, ranks: int) -> bool:
    """Return whether ranks fit one node of a system, or whole nodes that exist or that network cards can join."""
    whole = ranks % system.gpus == 0 and (system.nics is not None or ranks <= system.ranks)
    return ranks <= system.gpus or whole


Selected = Callable[[Case, str], bool] | None
Chosen = Callable[[str], bool]
"""A function that returns whether the implementation *name* may stand for an interconnect."""


@dataclass(frozen=True)
class Interconnect:
    """A described system or the machine of a run, with its times."""

    name: str  # short and unique
    title: str
    results: tuple[Timed, ...]
    remarks: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The origin of the times: `predicted`, `measured`, `imported`, or several."""
        return " and ".join(dict.fromkeys(row.origin for row in self.results)) or "nothing"


def of_run(name: str, run: Run, selected: Selected = None) -> Interconnect:
    """Return the machine of a run with its selected results that have a time."""
    title = run.header.topology.name or f"a log of {run.header.imported.tool or 'another tool'}"

    # The clock of another tool may report a time of 0.
    positive = (row for row in timed(run.cases) if row.typical > 0)
    rows = [row for row in positive if not selected or selected(row.case, row.implementation)]
    remarks = (f"the run was {run.cut_off}",) if run.cut_off else ()
    return Interconnect(name, title, tuple(rows), remarks)


def of_runs(runs: Sequence[Run], selected: Selected = None) -> list[Interconnect]:
    """Return the machines of runs, named after their folders; a run given twice counts once."""
    by_path = {str(run.path): run for run in reversed(runs)}
    paths = list(dict.fromkeys(str(run.path) for run in runs))
    return [of_run(name, by_path[path], selected) for path, name in zip(paths, short_names(paths), strict=True)]


def short_names(words: Sequence[str]) -> list[str]:
    """Shorten systems and paths to the name of the preset, file or folder, unless two would be equal."""
    paths = [Path(word) for word in words]
    named = [path.absolute().parent.name if path.name == NAME else path.stem for path in paths]
    short = [name or word for name, word in zip(named, words, strict=True)]
    return [name if short.count(name) == 1 else word for word, name in zip(words, short, strict=True)]


class SizeRanking(NamedTuple):
    """The interconnects that are or may be the fastest at a size."""

    names: tuple[str, ...]  # the fastest, then indistinguishable ones
    surely: bool  # whether the interval of the fastest is apart from all others; else it is likely the fastest

    def __str__(self) -> str:
        """Return `dgx-h100`, `likely dgx-h100`, or `dgx-h100 or hgx-h200 (not distinguishable)`."""
        tied = " (not distinguishable)" if len(self.names) > 1 else ""
        return f"{'' if self.surely else 'likely '}{' or '.join(self.names)}{tied}"

    def place(self, name: str) -> str:
        """Return `surely`, `likely` or `perhaps` for a fastest interconnect; empty for others."""
        if name not in self.names:
            return ""
        if len(self.names) > 1:
            return "perhaps"
        return "surely" if self.surely else "likely"


def ranking(named: Sequence[tuple[Timed, str]]) -> SizeRanking:
    """Rank at least two rows of one size, each with its name."""
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
    advantage: Advantage | None  # None for the first itself, and if the first has no time
    fastest: str  # the word of SizeRanking.place
    heads: bool  # whether it is the first cell of its size

    @property
    def ratio(self) -> str:
        """The speed ratio to the first: `2.5x`, or `~1.1x` if intervals or bands overlap."""
        if self.advantage is None:
            return ""
        return f"{'' if self.advantage.apart else '~'}{self.advantage.times}"

    @property
    def method(self) -> str:
        """The algorithm and protocol by the model, or the implementation."""
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
"""The columns of cells, by size and interconnect."""


class SizeLine(NamedTuple):
    """A size with times of at least two interconnects."""

    nbytes: int
    cells: tuple[Cell | None, ...]  # by interconnect; None without a time
    ranking: SizeRanking
    lead: float  # time of the next interconnect over that of the slowest among the fastest; 0 without a next one


@dataclass(frozen=True)
class InterconnectTable:
    """A kind of case on several interconnects; numbers of ranks may differ."""

    kind: Case  # without a size; without ranks if they differ
    interconnects: tuple[Interconnect, ...]  # with a time
    ranks: tuple[int, ...]  # of each interconnect
    lines: tuple[SizeLine, ...]  # by size

    @property
    def title(self) -> str:
        """The title, without ranks if they differ: `allreduce, float, sum, 16 ranks`."""
        return self.kind.title if self.kind.ranks else self.kind.title.rpartition(", ")[0]

    @property
    def unlike(self) -> str:
        """A remark if the numbers of ranks differ; else empty."""
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
        """Each interconnect against the first, over their common sizes."""
        first, *others = (interconnect.name for interconnect in self.interconnects)
        contests = []
        for name in others:
            points = tuple(cell.advantage for cell in self.cells if cell.name == name and cell.advantage)
            if points:
                contests.append(Contest(self.kind, first, name, points))
        return tuple(contests)

    @property
    def cells(self) -> list[Cell]:
        """All cells by size, in the order of the interconnects."""
        return [cell for line in self.lines for cell in line.cells if cell]

    @property
    def columns(self) -> list[Column[Cell]]:
        """The columns; if all times are predicted, the interval is called "nine in ten"."""
        name = "nine in ten" if all(isinstance(cell.row, Prediction) for cell in self.cells) else "interval"
        return [replace(column, name=name) if column.name == "interval" else column for column in COLUMNS]

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each size and interconnect, for JSON and CSV: seconds, and the ratio to the first."""
        return [case_fields(cell.row.case) | record(COLUMNS, cell) for cell in self.cells]

    def verdict(self) -> list[str]:
        """Return the fastest interconnects by range of sizes, in sentences."""
        expected = any(isinstance(cell.row, Prediction) for cell in self.cells)
        fastest = f"{'should be fastest' if expected else 'fastest'}: {'; '.join(self.winning_ranges)}"
        names = set(chain.from_iterable(line.ranking.names for line in self.lines))
        if len(names) == 1:
            (name,) = names
            fastest = f"{name} {'' if expected else 'is '}{fastest.replace(f'{name} ', '')}"
        return [fastest, *map(crossover.in_words, self.contests)]


def tables(interconnects: Sequence[Interconnect], chosen: Chosen | None = None) -> list[InterconnectTable]:
    """Return a table for each kind of case with a size that at least two interconnects share.

    The fastest `chosen` implementation stands for an interconnect: by default the library's, or an exact implementation
    if there is no library.
    """
    results = chain.from_iterable(interconnect.results for interconnect in interconnects)
    kinds = dict.fromkeys(map(_kind, results))
    every = [_table(kind, interconnects, chosen) for kind in kinds]
    return [table for table in every if table.lines]


def left_out(interconnects: Sequence[Interconnect], compared: Iterable[InterconnectTable]) -> list[str]:
    """Return the reason for each interconnect that is in no table."""
    shown = {interconnect.name for table in compared for interconnect in table.interconnects}
    reasons = []
    for interconnect in interconnects:
        if interconnect.name in shown:
            continue
        why = "; ".join(interconnect.remarks) or "no case and size in common with another interconnect"
        if interconnect.results and all(row.note.bound for row in interconnect.results):
            why = "its predictions are only bounds, since no measurement supports them"
        reasons.append(f"{interconnect.name}: {why}")
    return reasons


def _kind(row: Timed) -> Case:
    """Return the kind of case of a table's rows, without ranks, which may differ."""
    return replace(row.case.kind, ranks=0)


def _table(kind: Case, interconnects: Sequence[Interconnect], chosen: Chosen | None) -> InterconnectTable:
    rows = {}
    for interconnect in interconnects:
        if usable := _usable([row for row in interconnect.results if _kind(row) == kind], chosen):
            rows[interconnect] = usable

    # The largest common number of ranks, or else the largest of each.
    counts = [{row.case.ranks for row in usable} for usable in rows.values()]
    common = set.intersection(*counts) if counts else set()
    ranks = tuple(max(common or count) for count in counts)
    curves = []
    for usable, count in zip(rows.values(), ranks, strict=True):
        # The latest measurement of an implementation counts.
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
    """Return the rows that may stand for an interconnect, without predictions that are only bounds."""
    expected: list[Any] = [row for row in rows if not row.note.bound]
    if chosen:
        return [row for row in expected if chosen(row.implementation)]
    return crossover.rivals([row for row in expected if is_library(row.implementation)] or expected)
