"""Every row of the runs as rows of the page's table, with the reason where there is no number."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from collbench.analysis.crossover import library_of
from collbench.cases import Case
from collbench.figures.panels import share_a_device
from collbench.implementations import libraries
from collbench.measurement import (
    PARTS,
    Explanation,
    Failed,
    Measurement,
    Observed,
    Prediction,
    Reported,
    Result,
    Skipped,
    Timed,
)
from collbench.report.markup import Markup, tag
from collbench.report.sanitize import Sound, plain
from collbench.units import format_rate, format_seconds, format_size

ROOM = 640_000
"""Bytes of the table; the rows behind are left out, and it says so."""
HEADING = (
    "implementation",
    "run",
    "operation",
    "size",
    "time",
    "interval",
    "min",
    "p95",
    "max",
    "algbw",
    "busbw",
    "vs library",
    "check",
)
NUMBERS = 10  # columns between operation and check, if any of them has a number


class Row(NamedTuple):
    """A line of the table: its cells but the first three, and how its check is to look."""

    status: str  # a class of report.css: ok, plain, bad
    cells: tuple[str, ...]


class Rows(NamedTuple):
    """The lines of the table, and how many there would be."""

    lines: list[Markup]
    total: int


def rows(runs: Sequence[Sound]) -> Rows:
    """As many rows as there is room for."""
    lines, room, total = [], ROOM, 0
    for run in runs:
        odd = {id(each): reason for each, reason in run.odd}
        compared = _libraries(run.run.results)
        for each in run.every:
            total += 1
            if room > 0:
                line = _line(run, each, _row(run, each, odd.get(id(each), ""), compared))
                room -= len(line.encode())
                lines.append(line)
    return Rows(lines, total)


def _libraries(results: Iterable[Result]) -> dict[Case, list[Result]]:
    """The libraries' results by case."""
    known = libraries()
    own: dict[Case, list[Result]] = {}
    for result in results:
        if result.implementation in known:
            own.setdefault(result.case, []).append(result)
    return own


def _line(run: Sound, result: Result, row: Row) -> Markup:
    numbers = [tag("td", cell) for cell in row.cells[:-1]]
    *_, check = row.cells
    wide = NUMBERS - len(numbers)
    cells = [
        tag("th", result.implementation, scope="row"),
        tag("td", run.label),
        tag("td", plain(result.case.title, 120)),
        *numbers,
        tag("td", check, class_=row.status, colspan=str(wide) if wide > 1 else False),
    ]
    return tag("tr", *cells)


def _row(run: Sound, result: Result, odd: str, compared: dict[Case, list[Result]]) -> Row:
    size = _size(result)
    if odd:
        return Row("bad", (size, f"not usable: {odd}"))
    if isinstance(result, Skipped):
        return Row("plain", (size, f"skipped: {result.reason}"))
    if isinstance(result, Failed):
        return Row("bad", (size, f"FAILED: {result.reason}"))
    if isinstance(result, Explanation):
        return Row("plain", (size, format_seconds(result.seconds), _explained(result)))
    if result.wrong:
        return Row("bad", (size, f"WRONG: {plain(result.wrong)}"))
    return _timed(run, result, size, library_of(compared.get(result.case, ()), libraries(), result))


def _size(result: Result) -> str:
    return format_size(result.case.nbytes) if 0 <= result.case.nbytes < 2**70 else "?"


def _timed(run: Sound, result: Measurement | Reported | Prediction, size: str, library: Timed | None) -> Row:
    low, high = result.band
    spread = ("", "", "")
    if isinstance(result, Observed) and len(result.times) > 1:
        spread = tuple(format_seconds(result.percentile(each)) for each in (0, 95, 100))  # type: ignore[assignment]
    shared = isinstance(result, Observed) and share_a_device(run.run, [result])
    cells = (
        size,
        format_seconds(result.typical),
        f"{format_seconds(low)} - {format_seconds(high)}" if low == low else "",
        *spread,
        format_rate(result.algbw),
        "" if shared else format_rate(result.busbw),
        f"{library.typical / result.typical:.3g}x" if library and library is not result else "",
    )
    return Row("ok", (*cells, _check(result)))


def _check(result: Measurement | Reported | Prediction) -> str:
    if isinstance(result, Measurement):
        said = "ok"
    elif isinstance(result, Prediction):
        said = "predicted" + (
            f", {how}" if (how := "/".join(filter(None, (result.algorithm, result.protocol)))) else ""
        )
    else:
        said = "reported, not checked" if result.wrong_elements is None else "reported ok"
    return ", ".join(filter(None, (said, str(result.note))))


def _explained(result: Explanation) -> str:
    if not result.tracks:
        return "explained: a library cannot be looked into"
    parts = ", ".join(f"{part} {result.share(part):.0%}" for part in PARTS)
    return ", ".join(filter(None, (f"explained: {parts}", str(result.note))))
