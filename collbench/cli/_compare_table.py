"""A comparison as a table, as CSV and as JSON."""

import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from collbench.analysis import gate
from collbench.analysis.compare import Comparison, Judged, Row, Together
from collbench.analysis.interconnects import Table
from collbench.analysis.matching import Unmatched
from collbench.cli._columns import Table as Wide
from collbench.cli._interconnects_table import as_json, show
from collbench.host.sanitize import cell
from collbench.runfile.schema import case_fields
from collbench.units import digits, format_seconds, printable, significant

LEGEND = (
    "ratio: time NEW/BASE, so above 1 is slower; interval: {confidence:.3g} % for all rows of a comparison together\n"
    "same: surely within {margin:.3g} %; slower, faster: surely not 1; inconclusive: may be either"
)
_TOGETHER = "all: the sizes of an implementation as one, their mean ratio (geometric)"
_ROW = Wide(
    "{size:>9}  {name:<16} {base:>8} {new:>8} {ratio:>7}  {interval:<16}  {verdict}", ("base", "new", "interval")
)
_DIFFERENCES, _UNMATCHED = 12, 15  # shown in a table; JSON has all
COLUMNS = (
    *("base", "new", "collective", "dtype", "redop", "root", "ranks", "in_place", "nbytes", "implementation"),
    *("base_seconds", "new_seconds", "ratio", "low", "high", "verdict", "remark"),
)


def _table(comparisons: Sequence[Comparison], interconnects: Sequence[Table]) -> None:
    for comparison in comparisons:
        for line in (*_head(comparison), *_rows(comparison), *_tail(comparison)):
            click.echo(line)
        click.echo()
    if interconnects:
        click.echo("different machines: who is fastest, each by its library")
        show(interconnects)
    if not any(comparison.rows for comparison in comparisons):
        return
    if any(comparison.together for comparison in comparisons):
        click.echo(_TOGETHER)
    click.echo(LEGEND.format(confidence=100 * comparisons[0].confidence, margin=100 * comparisons[0].margin))


def _head(comparison: Comparison) -> Iterator[str]:
    """The runs, and what differs but for the times."""
    for word, run in (("BASE", comparison.base), ("NEW", comparison.new)):
        started = printable(run.header.started)
        cut = f", {words}" if (words := run.cut_off) else ""
        yield f"{word:<4}  {run.path}" + (f", {started}" if started else "") + cut
    for name, one, other in comparison.differences[:_DIFFERENCES]:
        yield f"differs: {name}: {one} -> {other}"
    if len(comparison.differences) > _DIFFERENCES:
        yield f"differs: {len(comparison.differences) - _DIFFERENCES} more (--format json has all)"
    yield from (f"note: {remark}" for remark in comparison.remarks)


def _rows(comparison: Comparison) -> Iterator[str]:
    judged: tuple[Row | Together, ...] = (*comparison.rows, *comparison.together)
    kinds: dict[str, list[Row | Together]] = {row.case.title: [] for row in comparison.rows}
    for row in judged:
        kinds[row.case.title].append(row)
    for kind, rows in kinds.items():
        yield from ("", kind)
        head = {name: name for name in ("size", "base", "new", "ratio", "interval", "verdict")}
        yield _ROW.line(head | {"name": ""})
        yield from map(_row, rows)


def _row(row: Row | Together) -> str:
    before, after, remark = (row.before, row.after, row.remark) if isinstance(row, Row) else (None, None, "")
    cells = {
        "size": gate.sizes(row),
        "name": printable(row.implementation),
        "base": "" if before is None else format_seconds(before),
        "new": "" if after is None else format_seconds(after),
        "ratio": f"{_known(row)}x",
        "interval": gate.span(row),
        "verdict": row.verdict.value + (f": {remark}" if remark else ""),
    }
    return _ROW.line(cells)


def _known(row: Row | Together) -> str:
    """The ratio with three decimals, or with the digits that a wide interval leaves."""
    low, high = row.interval
    halfwidth = (high - low) / 2 / row.ratio if row.ratio else 0.0
    return significant(row.ratio, digits(halfwidth)) if 0.1 < halfwidth < math.inf else f"{row.ratio:.3f}"


def _tail(comparison: Comparison) -> Iterator[str]:
    if comparison.unmatched:
        yield from ("", "not compared")
        rows = sorted(comparison.unmatched, key=lambda row: not row.regression)
        for row in rows[:_UNMATCHED]:
            yield f"  {gate.name(row)}: {gate.message(row)}" + (" (a regression)" if row.regression else "")
        if len(rows) > _UNMATCHED:
            yield f"  {len(rows) - _UNMATCHED} more (--format json has all)"
    yield from ("", f"rows: {gate.counts_in_words(comparison)}")


def _csv(comparisons: Sequence[Comparison], _: Sequence[Table]) -> None:
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for comparison in comparisons:
        runs = _paths(comparison)
        for fields in (*map(_fields, comparison.rows), *map(_unmatched_fields, comparison.unmatched)):
            writer.writerow({name: cell(value) for name, value in (runs | fields).items()})


def _json(comparisons: Sequence[Comparison], interconnects: Sequence[Table]) -> None:
    records = [
        _paths(comparison)
        | {
            "margin": comparison.margin,
            "confidence": comparison.confidence,
            "differences": [difference._asdict() for difference in comparison.differences],
            "remarks": list(comparison.remarks),
            "rows": [_fields(row) for row in comparison.rows],
            "all_sizes": [_together_fields(row) for row in comparison.together],
            "not_compared": [_unmatched_fields(row) for row in comparison.unmatched],
            "regressions": len(comparison.regressions),
            "inconclusive": len(comparison.hidden),
        }
        for comparison in comparisons
    ]
    answer = {"comparisons": records, "gate": gate.status(comparisons), "interconnects": as_json(interconnects)}
    click.echo(json.dumps(answer, indent=2, allow_nan=False))


def _paths(comparison: Comparison) -> dict[str, Any]:
    return {"base": str(comparison.base.path), "new": str(comparison.new.path)}


def _fields(row: Row) -> dict[str, Any]:
    times = {"implementation": row.implementation, "base_seconds": row.before, "new_seconds": row.after}
    return case_fields(row.case) | times | _judged_fields(row) | {"remark": row.remark}


def _together_fields(row: Together) -> dict[str, Any]:
    kind = {name: value for name, value in case_fields(row.case).items() if name != "nbytes"}
    return kind | {"implementation": row.implementation, "sizes": row.sizes} | _judged_fields(row)


def _judged_fields(row: Judged) -> dict[str, Any]:
    low, high = (end if end == end else None for end in row.interval)  # NaN is no JSON
    return {"ratio": row.ratio, "low": low, "high": high, "verdict": row.verdict.value}


def _unmatched_fields(row: Unmatched) -> dict[str, Any]:
    said = {"implementation": row.implementation, "verdict": "not compared", "remark": gate.message(row)}
    return case_fields(row.case) | said


FORMATS = {"table": _table, "csv": _csv, "json": _json}
