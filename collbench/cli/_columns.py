"""A table's row in as many columns as a narrow terminal has room for; what stands last wraps at words.

A table is a format string, as `"{size:>9}  {name:<16} {time:>9}  {check}"`, and the names of those that are left out
first where there is no room.  Where nothing is known of a width, as in a pipe or a file, every column is there in full.
"""

import os
import shutil
import string
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

NARROWEST = 20  # columns that anything is laid out for
REST = 12  # characters that the last column wants before any other is left out
CONTINUED = 11  # blanks before the last column where nothing of it fits beside the others


class Field(NamedTuple):
    """One column of a format string."""

    before: str
    name: str
    spec: str


class Table(NamedTuple):
    """A format string whose last column is text of any length, and the others by their importance."""

    form: str
    first_out: Sequence[str] = ()  # the first to be left out first; those not named stay

    def line(self, cells: Mapping[str, str], width: int | None = None) -> str:
        """One row, which may be several lines; `width` is that of standard output by default."""
        width = width or room()
        if width is None:
            return self.form.format(**cells)
        *columns, last = self._parts(cells, self.left_out(cells, width))
        start = "".join(f"{one.before}{cells[one.name]:{one.spec}}" for one in columns) + last.before
        return "\n".join(_continued(start, f"{cells[last.name]:{last.spec}}".rstrip(), width))

    def left_out(self, cells: Mapping[str, str], width: int | None = None) -> list[str]:
        """The columns that there is no room for."""
        width = width or room()
        gone: list[str] = []
        for name in self.first_out if width else ():
            used = sum(len(one.before) + len(f"{cells[one.name]:{one.spec}}") for one in self._parts(cells, gone)[:-1])
            if used + 2 + REST <= (width or 0):
                break
            gone.append(name)
        return gone

    def _parts(self, cells: Mapping[str, str], without: Sequence[str]) -> list[Field]:
        parsed = [
            Field(before, name, spec or "") for before, name, spec, _ in string.Formatter().parse(self.form) if name
        ]
        return [one for one in parsed if one.name not in without]


def room() -> int | None:
    """Columns of the terminal that standard output is, or as COLUMNS says; None where there is no such limit."""
    if not (os.environ.get("COLUMNS", "").isdecimal() or sys.stdout.isatty()):
        return None
    return max(NARROWEST, shutil.get_terminal_size().columns)


def _continued(start: str, rest: str, width: int) -> Iterator[str]:
    """The rest beside the start, continued below its own beginning, or below the start where it is too narrow."""
    if len(start) + len(rest) <= width:
        yield (start + rest).rstrip()
        return
    lines = _broken(rest, width - len(start))
    if max(map(len, lines)) > width - len(start):
        yield start.rstrip()
        yield from (" " * CONTINUED + line for line in _broken(rest, width - CONTINUED))
        return
    yield start + lines[0]
    yield from (" " * len(start) + line for line in lines[1:])


def _broken(text: str, width: int) -> list[str]:
    """At blanks, never within a word."""
    return textwrap.wrap(text, max(1, width), break_long_words=False, break_on_hyphens=False)


def wrapped(line: str, width: int) -> str:
    """A line of words no longer than that, continued two columns behind its own beginning."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    first, *more = _broken(line.strip(), width - len(indent)) or [""]
    rest = _broken(" ".join(more), width - len(indent) - 2)
    return "\n".join([indent + first, *(f"{indent}  {part}" for part in rest)])
