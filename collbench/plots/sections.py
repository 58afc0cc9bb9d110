"""What commands say on the page of a report, found by being there: modules `section` in their folders, with SECTION.

A section is a part of the page, and says what stands in its results' rows of the table of all rows.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from collbench.host.sanitize import text
from collbench.presence import imported, modules
from collbench.present.columns import Column, Row

MOST = 60
"""Rows of a table, and sentences and tables of a run."""
_LONGEST = 120  # characters of a cell


class TextTable(NamedTuple):
    """A caption, the names of the columns, and rows of texts unless the template knows better.

    Shares by name, which add up to 1, are a bar.
    """

    caption: str
    heading: Sequence[str]
    rows: Sequence[Any]
    linked: bool = False  # whether the page has a link to it

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> "TextTable":
        """Return the table of the first rows, whose texts may come from any file."""
        cells = []
        for row in rows[:MOST]:
            cells.append(tuple(text(column.cell(row), _LONGEST) for column in columns))
        return cls(text(caption, _LONGEST), [column.name or column.key for column in columns], cells)

    @property
    def dense(self) -> "TextTable":
        """The table without columns in which no row has anything; the first, which names the rows, always stays."""
        filled = {0}
        for row in self.rows:
            filled |= {column for column, cell in enumerate(row) if cell}
        shown = sorted(filled)
        rows = [tuple(row[column] for column in shown) for row in self.rows]
        return self._replace(heading=[self.heading[column] for column in shown], rows=rows)


class Picture(NamedTuple):
    """A figure as the page holds it."""

    address: str  # that holds all of it
    words: str
    anchor: str


class PagePart(NamedTuple):
    """What a part of the page says of a run; nothing of it need be there."""

    words: Sequence[str] = ()
    tables: Sequence[Any] = ()  # a TextTable each
    pictures: Sequence[Picture] = ()
    left_out: int = 0  # for which there is no room
    notes: Sequence[str] = ()


class Cells(NamedTuple):
    """What the table of all rows says of a result."""

    numbers: tuple[str, ...]  # the time, then its interval
    check: str
    status: str = "ok"  # or plain


@dataclass(frozen=True)
class Section:
    """What a command says of its results."""

    name: str  # by which its part can be linked to
    title: str
    order: int  # place among the sections
    rows: tuple[type, ...]  # the results that it is of; its figures are those that are drawn of these alone
    part: Callable[[Sequence[Any]], PagePart]  # of all results of a run
    cells: Callable[[Any], Cells]  # of one of its results, which is right
    note: str = ""  # below the part
    drawn: bool = True  # whether figures of its results stand there
    legend: Sequence[str] = ()  # names of the shares in its bars
    subject: str = ""  # of its results in the page's title; empty: their collective


def sections(rows: Collection[str]) -> list[Section]:
    """Return the sections of results of these types in the page's order; modules that name none are not imported."""
    every: list[Section] = []
    for path, match in modules("commands/*/section.py", r"^SECTION = "):
        if any(name in match.string for name in rows):
            every.append(imported(path).SECTION)
    return sorted(every, key=lambda section: section.order)


def section_of(result: object, among: Sequence[Section]) -> Section | None:
    """Return the section that a result belongs to."""
    for section in among:
        if isinstance(result, section.rows):
            return section
    return None
