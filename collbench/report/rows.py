"""Every row of the runs as rows of the page's table, with the reason where there is no number."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import escape

from collbench.analysis.bound import in_words
from collbench.cases import Case
from collbench.figures.panels import share_a_device
from collbench.implementations import is_library
from collbench.measurement import Explanation, Failed, Prediction, Reported, Result, Skipped, timed
from collbench.observed import Observed, Timed
from collbench.planned import PlannedStep
from collbench.report.sanitize import Sound, plain
from collbench.step_times import StepPrediction, StepRow
from collbench.tracks import PARTS
from collbench.trained import Trained
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
TAGS = 12  # bytes around the text of a cell


class TableRow(NamedTuple):
    """A row of the table: its first cells, and how its check is to look."""

    implementation: str
    cells: tuple[str, ...]
    check: str
    status: str  # a class of report.css: ok, plain, bad

    @property
    def width(self) -> int:
        """Columns of the check, which has those of the missing numbers."""
        return len(HEADING) - 1 - len(self.cells)

    @property
    def nbytes(self) -> int:
        """About how long it is in the page."""
        texts = (self.implementation, *self.cells, self.check)
        return sum(len(escape(text).encode()) + TAGS for text in texts)


class RawTable(NamedTuple):
    """As many rows as there is room for."""

    caption: str
    heading: Sequence[str]
    rows: list[TableRow]
    left_out: int


def raw_table(runs: Sequence[Sound]) -> RawTable:
    """Every row of the runs until the room is used up."""
    rows: list[TableRow] = []
    room = ROOM
    for run in runs:
        odd = {id(result): reason for result, reason in run.odd}
        references = _references(run.run.results)
        for result in run.every:
            if room <= 0:
                break
            rows.append(_row(run, result, odd.get(id(result), ""), references))
            room -= rows[-1].nbytes
        rows += [TableRow("?", (run.label, "?", "?"), f"not usable: line {why}", "bad") for why in run.unread]
    every = sum(len(run.every) + len(run.unread) for run in runs)
    return RawTable("Every row of the runs", HEADING, rows, every - len(rows))


def _references(results: Iterable[Result]) -> dict[Case, Timed]:
    """The library's result for each case that it has a time for: the last, and of several libraries the fastest."""
    last = {(result.case, result.implementation): result for result in timed(results)}
    every = sorted((one for one in last.values() if is_library(one.implementation)), key=lambda one: -one.typical)
    return {result.case: result for result in every}


def _row(run: Sound, result: Result, odd: str, references: dict[Case, Timed]) -> TableRow:
    status, numbers, check = _told(run, result, odd, references)
    size = format_size(result.case.nbytes) if 0 <= result.case.nbytes < 2**70 else "?"
    cells = run.label, plain(result.case.title, 120), size, *numbers
    return TableRow(result.label, cells, check, status)


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
    return "ok", _numbers(run, result, references.get(result.case)), _check(result)


def _numbers(run: Sound, result: Timed, library: Timed | None) -> tuple[str, ...]:
    low, high = result.band
    spread = ["", "", ""]
    if isinstance(result, Observed) and len(result.times) > 1:
        spread = [format_seconds(result.percentile(percent)) for percent in (0, 95, 100)]
    shared = isinstance(result, Observed) and share_a_device(run.run, [result])
    return (
        format_seconds(result.typical),
        f"{format_seconds(low)} - {format_seconds(high)}" if low == low else "",
        *spread,
        format_rate(result.algbw),
        "" if shared else format_rate(result.busbw),
        f"{library.typical / result.typical:.3g}x" if library and library is not result else "",
    )


def _check(result: Timed) -> str:
    if isinstance(result, Prediction):
        said = "predicted" + (
            f", {how}" if (how := "/".join(filter(None, (result.algorithm, result.protocol)))) else ""
        )
    else:
        said = result.standing if isinstance(result, Reported) else "ok"
    return ", ".join(filter(None, (said, in_words(result), str(result.note))))


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
