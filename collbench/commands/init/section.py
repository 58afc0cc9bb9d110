"""Communicators on the page of a report: their phases by number of ranks."""

from collections.abc import Sequence

from collbench.commands.init.columns import COLUMNS, LEGEND, InitLine, answer, lines_of
from collbench.commands.init.rows import InitTimes
from collbench.plots.sections import Cells, PagePart, Section, TextTable
from collbench.results import Result
from collbench.units import format_range, format_seconds


def part(results: Sequence[Result]) -> PagePart:
    """Return what a run says of communicators; nothing where it has none."""
    rows: list[InitLine] = []
    for result in results:
        if isinstance(result, InitTimes) and result.right:
            rows += lines_of(result)
    tables = [TextTable.of("Life of a communicator", COLUMNS, rows)] if rows else []
    return PagePart(answer(results), tables)


def cells(row: InitTimes) -> Cells:
    """Return the time of the first communicators, and their interval where there are enough."""
    return Cells((format_seconds(row.typical), format_range(*row.band, format_seconds)), "first communicator, ok")


SECTION = Section(
    name="init",
    title="Life of a communicator",
    order=15,
    rows=(InitTimes,),
    part=part,
    cells=cells,
    note=LEGEND.replace("\n", ". ").capitalize(),
    subject="life of communicators",
)
