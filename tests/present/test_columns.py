"""One description of a table, and what its writers make of it."""

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser
from typing import NamedTuple

import pytest

from collbench.present.columns import ALWAYS, USEFUL, Column, csv_text, data, html, record
from collbench.present.terminal import Table, left_out_in_words, lines


class Ship(NamedTuple):
    """A row of the tables here."""

    name: str
    length: float | None
    remark: str = ""


FLEET = (Ship("Ems", 41.5, "was here before all others"), Ship("<b>Oste</b>", None), Ship("=1+1", 7.0, "small"))
NAME: Column[Ship] = Column("", lambda ship: ship.name, form="<11", key="name")
LENGTH: Column[Ship] = Column("length", lambda ship: ship.length, "{:.1f} m".format, 2, ">8", "metres")
HALF: Column[Ship] = Column("half", lambda ship: (ship.length or 0) / 2, "{:.1f} m".format, USEFUL, ">8")
REMARK: Column[Ship] = Column("remark", lambda ship: ship.remark)
COLUMNS = (NAME, LENGTH, HALF, data("letters", lambda ship: len(ship.name)), REMARK)


class Cells(HTMLParser):
    """The texts of a table's cells, by row, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        else:
            assert tag in ("table", "thead", "tbody"), tag

    def handle_data(self, data: str) -> None:
        self.rows[-1][-1] += data


def test_a_row_stands_below_the_names_of_its_columns() -> None:
    table = Table(COLUMNS)
    first, second, _ = map(table.row, FLEET)
    assert table.heading() == "              length     half  remark"
    assert first == "Ems           41.5 m   20.8 m  was here before all others"
    assert second == "<b>Oste</b>             0.0 m"
    assert table.left_out() == []


def test_csv_and_json_have_values_and_the_columns_with_a_key() -> None:
    records = [record(COLUMNS, ship) for ship in FLEET]
    assert records[0] == {"name": "Ems", "metres": 41.5, "letters": 3}
    written = list(csv.DictReader(io.StringIO(csv_text(records[0], records))))
    assert [row["metres"] for row in written] == ["41.5", "", "7.0"]
    assert not written[2]["name"].startswith("=")


def test_html_has_what_people_read_and_no_column_that_is_empty() -> None:
    cells = Cells()
    cells.feed(html(COLUMNS, FLEET))
    assert cells.rows[0] == ["", "length", "half", "remark"]
    assert [row[0] for row in cells.rows[1:]] == [ship.name for ship in FLEET]
    assert cells.rows[1][1:] == ["41.5 m", "20.8 m", "was here before all others"]
    cells = Cells()
    cells.feed(html(COLUMNS, FLEET[1:2]))
    assert cells.rows == [["", "half"], ["<b>Oste</b>", "0.0 m"]]


def test_the_least_important_columns_are_left_out_first_and_a_line_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, gone in ((80, []), (40, ["length"]), (32, ["length"]), (22, ["length", "half"])):
        monkeypatch.setenv("COLUMNS", str(width))
        table = Table(COLUMNS)
        assert table.left_out() == gone
        assert left_out_in_words(table, table) == (
            f"columns left out for want of room: {', '.join(gone)}" if gone else ""
        )
        for text in (table.heading(), *map(table.row, FLEET)):
            assert max(map(len, text.split("\n"))) <= width
        assert ("41.5" in table.row(FLEET[0]), "20.8" in table.row(FLEET[0])) == (
            "length" not in gone,
            "half" not in gone,
        )
    for last, names in ((REMARK, ["length", "half", "remark"]), (replace(REMARK, form="<"), ["half", "remark"])):
        monkeypatch.setenv("COLUMNS", "48")
        heading, first, *_ = lines([*COLUMNS[:-1], last], FLEET)
        assert heading.split() == names
        assert ("\n" in first) == (last is REMARK)
        monkeypatch.delenv("COLUMNS")
        assert lines([*COLUMNS[:-1], last], FLEET)[0].split() == ["length", "half", "remark"]


def test_columns_of_equal_importance_are_left_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "37")
    few = [replace(LENGTH, importance=1), replace(LENGTH, name="again", importance=1)]
    table = Table([NAME, *few, REMARK])
    assert table.left_out() == ["length", "again"]
    assert Table([replace(one, importance=ALWAYS) for one in table.columns]).left_out() == []


def test_the_last_column_is_left_out_too_if_another_is_more_important(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert Table([NAME, HALF, replace(REMARK, importance=1, form="<")]).row(FLEET[0]) == "Ems           20.8 m"
    assert Table([NAME, HALF, replace(REMARK, importance=1, form="<")]).row(FLEET[2]) == "=1+1           3.5 m  small"


def test_the_last_column_wraps_at_words_below_itself_or_below_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table((NAME, replace(LENGTH, importance=ALWAYS), REMARK))
    for width, lines_of_it in (
        (36, ["Ems           41.5 m  was here", "                      before all", "                      others"]),
        (27, ["Ems           41.5 m", "           was here before", "           all others"]),
    ):
        monkeypatch.setenv("COLUMNS", str(width))
        assert table.row(FLEET[0]).split("\n") == lines_of_it


def test_why_a_row_has_no_numbers_stands_behind_its_first_cells() -> None:
    for names, start in ((1, "<b>Oste</b> "), (2, "<b>Oste</b>           ")):
        table = Table(COLUMNS, lambda ship: "" if ship.length else "has no length", names)
        assert table.row(FLEET[1]) == f"{start}has no length"
        assert table.row(FLEET[0]) == Table(COLUMNS).row(FLEET[0])
        known = lines(COLUMNS, FLEET, lambda ship: "" if ship.length else "has no length", names)
        assert known[2].split() == ["<b>Oste</b>", "has", "no", "length"]
        assert known[1] == lines(COLUMNS, [FLEET[1]._replace(length=0.1), *FLEET])[2]
