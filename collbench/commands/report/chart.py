"""Data of the page's curves, and the table of all rows."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from collbench.algorithms import is_library, libraries
from collbench.analysis.crossover import buffers_in_words, handicaps
from collbench.analysis.roofline import share_in_words
from collbench.cases import Case
from collbench.commands.report.analysed import AnalysedRun, SafeRun, safe_text, untimed
from collbench.commands.report.sections import Anchors, statuses
from collbench.plots.kinds import Section, section_of
from collbench.plots.panels import share_a_device
from collbench.present.figures import Look, looks
from collbench.results import Observed, Result, Timed, by_key, timed
from collbench.runfile.store import Run
from collbench.units import format_range, format_rate, format_seconds, format_size

_NUMBERS = ("time", "interval", "min", "p95", "max", "algbw", "busbw", "vs library")
_MEANINGS = {
    "time": "time: the median; the column 'check' names the statistic of imported rows",
    "interval": "interval: 95 % interval of the median, or the 90 % band of a prediction",
    "min": "min, p95, max: of the samples; for short operations, a sample is a mean of several",
    "algbw": "algbw, busbw: GB/s, 1e9 bytes/s",
}
_CELL_BYTES, _ROW_BYTES = 4, 80  # of HTML around the text of a cell, and around a row

ROOM = 200_000
"""Bytes of all curves together, so that the page stays small; the page names the number of curves left out."""
VIEWS = ("bandwidth", "latency", "ratio")
"""Views of a figure, as in report.js; each can be linked to."""
_DIGITS = 4  # significant ones, more than samples reproduce

Line = tuple[Case, Sequence[Timed], bool]
"""A curve by size: its kind, its rows, and whether it is the model's expectation of another curve."""
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
_LATER_RUNS = ("solid", "dash", "dot", "longdash", "dashdot")  # of an implementation, by run
_PREDICTIONS = ("dash", "dot", "longdash", "dashdot")  # the same for predictions, from the first run on


class ReportRow(NamedTuple):
    """A row of the table; `numbers` are texts of the first columns, empty if unknown."""

    implementation: str
    about: str  # run and operation, if they differ among the rows
    size: str
    numbers: tuple[str, ...]
    check: str
    status: str  # a class of report.css: ok, plain, bad

    @property
    def nbytes(self) -> int:
        """About the row's size in the page."""
        texts = (self.implementation, self.about, self.size, *self.numbers, self.check)
        return _ROW_BYTES + sum(len(escape(text).encode()) + _CELL_BYTES for text in texts)


class AllRows(NamedTuple):
    """The rows that fit, and only columns with a number."""

    caption: str
    heading: Sequence[str]
    rows: list[ReportRow]
    left_out: int
    meanings: list[str]  # of the columns


def all_rows(runs: Sequence[SafeRun], commands: Sequence[Section], room: int) -> AllRows:
    """Return every row of the runs until the room, in bytes, is used up."""
    operations = list(dict.fromkeys(result.case.title for run in runs for result in run.every))
    rows: list[ReportRow] = []
    for run in runs:
        for row in _rows(run, commands, len(runs) > 1, len(operations) > 1):
            room -= row.nbytes
            if room < 0:
                break
            rows.append(row)
    every = sum(len(run.every) + len(run.run.left_out) for run in runs)

    filled = sorted({column for row in rows for column, number in enumerate(row.numbers) if number})
    few = []
    for row in rows:
        numbers = tuple(row.numbers[column] for column in filled if column < len(row.numbers))
        few.append(row._replace(numbers=numbers))
    shown = [_NUMBERS[column] for column in filled]
    meanings = [_MEANINGS[name] for name in shown if name in _MEANINGS]
    results = [result for run in runs for result in run.every]
    meanings += [*handicaps(results), *buffers_in_words(results)]
    caption = safe_text(operations[0], 120) if len(operations) == 1 else "Every row"
    return AllRows(caption, ("implementation", "size", *shown, "check"), few, every - len(rows), meanings)


