"""Results as rows of a table, made while a sweep runs or is predicted, or while a log is imported."""

import math
from collections.abc import Iterable

from collbench.analysis.roofline import share_in_words
from collbench.cli.tables import Table
from collbench.results import (
    PARTS,
    Explanation,
    Observed,
    PlannedStep,
    Prediction,
    Result,
    StepRow,
    Timed,
    Trained,
)
from collbench.results.collectives import Untimed
from collbench.units import digits, format_rate, format_seconds, format_size, significant

LEGEND = (
    "time: median of one operation on the slowest rank, ± half its 95 % interval\n"
    "algbw, busbw: GB/s, 1e9 bytes/s; vs: the library's time over this row's, so above 1 is faster"
)
REPORTED_LEGEND = (
    "time: {figures}; none of them is checked here\nalgbw, busbw: GB/s, 1e9 bytes/s, by collbench from size and time"
)
EXPECTED_LEGEND = (
    "time: what a model expects of one operation on the slowest rank; nine in ten: the band around it\n"
    "algbw, busbw: GB/s, 1e9 bytes/s; vs: the library's time over this row's, so above 1 is faster"
)
EXPLAIN_LEGEND = (
    "time: median of one operation; the parts are shares of one of median length, the mean over the ranks\n"
    "waited: for another rank's flag or packet, or for the host; moved: bytes, without arithmetic; added: and moved\n"
    "what was added; published: barriers, fences and flags; launch: outside of all that\n"
    "tracing: what keeping the log added to the time"
)
ESTIMATE = (
    "estimate: how long NCCL itself expects the operation to take, from its own tables; nothing is measured for it"
)
SHARED = "busbw -: ranks share a GPU, and between them there is no bus"
NAME = 16  # characters of an implementation's name
_ROW = "{size:>9}  {name:<WIDTH} {time:>9} {interval:>7} {spread}{estimate}{algbw:>8} {busbw:>8} {ratio:>8}  {check}"
_FIRST_OUT = ("spread", "estimate", "algbw", "busbw", "interval", "ratio")
_EXPECTED = Table(
    f"{{size:>9}}  {{name:<{NAME}}} {{time:>9}} {{band:>18}} {{algbw:>8}} {{busbw:>8}} {{ratio:>8}}  "
    "{how:<16} {check}",
    ("algbw", "how", "busbw", "ratio", "band"),
)
_MODELLED = {"band": "nine in ten", "how": "algorithm", "check": ""}
_EXPLAIN = "{name:<16} {time:>9} {launch:>8} {waited:>8} {moved:>8} {added:>8} {published:>9} {tracing:>8}  {note}"
_SPREAD = {"min": 0, "p95": 95, "p99": 99, "max": 100}


def heading(library: str, spread: bool = False, estimates: bool = False, width: int = NAME) -> str:
    """Return the names of the columns of measured rows.

    Args:
        library: What the column "vs" compares with; "" for nothing.
        spread: Add the percentiles of the samples.
        estimates: Add what the library itself expects.
        width: Characters of the longest implementation's name.

    """
    return _measured(width).line(_headings(library, spread, estimates))


def expected_heading(library: str) -> str:
    """Return the names of the columns of predicted rows."""
    return _EXPECTED.line(common_headings(library) | _MODELLED).rstrip()


def explain_heading() -> str:
    """Return the names of the columns of explained rows."""
    names = {name: name for name in ("time", *PARTS, "tracing")}
    return _EXPLAIN.format(name="", **names, note="").rstrip()


def left_out(library: str, spread: bool, estimates: bool, width: int, modelled: bool) -> list[str]:
    """Return the columns that a terminal is too narrow for."""
    names = _headings(library, spread, estimates)
    gone = _EXPECTED.left_out(names | _MODELLED) if modelled else _measured(width).left_out(names)
    titles = [names.get(name, name).strip() for name in gone]
    return [title for title in titles if title]


def _measured(width: int) -> Table:
    return Table(_ROW.replace("WIDTH", str(width)), _FIRST_OUT)


def _headings(library: str, spread: bool, estimates: bool) -> dict[str, str]:
    percentiles = "".join(f"{name:>9} " for name in _SPREAD) if spread else ""
    estimate = f"{'estimate':>9} " if estimates else ""
    more = {"interval": "± 95 %", "spread": percentiles, "estimate": estimate, "check": "check"}
    return common_headings(library) | more


def common_headings(library: str) -> dict[str, str]:
    """Return the names of the columns that measured and predicted rows have in common."""
    names = {name: name for name in ("size", "time", "algbw", "busbw")}
    return names | {"name": "", "ratio": f"vs {library}" if library else ""}


