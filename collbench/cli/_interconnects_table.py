"""Interconnects side by side as a table, as CSV and as JSON: at each size a row for each of them."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from collbench.analysis.interconnects import Cell, Interconnect, Line, Table, records
from collbench.cli._columns import room
from collbench.host.sanitize import cell
from collbench.units import format_seconds, format_size, printable

LEGEND = (
    "vs: the time of the first over this one's, so above 1 is faster; ~ where they are not told apart\n"
    "band: of a prediction where nine in ten should lie, of a measurement the 95 % interval of its median\n"
    "* is fastest, ? likely or perhaps; each is as fast as its library, or as what was asked for"
)
NARROWEST = 50  # columns, below which nothing more is left out
_BETWEEN = "  "


def show(tables: Sequence[Table]) -> None:
    """Print every table, then what the columns mean."""
    told: list[str] = []
    for table in tables:
        if (heads := list(head(table))) != told:
            told = heads
            click.echo("\n".join([*heads, ""]))
        click.echo("\n".join([table.title, *lines(table, room()), "", *table.verdict(), ""]))
    click.echo(LEGEND, err=True)


def head(table: Table) -> Iterator[str]:
    """What each of them is, how its times are known, and what makes them unlike."""
    width = max(len(one.name) for one in table.interconnects)
    for one in table.interconnects:
        yield f"{printable(one.name):<{width}}  {one.origin}: {printable(one.title)}"
    if table.unlike:
        yield f"note: {table.unlike}"
    for one in table.interconnects:
        yield from (f"note: {one.name}: {remark}" for remark in one.remarks)


def lines(table: Table, width: int | None) -> Iterator[str]:
    """The table in so many columns, or as many as it needs; without room the algorithm goes first, then the band."""
    grid = [_cells(table, one, line, cell) for line in table.lines for one, cell in _there(table, line)]
    names: Mapping[str, str] = {"size": "size", "name": "", "time": "time", "vs": f"vs {table.interconnects[0].name}"}
    if len(names["vs"]) > len("vs first"):
        names = {**names, "vs": "vs first"}
    names = {**names, "band": "band", "way": "algorithm"}
    wide = {name: max(len(title), *(len(row[name]) for row in grid)) for name, title in names.items()}
    shown = list(names)
    for last in ("way", "band"):
        used = sum(wide[name] for name in shown) + len(_BETWEEN) * (len(shown) - 1)
        if width and used > max(width, NARROWEST):
            shown.remove(last)
    for row in (names, *grid):
        yield _BETWEEN.join(_aligned(name, row[name], wide[name]) for name in shown).rstrip()


def _aligned(name: str, text: str, width: int) -> str:
    return f"{text:<{width}}" if name in ("name", "way") else f"{text:>{width}}"


def _there(table: Table, line: Line) -> Iterator[tuple[Interconnect, Cell]]:
    return ((one, cell) for one, cell in zip(table.interconnects, line.cells, strict=True) if cell)


def _cells(table: Table, one: Interconnect, line: Line, found: Cell) -> dict[str, str]:
    """The texts of a row; the size stands in the first of its rows only."""
    first = next(other for other, _ in _there(table, line)) is one
    low, high = found.row.band
    return {
        "size": format_size(line.nbytes) if first else "",
        "name": f"{_mark(one, line)} {printable(one.name)}",
        "time": format_seconds(found.row.typical),
        "vs": found.ratio,
        "band": f"{format_seconds(low)} .. {format_seconds(high)}" if low == low else "",
        "way": printable(found.method),
    }


def _mark(one: Interconnect, line: Line) -> str:
    if one.name not in line.ranking.names:
        return " "
    return "*" if line.ranking.surely and len(line.ranking.names) == 1 else "?"


def _csv(tables: Sequence[Table]) -> None:
    rows = [record for table in tables for record in records(table)]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell(value) for name, value in row.items()})


def as_json(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """A record for each table: what is compared, the rows, and the verdict in sentences."""
    return [
        {
            "case": table.title,
            "interconnects": [
                {"name": one.name, "title": one.title, "origin": one.origin, "ranks": count, "remarks": one.remarks}
                for one, count in zip(table.interconnects, table.ranks, strict=True)
            ],
            "rows": records(table),
            "verdict": table.verdict(),
        }
        for table in tables
    ]


def _json(tables: Sequence[Table]) -> None:
    click.echo(json.dumps({"tables": as_json(tables)}, indent=2, allow_nan=False))


FORMATS: Mapping[str, Callable[[Sequence[Table]], None]] = {"table": show, "csv": _csv, "json": _json}
