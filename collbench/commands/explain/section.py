"""Section of a report on explained operations: shares of the parts of their time."""

from collections.abc import Sequence

from collbench.plots.kinds import MOST, Cells, PagePart, Section, TextTable
from collbench.results import PARTS, Explanation, Result, by_key
from collbench.units import format_seconds, format_size

_SENTENCES = 6  # on the first operations


def part(results: Sequence[Result]) -> PagePart:
    """Return a table for each case of the first explanations with parts."""
    explained = [row for row in results if isinstance(row, Explanation) and row.tracks]
    tables = []
    for case, rows in by_key(explained[:MOST], lambda row: row.case).items():
        cells = []
        for row in rows:
            shares = {part: row.share(part) for part in PARTS}
            name = ", ".join(filter(None, (row.implementation, row.altered)))
            cells.append((name, format_seconds(row.seconds), shares, *map("{:.0%}".format, shares.values())))
        heading = ("implementation", "time", "shares", *PARTS)
        tables.append(TextTable(f"{case.title}, {format_size(case.nbytes)}", heading, cells, linked=True))
    return PagePart([_sentence(row) for row in explained[:_SENTENCES]], tables)


def _sentence(row: Explanation) -> str:
    most = max(PARTS, key=row.share)
    operation = f"{row.implementation}, {format_size(row.case.nbytes)}: {format_seconds(row.seconds)}"
    altered = f"; {row.altered}" if row.altered else ""
    return f"{operation}, mostly {most}, {row.share(most):.0%}{altered}"


def cells(row: Explanation) -> Cells:
    """Return the cells of an operation: its time and the shares of its parts."""
    words = [*filter(None, [row.ran]), "no parts: libraries keep no log"]
    if row.tracks:
        words = [f"{part} {row.share(part):.0%}" for part in PARTS]
        if note := str(row.note.brief):
            words.append(note)
    return Cells((format_seconds(row.seconds),), f"explained: {', '.join(words)}", status="plain")


SECTION = Section(
    name="spent",
    title="Where the time goes",
    order=30,
    rows=(Explanation,),
    part=part,
    cells=cells,
    drawn=False,
    legend=PARTS,
)
