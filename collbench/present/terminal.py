"""Tables and lines of text, in as many columns as the terminal has room for; in a pipe or a file all are there.

A table of rich needs all rows to find its widths, wraps cells instead of leaving columns out, and cuts rows in a pipe.
"""

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TextIO

from collbench.present.columns import ALWAYS, USEFUL, Column, Row

NARROWEST = 20  # columns that anything is laid out for
WORDS, WORD = 11, 2  # characters of the last column for whose sake others are left out, and columns that are useful
USUAL = 80  # columns of a terminal that does not say its width
CONTINUED = 11  # blanks before the last column where nothing of it fits next to the others


def no_problem(row: object) -> str:
    """Return that a row has its numbers."""
    return ""


class Table(Generic[Row]):
    """Columns of fixed widths, printed row by row as results arrive; the last may hold text of any length.

    Two blanks stand between numbers and the text after them, and one between all other columns.
    """

    def __init__(
        self, columns: Iterable[Column[Row]], problem: Callable[[Row], str] = no_problem, names: int = 2, gap: str = " "
    ) -> None:
        """Make a table; *gap* stands between two columns at least.

        *problem* returns why a row has no numbers; that stands in place of all but its first *names* cells.
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
        """Return the names of the columns that there is no room for, the least important first."""
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
        """Return what stands before the last of the columns that are shown."""
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
        """Return the places of the columns that there is room for, where these cells stand in them."""
        width = room()
        shown = list(range(len(cells)))
        if width is None:
            return shown

        # Columns of one importance go together, the least important first, until the last column has its room.
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
    """Return which columns the terminal is too narrow for; nothing if all are there."""
    names = dict.fromkeys(name for table in tables for name in table.left_out())
    return f"columns left out for want of room: {', '.join(names)}" if names else ""


def is_terminal(stream: TextIO) -> bool:
    """Return whether it is a terminal, and not one that Open MPI gives its processes, wherever their output goes."""
    return stream.isatty() and "OMPI_COMM_WORLD_RANK" not in os.environ


def room(stream: TextIO | None = None) -> int | None:
    """Return the columns of a stream's terminal (standard output's), or COLUMNS; None where there is no limit."""
    stream, given = stream or sys.stdout, os.environ.get("COLUMNS", "")
    columns = int(given) if given.isdecimal() else 0
    if not columns and is_terminal(stream):
        columns = os.get_terminal_size(stream.fileno()).columns or USUAL
    return max(NARROWEST, columns) if columns else None


def lines(
    columns: Iterable[Column[Row]], rows: Iterable[Row], problem: Callable[[Row], str] = no_problem, names: int = 2
) -> list[str]:
    """Return the names of columns and a line for each row, each column as wide as it must be and two blanks apart.

    A last column without a form wraps at words.  Else columns are left out until it fits as a whole.  `problem` and
    `names` are as in Table.
    """
    every = list(rows)
    shown = [column for column in columns if column.importance]
    right = [row for row in every if not problem(row)]

    # Rows without numbers widen only the columns that name them.
    sized = []
    for column in shown:
        of = every if column in shown[:names] else right
        width = max(map(len, [column.name, *map(column.cell, of)]))
        form = f"{'>' if column.at_the_right else '<'}{width}"
        sized.append(replace(column, form=form if column.form or column is not shown[-1] else ""))
    table = Table(sized, problem, names, gap="  ")
    return [table.heading(), *map(table.row, every)]


def continued(start: str, rest: str, width: int) -> Iterator[str]:
    """Yield the rest next to the start, continued below its own beginning, or below the start if that is too narrow."""
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
    """Return the text broken at blanks, never within a word or between a number and its unit."""
    held = _BEFORE_UNIT.sub(_HELD, text)
    lines = textwrap.wrap(held, max(1, width), break_long_words=False, break_on_hyphens=False)
    return [line.replace(_HELD, " ") for line in lines] or [""]


def wrapped(line: str, width: int) -> str:
    """Return a line of words as lines of that width, continued two columns behind its own beginning."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    first, *more = _broken(line.strip(), width - len(indent))
    rest = _broken(" ".join(more), width - len(indent) - 2) if more else []
    return "\n".join([indent + first, *(f"{indent}  {part}" for part in rest)])
