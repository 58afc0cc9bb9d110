"""A comparison as a table, as CSV and as JSON."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from collbench.analysis.compare import gate
from collbench.analysis.compare.compare import Comparison
from collbench.analysis.compare.unmatched import Unmatched
from collbench.analysis.compare.verdicts import Row, Together
from collbench.runs.records import case_fields
from collbench.units import format_seconds, format_size, printable

LEGEND = (
    "ratio: time NEW/BASE, so above 1 is slower; interval: {confidence:.3g} % for all rows of a comparison together\n"
    "same: surely within {margin:.3g} %; slower, faster: surely not 1; inconclusive: may be either"
)
_TOGETHER = "all: the sizes of an implementation as one, their mean ratio (geometric)"
_ROW = "{size:>9}  {name:<16} {base:>8} {new:>8} {ratio:>7}  {interval:<16}  {verdict}"
_DIFFERENCES, _UNMATCHED = 12, 15  # shown in a table; JSON has all
COLUMNS = (
    *("base", "new", "collective", "dtype", "redop", "root", "ranks", "in_place", "nbytes", "implementation"),
    *("base_seconds", "new_seconds", "ratio", "low", "high", "verdict", "remark"),
)


def _table(found: Sequence[Comparison]) -> None:
    for each in found:
        for line in (*_head(each), *_rows(each), *_tail(each)):
            click.echo(line)
        click.echo()
    if any(each.together for each in found):
        click.echo(_TOGETHER)
    click.echo(LEGEND.format(confidence=100 * found[0].confidence, margin=100 * found[0].margin))


def _head(found: Comparison) -> Iterator[str]:
    """The runs, and what differs but for the times."""
    for word, run in (("BASE", found.base), ("NEW", found.new)):
        started = printable(run.header.started)
        cut = "" if run.complete else ", cut off"
        yield f"{word:<4}  {run.path}" + (f", {started}" if started else "") + cut
    for name, one, other in found.differences[:_DIFFERENCES]:
        yield f"differs: {name}: {one} -> {other}"
    if len(found.differences) > _DIFFERENCES:
        yield f"differs: {len(found.differences) - _DIFFERENCES} more (--format json has all)"
    yield from (f"note: {remark}" for remark in found.remarks)


def _rows(found: Comparison) -> Iterator[str]:
    kinds: dict[str, list[Row]] = {}
    for row in found.rows:
        kinds.setdefault(row.base.case.title, []).append(row)
    for kind, rows in kinds.items():
        yield from ("", kind)
        head = {"size": "size", "name": "", "base": "base", "new": "new"}
        yield _ROW.format(**head, ratio="ratio", interval="interval", verdict="verdict")
        yield from map(_row, rows)
        yield from (_together(each) for each in found.together if each.case.title == kind)


def _row(row: Row) -> str:
    return _ROW.format(
        size=format_size(row.base.case.nbytes),
        name=printable(row.base.implementation),
        base=format_seconds(row.before),
        new=format_seconds(row.after),
        ratio=f"{row.ratio:.3f}x",
        interval=gate.span(row),
        verdict=row.verdict.value + (f": {row.remark}" if row.remark else ""),
    )


def _together(each: Together) -> str:
    return _ROW.format(
        size=gate.sizes(each),
        name=printable(each.implementation),
        base="",
        new="",
        ratio=f"{each.ratio:.3f}x",
        interval=gate.span(each),
        verdict=each.verdict.value,
    )


def _tail(found: Comparison) -> Iterator[str]:
    if found.unmatched:
        yield from ("", "not compared")
        regressed = sorted(found.unmatched, key=lambda each: not each.regression)
        for each in regressed[:_UNMATCHED]:
            yield f"  {gate.name(each)}: {gate.message(each)}" + (" (a regression)" if each.regression else "")
        if len(regressed) > _UNMATCHED:
            yield f"  {len(regressed) - _UNMATCHED} more (--format json has all)"
    yield from ("", f"rows: {gate.tally(found)}")


def _csv(found: Sequence[Comparison]) -> None:
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in found:
        runs = {"base": str(each.base.path), "new": str(each.new.path)}
        writer.writerows(runs | _fields(row) for row in each.rows)
        writer.writerows(runs | _unmatched_fields(row) for row in each.unmatched)


def _json(found: Sequence[Comparison]) -> None:
    comparisons = [
        {
            "base": str(each.base.path),
            "new": str(each.new.path),
            "margin": each.margin,
            "confidence": each.confidence,
            "differences": [difference._asdict() for difference in each.differences],
            "remarks": list(each.remarks),
            "rows": [_fields(row) for row in each.rows],
            "all_sizes": [_together_fields(kind) for kind in each.together],
            "not_compared": [_unmatched_fields(row) for row in each.unmatched],
            "regressions": len(each.regressions),
            "inconclusive": len(each.hidden),
        }
        for each in found
    ]
    click.echo(json.dumps({"comparisons": comparisons, "gate": gate.status(found)}, indent=2, allow_nan=False))


def _fields(row: Row) -> dict[str, Any]:
    low, high = (end if end == end else None for end in row.interval)
    return case_fields(row.base.case) | {
        "implementation": row.base.implementation,
        "base_seconds": row.before,
        "new_seconds": row.after,
        "ratio": row.ratio,
        "low": low,
        "high": high,
        "verdict": row.verdict.value,
        "remark": row.remark,
    }


def _together_fields(each: Together) -> dict[str, Any]:
    kind = {name: value for name, value in case_fields(each.case).items() if name != "nbytes"}
    low, high = each.interval
    return kind | {
        "implementation": each.implementation,
        "sizes": each.sizes,
        "ratio": each.ratio,
        "low": low,
        "high": high,
        "verdict": each.verdict.value,
    }


def _unmatched_fields(row: Unmatched) -> dict[str, Any]:
    said = {"implementation": row.implementation, "verdict": "not compared", "remark": gate.message(row)}
    return case_fields(row.case) | said


FORMATS = {"table": _table, "csv": _csv, "json": _json}
