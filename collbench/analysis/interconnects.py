"""The same number of ranks on several interconnects, without which a ratio compares two things at once.

An interconnect: a described system or the machine of a run, and what is known of its times.

Who is fastest at which sizes, and between which that changes, as far as intervals and bands tell it.

Interconnects side by side: at each size the time of each, and its ratio to the first.

A table of interconnects as records, for JSON and CSV.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from collbench.algorithms import is_library
from collbench.analysis.crossover import Advantage, Contest, format_span, in_words, rivals
from collbench.cases import Case
from collbench.measurement import Measurement, Prediction, timed
from collbench.observed import Timed
from collbench.runfile.cut_off import cut_off
from collbench.runfile.file import NAME, Run
from collbench.runfile.records import case_fields
from collbench.topology.system import System
from collbench.units import format_size


def common_ranks(systems: Sequence[System], measured: Iterable[set[int]] = ()) -> int | None:
    """The largest number that one of the systems has by itself and all can have; None if there is none.

    `measured` are the numbers of ranks of runs beside them: then one that all of these have.
    """
    counts = [count for count in measured if count]
    own = set.intersection(*counts) if counts else {system.ranks for system in systems}
    return max((count for count in own if all(can_have(system, count) for system in systems)), default=None)


def can_have(system: System, ranks: int) -> bool:
    """Whether they are some GPUs of one node, or whole nodes of which there are enough or that cards can join."""
    if ranks <= system.gpus:
        return True
    return ranks % system.gpus == 0 and (system.nics is not None or ranks <= system.ranks)


Selected = Callable[[Case, str], bool] | None


@dataclass(frozen=True)
class Interconnect:
    """Ranks that something joins: a described system or the machine of a run, and what is known of its times."""

    name: str  # short, and no other's
    title: str  # what it is
    results: tuple[Timed, ...]
    remarks: tuple[str, ...] = ()  # what else must be said of it

    @property
    def origin(self) -> str:
        """`predicted`, `measured`, `imported`, or several of them."""
        return " and ".join(dict.fromkeys(map(origin, self.results))) or "nothing"

    @property
    def ranks(self) -> tuple[int, ...]:
        """All numbers of ranks that it has times for, in order."""
        return tuple(sorted({row.case.ranks for row in self.results}))


def origin(row: Timed) -> str:
    """How a time came to be known: `predicted`, `measured` here, or `imported` from what another tool printed."""
    if isinstance(row, Prediction):
        return "predicted"
    return "measured" if isinstance(row, Measurement) else "imported"


def of_run(name: str, run: Run, selected: Selected = None) -> Interconnect:
    """A run, of which only collectives with a time count; `selected(case, implementation)` leaves some out."""
    header = run.header
    where = header.topology.name or " ".join(filter(None, ["a log of", header.imported.tool or "another tool"]))
    rows = (row for row in timed(run.results) if row.typical > 0)  # another's clock may have seen no time pass
    rows = (row for row in rows if not selected or selected(row.case, row.implementation))
    return Interconnect(name, where, tuple(rows), (f"the run was {words}",) if (words := cut_off(run)) else ())


def of_runs(runs: Sequence[Run], selected: Selected = None) -> list[Interconnect]:
    """Runs by the names of their folders; one that stands there twice counts once."""
    paths = dict.fromkeys(str(run.path) for run in runs)
    named = dict(zip(paths, short_names(list(paths)), strict=True))
    return [of_run(named.pop(path), run, selected) for run in runs if (path := str(run.path)) in named]


def short_names(words: Sequence[str]) -> list[str]:
    """Of systems and paths: the preset's, the file's or the run's folder's name, or all of it where two have one."""
    short = [_short(Path(word)) or word for word in words]
    return [name if short.count(name) == 1 else word for word, name in zip(words, short, strict=True)]


def _short(path: Path) -> str:
    return path.absolute().parent.name if path.name == NAME else path.stem


class Lead(NamedTuple):
    """Who is fastest at a size."""

    names: tuple[str, ...]  # the fastest, then those that are not told apart from it
    surely: bool  # whether its interval leaves all others behind; else it is likely so

    def __str__(self) -> str:
        """`dgx-h100`, `likely dgx-h100`, `dgx-h100 or hgx-h200 (not told apart)`."""
        tied = " (not told apart)" if len(self.names) > 1 else ""
        return f"{'' if self.surely else 'likely '}{' or '.join(self.names)}{tied}"


def lead(named: Sequence[tuple[Timed, str]]) -> Lead:
    """Of two rows or more of one size, each with its name."""
    rows = sorted(named, key=lambda pair: pair[0].typical)
    (best, name), *others = rows
    over = {other: Advantage.of(best, row) for row, other in others}
    tied = [other for other, advantage in over.items() if not advantage.sign]
    return Lead((name, *tied), all(over[other].apart for other in over if other not in tied))


class Reign(NamedTuple):
    """Neighbouring sizes at which the same are fastest, and as surely."""

    first: int
    last: int
    lead: Lead

    def __str__(self) -> str:
        """`likely dgx-h100 8 B to 2 KiB`."""
        return f"{self.lead} {format_span(self.first, self.last)}"


class Change(NamedTuple):
    """Sizes between which the fastest becomes another: at both it is told who that is, between them not."""

    after: int
    before: int
    old: str
    new: str
    surely: bool

    def __str__(self) -> str:
        """`between 1 KiB and 4 KiB it changes from one to other`."""
        likely = "" if self.surely else "likely "
        where = f"between {format_size(self.after)} and {format_size(self.before)}"
        return f"{where} the {likely}fastest changes from {self.old} to {self.new}"


def reigns(leads: Iterable[tuple[int, Lead]]) -> tuple[Reign, ...]:
    """Of leads by size: neighbouring sizes with the same lead as one."""
    found: list[Reign] = []
    for nbytes, here in leads:
        if found and _same(found[-1].lead, here):
            found[-1] = found[-1]._replace(last=nbytes)
        else:
            found.append(Reign(nbytes, nbytes, here))
    return tuple(found)


def _same(one: Lead, other: Lead) -> bool:
    return set(one.names) == set(other.names) and one.surely == other.surely


def changes(found: Iterable[Reign]) -> tuple[Change, ...]:
    """Where the fastest becomes another; sizes at which several are not told apart lie between."""
    single = [reign for reign in found if len(reign.lead.names) == 1]
    return tuple(
        Change(one.last, other.first, one.lead.names[0], other.lead.names[0], one.lead.surely and other.lead.surely)
        for one, other in pairwise(single)
        if one.lead.names != other.lead.names
    )


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
    ranks = _ranks_of_each([{row.case.ranks for row in those} for those in rows.values()])
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


def _ranks_of_each(counts: Sequence[set[int]]) -> list[int]:
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


def records(table: Table) -> list[dict[str, Any]]:
    """A record for each size and interconnect: seconds, and the ratio of the first's time to this one's; no NaN."""
    found = []
    for line in table.lines:
        for interconnect, cell in zip(table.interconnects, line.cells, strict=True):
            found += [_record(interconnect, cell, line.lead)] if cell else []
    return found


def _record(interconnect: Interconnect, cell: Cell, lead: Lead) -> dict[str, Any]:
    row, over = cell.row, cell.advantage
    low, high = row.band
    return case_fields(row.case) | {
        "interconnect": interconnect.name,
        "origin": origin(row),
        "implementation": row.implementation,
        "algorithm": getattr(row, "algorithm", ""),
        "protocol": getattr(row, "protocol", ""),
        "seconds": row.typical,
        "low": low if low == low else None,
        "high": high if high == high else None,
        "ratio": over.ratio if over else None,
        "told_apart": over.apart if over else None,
        "fastest": _place(interconnect.name, lead),
    }


def _place(name: str, lead: Lead) -> str:
    """`surely`, `likely`, `perhaps` (not told apart from the fastest), or empty: not the fastest, or nothing to be."""
    if name not in lead.names:
        return ""
    return "perhaps" if len(lead.names) > 1 else "surely" if lead.surely else "likely"
