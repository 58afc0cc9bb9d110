"""Tables by a format string, until all are columns (present/columns.py)."""

import string
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from collbench.present.terminal import WORD, WORDS, continued, room

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
        return "\n".join(continued(start, f"{cells[last.name]:{last.spec}}".rstrip(), width))

    def left_out(self, cells: Mapping[str, object]) -> list[str]:
        """Return the columns that there is no room for."""
        width = self.width or room()
        gone: list[str] = []
        if not width:
            return gone
        for name in (*self.first_out, *self.last_out):
            columns = self._columns(gone)[:-1]
            used = sum(len(field.before) + len(f"{cells[field.name]:{field.spec}}") for field in columns)
            if used + 2 + (WORD if name in self.last_out else WORDS) <= width:
                break
            gone.append(name)
        return gone

    def _columns(self, without: Sequence[str]) -> list[Field]:
        parts = string.Formatter().parse(self.form)
        return [Field(before, name, spec or "") for before, name, spec, _ in parts if name and name not in without]


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
