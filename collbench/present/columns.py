"""Columns of tables, and their output as CSV, JSON and HTML.

A table is a sequence of columns; its rows are results.  `terminal.Table` prints rows as they arrive, `terminal.lines`
when all are known.
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
"""Importance of a column for CSV and JSON only."""
USEFUL = 10
"""Least importance of a column that stays in a terminal if a word fits next to it."""
ALWAYS = 100
"""Importance of a column that is never left out."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column: its value for a row, and the text of the value.

    A narrow terminal leaves out the least important columns first, and equally important ones together.  Columns below
    USEFUL make room for a few words in the last column, others only for one word.
    """

    name: str  # the heading in a terminal and in HTML
    value: Callable[[Row], Any]  # of a row, for CSV and JSON; None if the row has no value
    text: Callable[[Any], str] = str  # the value as text
    importance: int = ALWAYS
    form: str = ""  # alignment and width in a terminal, such as `>9` or `<16`; by default text of any length
    key: str = ""  # the name in CSV and JSON; empty: they lack the column

    def cell(self, row: Row) -> str:
        """Return the text of this column for a row."""
        value = self.value(row)
        return "" if value is None else self.text(value)

    @property
    def at_the_right(self) -> bool:
        """Whether cells are aligned right, as numbers are."""
        return self.form.startswith(">")


def data(key: str, value: Callable[[Row], Any]) -> Column[Row]:
    """Return a column for CSV and JSON only."""
    return Column("", value, importance=DATA, key=key)


def record(columns: Iterable[Column[Row]], row: Row) -> dict[str, Any]:
    """Return a row's values by key."""
    return {column.key: column.value(row) for column in columns if column.key}


def csv_text(names: Iterable[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV with a header; cells are escaped so that no spreadsheet sees a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    for values in records:
        writer.writerow({name: cell(value) for name, value in values.items()})
    return text.getvalue()


def html(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> str:
    """Return rows as an HTML table without empty columns; every text is escaped."""
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
