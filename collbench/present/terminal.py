"""Tables and lines of text that fit a terminal; a pipe or file gets all columns.

rich's tables are unsuitable: they need all rows for their widths, wrap cells, and cut rows in a pipe.
"""

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TextIO

from collbench.present.columns import ALWAYS, USEFUL, Column, Row

NARROWEST = 20  # least columns of a layout
WORDS, WORD = 11, 2  # room that the last column needs next to other columns, and next to useful ones
USUAL = 80  # columns of a terminal without a known width
CONTINUED = 11  # blanks before the last column if it does not fit next to the others


def no_problem(row: object) -> str:
    """Return no problem for any row."""
    return ""


class Table(Generic[Row]):
    """Columns of fixed widths, printed row by row as results arrive; the last may have text of any length.

    Two blanks separate a number from text after it, and one blank separates other columns.
    """

    def __init__(
        self, columns: Iterable[Column[Row]], problem: Callable[[Row], str] = no_problem, names: int = 2, gap: str = " "
    ) -> None:
        """Make a table; *gap* separates columns.

        *problem* returns the reason for a row without numbers, which replaces all but its first *names* cells.
        """
        self.columns = [column for column in columns if column.importance]
        self.problem, self._names, self._gap = problem, names, gap

    def heading(self) -> str:
        """Return the names of the columns in one line."""
        return self._line([column.name for column in self.columns]).split("\n")[0]

    def row(self, row: Row) -> str:
        """Return one row, which may be several lines."""
        if self.problem(row):
            return Table([*self.columns[: self._names], Column("", self.problem)], gap=self._gap).row(row)
        return self._line([column.cell(row) for column in self.columns])

    def left_out(self) -> list[str]:
        """Return the names of columns without room, the least important first."""
        shown = self._shown([column.name for column in self.columns])
        gone = [column for place, column in enumerate(self.columns) if column.name and place not in shown]
        return [column.name for column in sorted(gone, key=lambda column: column.importance)]

    def _line(self, cells: Sequence[str]) -> str:
        shown = self._shown(cells)
        start, last = self._start(cells, shown), self._last(cells, shown)
        width = room()
        if width is None or self.columns[shown[-1]].form:
            return (start + last).rstrip()
        return "\n".join(continued(start, last.rstrip(), width))

    def _start(self, cells: Sequence[str], shown: Sequence[int]) -> str:
        start, number = "", False
        for place in shown:
            column = self.columns[place]
            if start:
                start += "  " if number and not column.at_the_right else self._gap
            if place != shown[-1]:
                start += f"{cells[place]:{column.form}}"
            number = column.at_the_right
        return start

    def _shown(self, cells: Sequence[str]) -> list[int]:
        """Return the indices of the columns that fit with these cells."""
        width = room()
        shown = list(range(len(cells)))
        if width is None:
            return shown

        # Leave out columns by importance until the last column fits.
        levels = {column.importance for column in self.columns} - {ALWAYS}
        for importance in sorted(levels):
            needed = WORD if importance >= USEFUL else WORDS
            if self.columns[shown[-1]].form:
                needed = len(self._last(cells, shown))
            if len(self._start(cells, shown)) + needed <= width:
                break
            shown = [place for place in shown if self.columns[place].importance != importance]
        return shown

    def _last(self, cells: Sequence[str], shown: Sequence[int]) -> str:
        return f"{cells[shown[-1]]:{self.columns[shown[-1]].form}}"


def left_out_in_words(*tables: Table[Any]) -> str:
    """Return a line on the columns that do not fit the terminal; empty if all do."""
    names = dict.fromkeys(name for table in tables for name in table.left_out())
    return f"columns left out for want of room: {', '.join(names)}" if names else ""


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal; Open MPI's processes always seem to have one, so theirs do not count."""
    return stream.isatty() and "OMPI_COMM_WORLD_RANK" not in os.environ


def room(stream: TextIO | None = None) -> int | None:
    """Return COLUMNS, or the columns of a stream's terminal (default: standard output); None without a limit."""
    stream, given = stream or sys.stdout, os.environ.get("COLUMNS", "")
    columns = int(given) if given.isdecimal() else 0
    if not columns and is_terminal(stream):
        columns = os.get_terminal_size(stream.fileno()).columns or USUAL
    return max(NARROWEST, columns) if columns else None


def lines(
    columns: Iterable[Column[Row]], rows: Iterable[Row], problem: Callable[[Row], str] = no_problem, names: int = 2
) -> list[str]:
    """Return a heading and a line for each row, with columns of minimal width, two blanks apart.

    A last column without a form wraps at words; otherwise columns are left out until it fits.  `problem` and `names`
    are as in Table.
    """
    every = list(rows)
    shown = [column for column in columns if column.importance]
    right = [row for row in every if not problem(row)]

    # Rows without numbers widen only the columns that name them.
    sized = []
    for column in shown:
        measured = every if column in shown[:names] else right
        width = max(map(len, [column.name, *map(column.cell, measured)]))
        form = f"{'>' if column.at_the_right else '<'}{width}"
        sized.append(replace(column, form=form if column.form or column is not shown[-1] else ""))
    table = Table(sized, problem, names, gap="  ")
    return [table.heading(), *map(table.row, every)]


def continued(start: str, rest: str, width: int) -> Iterator[str]:
    """Yield lines with the rest next to the start, wrapped below its beginning, or indented if that is too narrow."""
    indent, lines = len(start), _broken(rest, width - len(start))
    if len(start) + len(rest) <= width:
        lines = [rest]
    elif max(map(len, lines)) > width - indent:
        indent, lines = CONTINUED, ["", *_broken(rest, width - CONTINUED)]
    yield (start + lines[0]).rstrip()
    for line in lines[1:]:
        yield " " * indent + line


_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]?i?B|[num]?s|[GMk]B/s|%)(?!\w))")
_HELD = "\N{NO-BREAK SPACE}"


def _broken(text: str, width: int) -> list[str]:
    """Return lines of text, broken at blanks but never between a number and its unit."""
    held = _BEFORE_UNIT.sub(_HELD, text)
    lines = textwrap.wrap(held, max(1, width), break_long_words=False, break_on_hyphens=False)
    return [line.replace(_HELD, " ") for line in lines] or [""]


def wrapped(line: str, width: int) -> str:
    """Return a text line wrapped to a width, with two more columns of indentation on continued lines."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    first, *more = _broken(line.strip(), width - len(indent))
    rest = _broken(" ".join(more), width - len(indent) - 2) if more else []
    return "\n".join([indent + first, *(f"{indent}  {part}" for part in rest)])
