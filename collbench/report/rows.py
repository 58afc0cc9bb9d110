"""Every row of the runs as rows of the page's table, with the reason where there is no number."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import escape

from collbench.algorithms import is_library
from collbench.analysis.roofline import share_in_words
from collbench.cases import Case
from collbench.plots.panels import share_a_device
from collbench.report.sanitize import Sound, plain
from collbench.report.sections import distinct
from collbench.results import (
    PARTS,
    Explanation,
    Failed,
    Observed,
    PlannedStep,
    Prediction,
    Reported,
    Result,
    Skipped,
    StepPrediction,
    StepRow,
    Timed,
    Trained,
    timed,
)
from collbench.units import format_rate, format_seconds, format_size

NUMBERS = ("time", "interval", "min", "p95", "max", "algbw", "busbw", "vs library")
MEANINGS = {
    "time": "time: the median, of imported rows what their check says",
    "interval": "interval: 95 % of the median, or nine in ten of a prediction",
    "algbw": "algbw, busbw: GB/s, 1e9 bytes/s",
}
TAGS = 4  # bytes around the text of a cell
MARKS = 80  # bytes around a row


class TableRow(NamedTuple):
    """A row of the table; of its numbers there are as many as it has, from the first on."""

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
        return MARKS + sum(len(escape(text).encode()) + TAGS for text in texts)


class RawTable(NamedTuple):
    """As many rows as there is room for, and only columns that have a number."""

    caption: str
    heading: Sequence[str]
    rows: list[TableRow]
    left_out: int
    meanings: list[str]  # of the columns

    def span(self, row: TableRow) -> int:
        """Columns of a row's check, which has those of the missing numbers."""
        return len(self.heading) - 2 - len(row.numbers)


def raw_table(runs: Sequence[Sound], room: int) -> RawTable:
    """Every row of the runs until the room, in bytes, is used up."""
    operations = distinct(result.case.title for run in runs for result in run.every)
    rows: list[TableRow] = []
    for run in runs:
        for row in _rows(run, len(runs) > 1, len(operations) > 1):
            room -= row.nbytes
            if room < 0:
                break
            rows.append(row)
    every = sum(len(run.every) + len(run.unread) for run in runs)
    kept = [place for place in range(len(NUMBERS)) if any(any(row.numbers[place : place + 1]) for row in rows)]
    few = [row._replace(numbers=tuple(row.numbers[place] for place in kept if row.numbers[place:])) for row in rows]
    shown = [NUMBERS[place] for place in kept]
    meanings = [MEANINGS[name] for name in shown if name in MEANINGS]
    caption = plain(operations[0], 120) if len(operations) == 1 else "Every row"
    return RawTable(caption, ("implementation", "size", *shown, "check"), few, every - len(rows), meanings)


def _rows(run: Sound, several_runs: bool, several_operations: bool) -> Iterable[TableRow]:
    """Those of a run; what is the same in all rows of the table is not said of each."""
    odd = {id(result): reason for result, reason in run.odd}
    references = _references(run.run.results)
    for result in run.every:
        status, numbers, check = _told(run, result, odd.get(id(result), ""), references)
        size = format_size(result.case.nbytes) if 0 <= result.case.nbytes < 2**70 else "?"
        title = plain(result.case.title, 120) if several_operations else ""
        about = ", ".join(filter(None, (run.label if several_runs else "", title)))
        yield TableRow(result.label, about, size, numbers, check, status)
    label = run.label if several_runs else ""
    yield from (TableRow("?", label, "?", (), f"not usable: line {why}", "bad") for why in run.unread)


def _references(results: Iterable[Result]) -> dict[Case, Timed]:
    """The library's result for each case that it has a time for: the last, and of several libraries the fastest."""
    last = {(result.case, result.implementation): result for result in timed(results)}
    every = sorted((one for one in last.values() if is_library(one.implementation)), key=lambda one: -one.typical)
    return {result.case: result for result in every}


def _told(run: Sound, result: Result, odd: str, references: dict[Case, Timed]) -> tuple[str, tuple[str, ...], str]:
    """How its check is to look, its numbers, and its check, which is the reason where there are no numbers."""
    if odd:
        return "bad", (), f"not usable: {odd}"
    if isinstance(result, Skipped):
        return "plain", (), f"skipped: {result.reason}"
    if isinstance(result, Failed):
        return "bad", (), f"FAILED: {result.reason}"
    if isinstance(result, Explanation):
        return "plain", (format_seconds(result.seconds),), _explained(result)
    if result.wrong:
        return "bad", (), f"WRONG: {plain(result.wrong)}"
    if isinstance(result, StepRow):
        return "ok", (format_seconds(result.typical),), _stepped(result)
    if isinstance(result, PlannedStep):
        return "ok", _planned(result), f"predicted {result.purpose} plan: MFU {result.utilisation:.0%}"
    if isinstance(result, Trained):
        return "ok", (format_seconds(result.seconds),), f"ok, training to loss {result.least:.4g}"
    return "ok", _numbers(run, result, references.get(result.case)), check(result)


def _numbers(run: Sound, result: Timed, library: Timed | None) -> tuple[str, ...]:
    low, high = result.band
    spread = ["", "", ""]
    if isinstance(result, Observed) and len(result.times) > 1:
        spread = [format_seconds(result.percentile(percent)) for percent in (0, 95, 100)]
    shared = isinstance(result, Observed) and share_a_device(run.run, [result])
    sized = result.case.collective.sized
    return (
        format_seconds(result.typical),
        f"{format_seconds(low)} - {format_seconds(high)}" if low == low else "",
        *spread,
        format_rate(result.algbw) if sized else "",
        format_rate(result.busbw) if sized and not shared else "",
        f"{library.typical / result.typical:.3g}x" if library and library is not result else "",
    )


def check(result: Timed) -> str:
    """What a right row says of itself, in the table and at its point of a curve: its check, its bound, its note."""
    if isinstance(result, Prediction):
        said = "predicted" + (
            f", {how}" if (how := "/".join(filter(None, (result.algorithm, result.protocol)))) else ""
        )
    else:
        said = result.standing if isinstance(result, Reported) else "ok"
    return ", ".join(filter(None, (said, share_in_words(result), str(result.note))))


def _stepped(result: StepRow) -> str:
    parts = {"computing": result.computing(), "waiting": result.waiting(), "exposed": result.exposed()}
    whole = sum(parts.values())
    said = ", ".join(f"{name} {part / whole:.0%}" for name, part in parts.items()) if whole > 0 else ""
    known = "predicted step" if isinstance(result, StepPrediction) else "step, ok"
    return ", ".join(filter(None, (f"{known}: {said}", str(result.note))))


def _planned(result: PlannedStep) -> tuple[str, ...]:
    """A step and its band; no bandwidth, since it is no collective alone."""
    low, high = result.band
    return format_seconds(result.typical), f"{format_seconds(low)} - {format_seconds(high)}"


def _explained(result: Explanation) -> str:
    if not result.tracks:
        return "explained: a library cannot be looked into"
    parts = ", ".join(f"{part} {result.share(part):.0%}" for part in PARTS)
    return ", ".join(filter(None, (f"explained: {parts}", str(result.note))))
