"""Tables of fixed columns, printed row by row as results arrive, in as many columns as the terminal has room for.

A table is a format string, as `"{size:>9}  {name:<16} {time:>9}  {check}"`, the headings of columns that are headed
otherwise than by their names, and the columns that are left out first where there is no room; what stands last wraps at
words.  In a pipe or a file every column is there in full.
A table of rich needs all rows to find its widths, wraps cells instead of leaving columns out, and cuts rows in a pipe.
"""

import os
import re
import string
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TextIO

NARROWEST = 20  # columns that anything is laid out for
REST = 11  # characters that the last column needs before any other is left out
OK = 2  # the same, of the most important columns
USUAL = 80  # columns of a terminal that does not say its width
CONTINUED = 11  # blanks before the last column where nothing of it fits next to the others
WHOLE = 10_000  # columns in which every table fits


class Field(NamedTuple):
    """One column of a format string."""

    before: str
    name: str
    spec: str


class Table(NamedTuple):
    """A format string whose last column is text of any length, and the other columns by their importance.

    A last column `note` has no heading, and may be left empty: then all columns before it can be left out.
    """

    form: str
    first_out: Sequence[str] = ()  # the first to be left out first; those not named stay
    heads: Mapping[str, str] = MappingProxyType({})  # where they differ from the columns' names
    width: int | None = None  # in characters; by default that of standard output
    last_out: Sequence[str] = ()  # left out after those, where what stands last has no room for a word

    def heading(self, **heads: str) -> str:
        """Return the names of the columns in one line; `heads` are those that differ from table to table."""
        return self.row(**self.headings(**heads)).split("\n")[0]

    def headings(self, **heads: str) -> dict[str, str]:
        """Return the same by column."""
        return {field.name: field.name for field in self._columns(())} | {"note": ""} | dict(self.heads) | heads

    def row(self, **cells: object) -> str:
        """Return one row, which may be several lines, of cells by the names of the columns."""
        width, cells = self.width or room(), {"note": ""} | cells
        if width is None:
            return self.form.format(**cells).rstrip()
        *columns, last = self._columns(self.left_out(cells))
        start = "".join(f"{field.before}{cells[field.name]:{field.spec}}" for field in columns) + last.before
        return "\n".join(_continued(start, f"{cells[last.name]:{last.spec}}".rstrip(), width))

    def left_out(self, cells: Mapping[str, object]) -> list[str]:
        """Return the columns that there is no room for."""
        width = self.width or room()
        gone: list[str] = []
        if not width:
            return gone
        for name in (*self.first_out, *self.last_out):
            columns = self._columns(gone)[:-1]
            used = sum(len(field.before) + len(f"{cells[field.name]:{field.spec}}") for field in columns)
            if used + 2 + (OK if name in self.last_out else REST) <= width:
                break
            gone.append(name)
        return gone

    def _columns(self, without: Sequence[str]) -> list[Field]:
        parts = string.Formatter().parse(self.form)
        return [Field(before, name, spec or "") for before, name, spec, _ in parts if name and name not in without]


def is_terminal(stream: TextIO) -> bool:
    """Return whether it is a terminal, and not one that Open MPI gives its processes, wherever their output goes."""
    return stream.isatty() and "OMPI_COMM_WORLD_RANK" not in os.environ


def room(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal that a stream is, by default standard output, or as COLUMNS says.

    None where there is no limit.
    """
    stream, given = stream or sys.stdout, os.environ.get("COLUMNS", "")
    columns = int(given) if given.isdecimal() else 0
    if not columns and is_terminal(stream):
        columns = os.get_terminal_size(stream.fileno()).columns or USUAL
    return max(NARROWEST, columns) if columns else None


def grid(rows: Sequence[Sequence[str]], right: Sequence[int] = (), first_out: Sequence[int] = ()) -> list[str]:
    """Return rows as lines, each column as wide as it must be.

    The columns with the numbers `right` end at the right, those of `first_out` are left out where there is no room.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = list(range(len(widths)))
    for number in first_out:
        if sum(widths[one] + 2 for one in shown) - 2 > (room() or WHOLE):
            shown.remove(number)
    lines = []
    for row in rows:
        cells = [f"{row[one]:>{widths[one]}}" if one in right else f"{row[one]:<{widths[one]}}" for one in shown]
        lines.append("  ".join(cells).rstrip())
    return lines


def _continued(start: str, rest: str, width: int) -> Iterator[str]:
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
    rest = _broken(" ".join(more), width - len(indent) - 2)
    return "\n".join([indent + first, *(f"{indent}  {part}" for part in rest)])