def row(result: Result, library: Timed | None, spread: bool = False, estimates: bool = False, width: int = NAME) -> str:
    """Return one result as a row; `library` is the result for the same case that it is compared with."""
    size = format_size(result.case.nbytes)
    if isinstance(result, Untimed) or result.wrong:
        cells = {"size": size, "name": result.label, "reason": result.problem}
        return Table(f"{{size:>9}}  {{name:<{width}}} {{reason}}").line(cells)
    if isinstance(result, Explanation):
        return explained_row(result)
    if isinstance(result, Trained):
        from collbench.cli._step_tables import strategies_row  # which a sweep has no use for

        return strategies_row(result)
    if isinstance(result, Prediction):
        return _expected_row(result, library)
    if isinstance(result, PlannedStep):
        return f"{size:>9}  {result.label:<{width}} {format_seconds(result.typical):>9}  {remarks('planned', result)}"
    if isinstance(result, StepRow):
        from collbench.cli._step_tables import scaling_row

        return scaling_row(result)
    if not result.typical > 0:  # some tools print a row without a time
        return f"{size:>9}  {result.label:<{width}} {remarks('no time', result)}"
    return _measured_row(result, library, spread, estimates, width)


def _measured_row(result: Observed, library: Timed | None, spread: bool, estimates: bool, width: int) -> str:
    percentiles = [result.percentile(percent) for percent in _SPREAD.values()] if spread else []
    estimate = result.estimate
    cells = cells_of(result, library)
    cells["interval"] = halfwidth(result)
    cells["spread"] = "".join(f"{format_seconds(seconds):>9} " for seconds in percentiles)
    cells["estimate"] = f"{'' if estimate is None else format_seconds(estimate):>9} " if estimates else ""
    cells["check"] = remarks(result.check, result)
    return _measured(width).line(cells)


def _expected_row(result: Prediction, library: Timed | None) -> str:
    cells = cells_of(result, library)
    cells["band"] = " .. ".join(map(format_seconds, result.band))
    cells["how"] = result.method
    cells["check"] = remarks("predicted", result)
    return _EXPECTED.line(cells)


def explained_row(result: Explanation) -> str:
    """Return where the time of one implementation goes; a library shows its time alone."""
    parts = dict.fromkeys((*PARTS, "tracing"), "")
    notes = [result.check if result.disturbed else "", str(result.note)]
    if result.tracks:
        parts = {part: f"{result.share(part):.0%}" for part in PARTS} | {"tracing": f"{result.overhead:+.0%}"}
    else:
        notes.insert(0, "a library cannot be looked into")
    note = "; ".join(filter(None, notes))
    return _EXPLAIN.format(name=result.implementation, time=format_seconds(result.seconds), note=note, **parts).rstrip()


def cells_of(result: Timed, library: Timed | None = None) -> dict[str, str]:
    """Return the cells that measured and predicted rows have in common."""
    return {
        "size": format_size(result.case.nbytes),
        "name": result.label,
        "time": format_seconds(result.typical, digits(_relative_halfwidth(result))),
        "algbw": _rate(result, result.algbw),
        "busbw": "-" if _busless(result) else _rate(result, result.busbw),
        "ratio": _ratio(result, library),
    }


def remarks(check: str, result: Timed) -> str:
    """Return the last cell of a row: how it was checked, and what else there is to say of it."""
    return ", ".join(filter(None, [check, share_in_words(result), str(result.note)]))


def halfwidth(result: Observed) -> str:
    """Return half the interval of the median as a percentage of it."""
    low, high = result.interval
    half = (high - low) / 2 / result.typical
    if not half < 10:
        return "?"
    return f"{half:.1%}" if half < 0.1 else f"{half:.0%}"


def legend_lines(results: Iterable[Result]) -> list[str]:
    """Return a line below the table for each thing in it that only some tables have."""
    lines = []
    results = list(results)
    if any(result.estimate is not None for result in results):
        lines.append(ESTIMATE)
    if any(map(_busless, results)):
        lines.append(SHARED)
    return lines


def _rate(result: Timed, rate: float) -> str:
    return format_rate(rate, digits(_relative_halfwidth(result))) if result.case.collective.sized else ""


def _busless(result: Result | Timed) -> bool:
    """Return whether messages have a size, but cross no bus."""
    return isinstance(result, Timed) and bool(result.note.shared) and result.case.collective.sized


def _ratio(result: Timed, library: Timed | None) -> str:
    if library is None or library is result:
        return ""
    speedup = library.typical / result.typical
    known = digits(math.hypot(_relative_halfwidth(result), _relative_halfwidth(library)))
    return f"{significant(speedup, known, 2)}x" if speedup >= 0.01 else f"{speedup:.1g}x"


def _relative_halfwidth(result: Timed) -> float:
    """Return half the interval over the median; 0 for what was not measured, of which digits cannot show more."""
    if not isinstance(result, Observed):
        return 0.0
    low, high = result.interval
    return (high - low) / 2 / result.typical if math.isfinite(high) else 0.0
