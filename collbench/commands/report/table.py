"""Every row of the runs as rows of the page's table, with the reason where there is no number."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import escape

from collbench.algorithms import is_library
from collbench.analysis.crossover import handicaps
from collbench.analysis.roofline import share_in_words
from collbench.cases import Case
from collbench.commands.report.analysed import SafeRun, safe_text
from collbench.plots.panels import share_a_device
from collbench.plots.sections import Section, section_of
from collbench.results import Observed, Result, Timed, by_key, timed
from collbench.units import format_range, format_rate, format_seconds, format_size

_NUMBERS = ("time", "interval", "min", "p95", "max", "algbw", "busbw", "vs library")
_MEANINGS = {
    "time": "time: the median, of imported rows what their check says",
    "interval": "interval: 95 % of the median, or nine in ten of a prediction",
    "min": "min, p95, max: of the samples, which of short operations are means of several",
    "algbw": "algbw, busbw: GB/s, 1e9 bytes/s",
}
_CELL_BYTES, _ROW_BYTES = 4, 80  # of the page around the text of a cell, and around a row


class ReportRow(NamedTuple):
    """A row of the table; it has as many of the numbers as are known, from the first on."""

    implementation: str
    about: str  # run and operation, where they differ among the rows
    size: str
    numbers: tuple[str, ...]
    check: str
    status: str  # a class of report.css: ok, plain, bad

    @property
    def nbytes(self) -> int:
        """About how long it is in the page."""
        texts = (self.implementation, self.about, self.size, *self.numbers, self.check)
        return _ROW_BYTES + sum(len(escape(text).encode()) + _CELL_BYTES for text in texts)


class AllRows(NamedTuple):
    """As many rows as there is room for, and only columns that have a number."""

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
    every = sum(len(run.every) + len(run.unread) for run in runs)

    # Only columns that have a number in some row.
    filled = sorted({column for row in rows for column, number in enumerate(row.numbers) if number})
    few = []
    for row in rows:
        numbers = tuple(row.numbers[column] for column in filled if column < len(row.numbers))
        few.append(row._replace(numbers=numbers))
    shown = [_NUMBERS[column] for column in filled]
    meanings = [_MEANINGS[name] for name in shown if name in _MEANINGS]
    meanings += handicaps(result for run in runs for result in run.every)
    caption = safe_text(operations[0], 120) if len(operations) == 1 else "Every row"
    return AllRows(caption, ("implementation", "size", *shown, "check"), few, every - len(rows), meanings)


def _rows(
    run: SafeRun, commands: Sequence[Section], several_runs: bool, several_operations: bool
) -> Iterable[ReportRow]:
    """Yield the rows of a run; what is the same in all rows of the table is not said of each."""
    odd = set(map(id, run.odd))
    references = _references(run.run.results)
    for result in run.every:
        status, numbers, words = _cells(run, commands, result, id(result) in odd, references)
        size = format_size(result.case.nbytes) if 0 <= result.case.nbytes < 2**70 else "?"
        title = safe_text(result.case.title, 120) if several_operations else ""
        about = ", ".join(filter(None, (run.label if several_runs else "", title)))
        yield ReportRow(result.label, about, size, numbers, words, status)
    label = run.label if several_runs else ""
    for why in run.unread:
        yield ReportRow("?", label, "?", (), f"not usable: line {why}", "bad")


def _references(results: Iterable[Result]) -> dict[Case, Timed]:
    """Return the library's last result for each case; of several libraries that of the fastest."""
    last = {(result.case, result.implementation): result for result in timed(results)}

    # Of a case that was measured twice the later result counts.
    by_case = by_key((row for row in last.values() if is_library(row.implementation)), lambda row: row.case)
    return {case: min(rows, key=lambda row: row.typical) for case, rows in by_case.items()}


def _cells(
    run: SafeRun, commands: Sequence[Section], result: Result, odd: bool, references: dict[Case, Timed]
) -> tuple[str, tuple[str, ...], str]:
    """Return a row's status, its numbers, and its check, which is the reason where there are no numbers."""
    if odd:
        return "bad", (), "not usable: it was checked, and not timed"
    if result.problem:
        return "bad" if result.outcome.bad else "plain", (), safe_text(result.problem, 310)
    if section := section_of(result, commands):
        cells = section.cells(result)
        return cells.status, cells.numbers, cells.check
    if not isinstance(result, Timed):
        words = result.check if result.digest else "not shown: the command that makes such rows is not installed"
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
        f"{library.typical / result.typical:.3g}x" if library and library is not result else "",
    )


def check(result: Timed) -> str:
    """Return what a right row says in the table and at its point of a curve: its check, its bound, its note."""
    return ", ".join(filter(None, (result.check, result.method, share_in_words(result), str(result.note.brief))))
