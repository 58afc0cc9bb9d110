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
    """A caption, the names of the columns, and rows of texts unless the template knows better."""

    caption: str
    heading: Sequence[str]
    rows: Sequence[Any]

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> "TextTable":
        """Return the table of the first rows, whose texts may come from any file."""
        cells = [tuple(text(column.cell(row), _LONGEST) for column in columns) for row in rows[:MOST]]
        return cls(text(caption, _LONGEST), [column.name or column.key for column in columns], cells)

    @property
    def dense(self) -> "TextTable":
        """The table without columns in which no row has anything; the first, which names the rows, always stays."""
        filled = [place for place in range(len(self.heading)) if not place or any(row[place] for row in self.rows)]
        rows = [tuple(row[place] for place in filled) for row in self.rows]
        return TextTable(self.caption, [self.heading[place] for place in filled], rows)


class Picture(NamedTuple):
    """A figure as the page holds it."""

    address: str  # that holds all of it
    words: str
    anchor: str


class Part(NamedTuple):
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


@dataclass(frozen=True)
class Section:
    """What a command says of its results."""

    name: str  # by which its part can be linked to
    title: str
    order: int  # place among the sections
    rows: tuple[type, ...]  # the results that it is of; figures that are drawn of these alone stand in its part
    part: Callable[[Sequence[Any]], Part]  # of all results of a run
    cells: Callable[[Any], Cells]  # of one of its results, which is right
    note: str  # below the part
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
