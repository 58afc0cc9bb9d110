"""The columns of a table, described once, and the writers that need no terminal: CSV, JSON and HTML.

A table is a sequence of columns; its rows are the results themselves.  `terminal.Table` prints rows as they arrive,
`terminal.lines` once all are known.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Generic, TypeVar

from collbench.host.sanitize import cell

Row = TypeVar("Row")

DATA = 0
"""Importance of a column that only CSV and JSON have."""
USEFUL = 10
"""Least importance of a column that stays in a terminal as long as a word fits next to it."""
ALWAYS = 100
"""Importance of a column that is never left out."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column: what a row has there, and how that is shown.

    The least important columns are left out first in a narrow terminal, equals together: those below USEFUL for a few
    words in the last column, the others only for one.
    """

    name: str  # the heading in a terminal and in HTML
    value: Callable[[Row], Any]  # of a row, as CSV and JSON have it; None: the row has none
    text: Callable[[Any], str] = str  # a value as people read it
    importance: int = ALWAYS
    form: str = ""  # alignment and width in a terminal, as `>9` or `<16`; by default text of any length
    key: str = ""  # the name in CSV and JSON; by default these do not have the column

    def cell(self, row: Row) -> str:
        """Return what people read in this column of a row."""
        value = self.value(row)
        return "" if value is None else self.text(value)

    @property
    def at_the_right(self) -> bool:
        """Whether cells end below each other, as numbers do."""
        return self.form.startswith(">")


def data(key: str, value: Callable[[Row], Any]) -> Column[Row]:
    """Return a column that only CSV and JSON have."""
    return Column("", value, importance=DATA, key=key)


def record(columns: Iterable[Column[Row]], row: Row) -> dict[str, Any]:
    """Return a row's values by their names in CSV and JSON."""
    return {column.key: column.value(row) for column in columns if column.key}


def csv_text(names: Iterable[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV below the names of their columns; no spreadsheet takes a cell for a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    for values in records:
        writer.writerow({name: cell(value) for name, value in values.items()})
    return text.getvalue()


def html(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> str:
    """Return rows as a table in HTML, without columns that are empty in all of them; every text is escaped."""
    every = list(rows)
    names, filled = [], []
    for column in columns:
        cells = [column.cell(row) for row in every] if column.importance else []
        if any(cells):
            names.append(column.name)
            filled.append(cells)
    heading = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for cells_of_row in zip(*filled, strict=True):
        body += f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in cells_of_row)}</tr>"
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"
