"""Communicators on the page of a report."""

from collections.abc import Sequence
from itertools import chain

from collbench.commands.init.columns import COLUMNS, LEGEND, answer, lines_of
from collbench.commands.init.rows import InitTimes
from collbench.plots.sections import Cells, PagePart, Section, TextTable
from collbench.results import Result
from collbench.units import format_seconds


def part(results: Sequence[Result]) -> PagePart:
    """Return what is said of the communicators of a run, and their table."""
    rows = [row for row in results if isinstance(row, InitTimes) and row.right]
    lines = list(chain.from_iterable(map(lines_of, rows)))
    return PagePart(answer(rows), [TextTable.of("Life of a communicator", COLUMNS, lines)] if lines else [])


SECTION = Section(
    name="communicators",
    title="Communicators",
    order=15,
    rows=(InitTimes,),
    part=part,
    cells=lambda row: Cells((format_seconds(row.typical),), "first communicator, ok"),
    note=LEGEND,
    subject="communicators",
)
