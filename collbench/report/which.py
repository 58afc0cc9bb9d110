"""Which interconnect: the runs of several machines or systems side by side, as `collbench compare` has them."""

from collections.abc import Sequence
from typing import NamedTuple

from collbench.analysis.interconnects import Cell, Line, Table, left_out, of_run, tables
from collbench.analysis.matching import several_machines
from collbench.report.sanitize import Sound, plain
from collbench.report.sections import TextTable
from collbench.units import format_seconds, format_size

MOST_LINES = 80  # sizes of a table
MOST_TABLES = 20


class Which(NamedTuple):
    """What is compared, who wins, and a table for each kind of case."""

    who: list[str]
    sentences: list[str]
    tables: list[TextTable]


def which(runs: Sequence[Sound]) -> Which | None:
    """None where all runs are of one machine, or have no size of a case in common."""
    if not several_machines(run.run.header for run in runs):
        return None
    every = [of_run(run.label, run.run) for run in runs]
    found = tables(every)[:MOST_TABLES]
    if not found:
        return None
    several = len(found) > 1
    sentences = [f"{table.title}: {line}" if several else line for table in found for line in table.verdict()]
    notes = [table.unlike for table in found if table.unlike]
    reasons = [f"left out: {plain(reason)}" for reason in left_out(every, found)]
    who = [
        f"{one.name}, {one.origin}: {plain('; '.join((one.title, *one.remarks)))}"
        for one in every
        if any(one in table.interconnects for table in found)
    ]
    return Which(who, [*sentences, *dict.fromkeys(notes), *reasons], [_table(table) for table in found])


def _table(table: Table) -> TextTable:
    """A row for each size: the time of each, after the first with its ratio to that."""
    first, *others = (one.name for one in table.interconnects)
    heading = ("size", first, *(f"{name} (vs {first})" for name in others), "fastest")
    return TextTable(table.title, heading, [_row(line) for line in table.lines[:MOST_LINES]])


def _row(line: Line) -> tuple[str, ...]:
    return (format_size(line.nbytes), *map(_cell, line.cells), str(line.ranking))


def _cell(cell: Cell | None) -> str:
    """`13.2 us (0.9x)`."""
    if cell is None:
        return ""
    return f"{format_seconds(cell.row.typical)}{f' ({cell.ratio})' if cell.ratio else ''}"