def _rows(
    run: SafeRun, commands: Sequence[Section], several_runs: bool, several_operations: bool
) -> Iterable[ReportRow]:
    """Yield the rows of a run; they name run and operation only if the table has several."""
    references = _references(run.run.results)
    for result in run.every:
        status, numbers, words = _cells(run, commands, result, references)
        size = format_size(result.case.nbytes) if 0 <= result.case.nbytes < 2**70 else "?"
        title = safe_text(result.case.title, 120) if several_operations else ""
        about = ", ".join(filter(None, (run.label if several_runs else "", title)))
        yield ReportRow(result.label, about, size, numbers, words, status)
    label = run.label if several_runs else ""
    for why in run.run.left_out:
        yield ReportRow("?", label, "?", (), f"not usable: line {why}", "bad")


def _references(results: Iterable[Result]) -> dict[Case, Timed]:
    last = {(result.case, result.implementation): result for result in timed(results)}
    by_case = by_key((row for row in last.values() if is_library(row.implementation)), lambda row: row.case)
    return {case: min(rows, key=lambda row: row.typical) for case, rows in by_case.items()}


def _cells(
    run: SafeRun, commands: Sequence[Section], result: Result, references: dict[Case, Timed]
) -> tuple[str, tuple[str, ...], str]:
    """Return a row's status, its numbers, and its check, or the reason if there are no numbers."""
    if untimed(result):
        return "bad", (), "not usable: checked, but not timed"
    if result.problem:
        return "bad" if result.outcome.bad else "plain", (), safe_text(result.problem, 310)
    if section := section_of(result, commands):
        cells = section.cells(result)
        return cells.status, cells.numbers, cells.check
    if not isinstance(result, Timed):
        words = result.check if result.digest else "not shown: the command for such rows is not installed"
        return "plain", (), words
    return "ok", _numbers(run, result, references.get(result.case)), check(result)


def _numbers(run: SafeRun, result: Timed, library: Timed | None) -> tuple[str, ...]:
    low, high = result.band
    spread = ["", "", ""]
    if isinstance(result, Observed) and len(result.times) > 1:
        spread = [format_seconds(result.percentile(percent)) for percent in (0, 95, 100)]
    shared = not result.predicted and share_a_device(run.run, [result])
    sized = result.case.collective.sized and not result.case.work
    return (
        format_seconds(result.typical),
        format_range(low, high, format_seconds),
        *spread,
        format_rate(result.algbw) if sized else "",
        format_rate(result.busbw) if sized and not shared else "",
        f"{library.typical / result.typical:.3g}x" if library and library is not result and not result.unsure else "",
    )


def check(result: Timed) -> str:
    """Return the text of a right row in the table and at its point: check, method, share of the bound and note."""
    return ", ".join(filter(None, (result.check, result.method, share_in_words(result), str(result.note.brief))))


def chart_of(runs: Sequence[AnalysedRun], anchors: Anchors) -> dict[str, Any]:
    """Return the script's data: runs, libraries, the lines of each kind of case, and the number of curves left out."""
    curves = [[*_lines(run), *_expected(run)] for run in runs]
    chosen = looks({rows[0].implementation for lines in curves for _, rows, _ in lines})
    figures: dict[Case, dict[str, Any]] = {}
    drawn_runs: dict[Case, list[int]] = {}  # of a figure, in order
    room, left_out = ROOM, 0
    for number, run in enumerate(runs):
        for kind, rows, expected in curves[number]:
            earlier = len({*drawn_runs.get(kind, ())} - {number})
            line = {"run": number, "expected": expected} | _line(run.run, rows, earlier, chosen[rows[0].implementation])

            room -= len(data_block(line))
            if room < 0:
                left_out += 1
                continue
            drawn_runs.setdefault(kind, []).append(number)
            figures.setdefault(kind, {"title": kind.title, "lines": []})["lines"].append(line)
    for kind, figure in figures.items():
        views = [view for view in VIEWS if kind.collective.sized or view != "bandwidth"]
        figure["anchors"] = {view: anchors.new(view, figure["title"]) for view in views}

    compared = [row.label for run in runs for row in timed(run.run.results) if is_library(row.implementation)]
    return {
        "runs": [{"label": run.label, "machine": run.machine, "status": " and ".join(statuses(run))} for run in runs],
        "libraries": list(dict.fromkeys([*compared, *libraries()])),
        "figures": [*figures.values()],
        "left_out": left_out,
    }


def data_block(value: Any) -> Markup:
    """Return JSON that is safe in a script element, for HTML and for old JavaScript."""
    # ASCII, so U+2028 is escaped, too.  A back-tick marks code, which the chart's texts cannot show.
    return htmlsafe_json_dumps(value, allow_nan=False, separators=(",", ":")).replace("`", "'")


def _lines(run: SafeRun) -> Iterator[Line]:
    """Yield each implementation's results of a kind of case by size; a later result replaces an earlier one."""
    rows = (row for row in timed(run.run.results, unsure=True) if row.case.nbytes)
    curves = by_key(rows, lambda row: (row.case.kind, row.implementation, row.predicted))
    for (kind, _, _), curve in curves.items():
        sizes = {row.case.nbytes: row for row in curve}
        yield kind, [sizes[size] for size in sorted(sizes)], False


def _expected(run: AnalysedRun) -> Iterator[Line]:
    for diagnosis in (curve.diagnosis for curve in run.verdicts):
        if diagnosis.expected:
            named = [replace(row, implementation=diagnosis.implementation) for row in diagnosis.expected]
            yield named[0].case.kind, named, True


def _line(run: Run, rows: Sequence[Timed], earlier: int, look: Look) -> dict[str, Any]:
    """Return a curve for the script: seconds and bytes by size, and its look.

    *earlier* is the number of runs before this one in the figure; their lines differ by dashes.
    """
    first, bands = rows[0], [row.band for row in rows]
    predicted = first.predicted

    # The first run's measured lines have their own dashes; later runs and predictions differ by theirs.
    dash = DASHES.get(look.linestyle, "solid")
    if predicted or earlier:
        dashes = _PREDICTIONS if predicted else _LATER_RUNS
        dash = dashes[earlier % len(dashes)]
    seen = [row for row in rows if not row.predicted]
    checks = [check(row) for row in rows]
    texts = list(dict.fromkeys(checks))
    return {
        "name": first.label,
        "predicted": predicted,
        "light": look.color,
        "dark": for_dark(look.color),
        "marker": look.marker,  # report.js has Plotly's names of Matplotlib's markers
        "open": bool(predicted or earlier),
        "dash": dash,
        "width": 2.4 if look.linewidth > 2 and not predicted else 1.8,
        "factor": 0 if share_a_device(run, seen) else first.case.collective.bus_factor(first.case.ranks),
        "sizes": [row.case.nbytes for row in rows],
        "seconds": [_short(row.typical) for row in rows],
        "unsure": [place for place, row in enumerate(rows) if row.unsure],
        "low": [_short(low) for low, _ in bands],
        "high": [_short(high) for _, high in bands],
        "checks": texts,
        "check_of": [texts.index(text) for text in checks],  # each point
    }


def _short(value: float) -> float | None:
    """Return a value with few digits; None if it is unknown, since JSON has no NaN."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def for_dark(colour: str) -> str:
    """Return a colour (#RRGGBB) for the dark page: dark colours become light, and black nearly white."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    brightness = 0.299 * red + 0.587 * green + 0.114 * blue  # ITU-R BT.601
    white = max(0.0, 0.9 - 1.6 * brightness)
    mixed = (round(255 * (part + (1 - part) * white)) for part in (red, green, blue))
    return "#" + "".join(f"{part:02x}" for part in mixed)
