"""Results as lines of a table, made one by one while a sweep runs or is predicted."""

import math
from collections.abc import Iterable, Iterator, Sequence

from collbench.analysis.roofline import share_in_words
from collbench.cli import _explain_table, _styles_table
from collbench.cli._columns import Table
from collbench.cli._step_table import scaling_row
from collbench.results import (
    Explanation,
    Measurement,
    Observed,
    PlannedStep,
    Prediction,
    Reported,
    Result,
    Skipped,
    StepRow,
    Timed,
    Trained,
    Untimed,
)
from collbench.stats import percentile
from collbench.units import digits, format_rate, format_seconds, format_size, significant

PAIRED_LEGEND = (
    "time: median of one operation on the slowest rank, ± half its 95 % interval\n"
    "B / A: the median of the rounds' ratios, below 1 where B is faster; rounds: the least and the greatest of them"
)
LEGEND = (
    "time: median of one operation on the slowest rank, ± half its 95 % interval\n"
    "algbw, busbw: GB/s, 1e9 bytes/s; vs: the library's time over this one's, so above 1 is faster"
)
SEVERAL = "vs best: of several libraries the fastest at that size"
REPORTED_LEGEND = (
    "time: {figures}; none of them is checked here\nalgbw, busbw: GB/s, 1e9 bytes/s, by collbench from size and time"
)
EXPECTED_LEGEND = (
    "time: what a model expects of one operation on the slowest rank; nine in ten: the band around it\n"
    "algbw, busbw: GB/s, 1e9 bytes/s; vs: the library's time over this one's, so above 1 is faster"
)
CHANGE_LEGEND = "takes: what one operation should take with the change, over what it takes as the system is described"
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
_PAIRED = Table(
    f"{{size:>9}}  {{name:<{NAME}}} {{label:<18}} {{time:>9}} {{interval:>7}} {{algbw:>8}} {{busbw:>8}} {{ratio:>8}}"
    "  {spread:>16}  {check}",
    ("algbw", "busbw", "interval", "spread", "ratio"),
)
_LABEL = 18  # characters of a setting's name in a row
_CHANGE = Table("{size:>9}  {name:<16} {before:>9} {after:>9} {ratio:>8}  {how:<16} {note}", ("how", "before"))
_MODELLED = {"band": "nine in ten", "how": "algorithm", "check": ""}
_SPREAD = {"min": 0, "p95": 95, "p99": 99, "max": 100}


def heading(library: str, spread: bool = False, estimates: bool = False, width: int = NAME) -> str:
    """The names of the columns; `spread` adds the percentiles of the samples, `estimates` what the library expects.

    `width` is that of the longest implementation's name.
    """
    return _rows(width).line(_headings(library, spread, estimates))


def left_out(library: str, spread: bool, estimates: bool, width: int, modelled: bool) -> list[str]:
    """The columns that a terminal is too narrow for."""
    names = _headings(library, spread, estimates)
    gone = _EXPECTED.left_out(names | _MODELLED) if modelled else _rows(width).left_out(names)
    return [named for name in gone if (named := names.get(name, name).strip())]


def _rows(width: int) -> Table:
    return Table(_ROW.replace("WIDTH", str(width)), _FIRST_OUT)


def _headings(library: str, spread: bool, estimates: bool) -> dict[str, str]:
    more = "".join(f"{name:>9} " for name in _SPREAD) if spread else ""
    estimate = f"{'estimate':>9} " if estimates else ""
    return {**_names(library), "interval": "± 95 %", "spread": more, "estimate": estimate, "check": "check"}


def expected_heading(library: str) -> str:
    """The same for predictions."""
    return _EXPECTED.line(_names(library) | _MODELLED).rstrip()


def _names(library: str) -> dict[str, str]:
    """Of the columns that measurements and predictions have in common."""
    names = {name: name for name in ("size", "time", "algbw", "busbw")}
    return names | {"name": "", "ratio": f"vs {library}" if library else ""}


def change_heading() -> str:
    """The names of the columns where the same is predicted twice."""
    names = {"size": "size", "name": "", "before": "as it is", "after": "what if", "ratio": "takes"}
    return _CHANGE.line(names | {"how": "algorithm", "note": ""}).rstrip()


def change_row(before: Result, after: Result) -> str:
    """A prediction beside the one without the change; `takes` is how many times as long it lasts."""
    if not isinstance(before, Prediction) or not isinstance(after, Prediction):
        return row(after, None)
    cells = {
        "size": format_size(after.case.nbytes),
        "name": after.implementation,
        "before": format_seconds(before.seconds),
        "after": format_seconds(after.seconds),
        "ratio": f"{after.seconds / before.seconds:.2f}x",
        "how": _way(after),
        "note": _joined("predicted", after),
    }
    return _CHANGE.line(cells)


def label(letter: str, setting: str) -> str:
    """What a row calls a setting: its letter, and as much of the end of its words as there is room for."""
    words, room = setting or "as is", _LABEL - len(letter) - 1
    return f"{letter} {words if len(words) <= room else '…' + words[1 - room :]}"


def paired_heading() -> str:
    """The names of the columns where two settings are measured in turn."""
    names = _names("") | {"ratio": "B / A"}
    return _PAIRED.line(names | {"label": "setting", "interval": "± 95 %", "spread": "rounds", "check": "check"})


def paired_rows(pair: tuple[Result, Result], labels: tuple[str, str], ratios: Sequence[float]) -> Iterator[str]:
    """A row for each of two settings, or one for both where they are skipped alike.

    `ratios` are those of the rounds, none where one of them has no time.
    """
    if isinstance(pair[0], Skipped) and pair[0] == pair[1]:
        yield row(pair[0], None)
        return
    for number, (result, name) in enumerate(zip(pair, labels, strict=True)):
        size, implementation = ("", "") if number else (format_size(result.case.nbytes), result.label)
        if not isinstance(result, Measurement) or result.mismatch:
            yield f"{size:>9}  {implementation:<16} {name:<{_LABEL}} {_reason(result)}"
            continue
        told = ratios if number else ()
        ratio = f"{_factor(percentile(told, 50))}x" if told else ""
        cells = {"size": size, "name": implementation, "ratio": ratio, "label": name, "interval": _halfwidth(result)}
        spread = f"{_factor(min(told))} .. {_factor(max(told))}" if len(told) > 1 else ""
        yield _PAIRED.line(_cells(result) | cells | {"spread": spread, "check": _joined(result.check, result)})


def _factor(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 100 else f"{ratio:.0f}"


def _reason(result: Result) -> str:
    """Why there is no time."""
    if isinstance(result, Untimed):
        return f"{'skipped' if isinstance(result, Skipped) else 'FAILED'}: {result.reason}"
    return f"WRONG: {result.wrong}" if result.wrong else ""


def _halfwidth(result: Observed) -> str:
    low, high = result.interval
    halfwidth = (high - low) / 2 / result.typical
    return f"{halfwidth:.{1 if halfwidth < 0.1 else 0}%}" if halfwidth < 10 else "?"


def row(result: Result, library: Timed | None, spread: bool = False, estimates: bool = False, width: int = NAME) -> str:
    """One result; `library` is the result for the same case that it is compared with."""
    size = format_size(result.case.nbytes)
    if isinstance(result, Untimed) or result.wrong:
        return Table(f"{{size:>9}}  {{name:<{width}}} {{reason}}").line(
            {"size": size, "name": result.label, "reason": _reason(result)}
        )
    if isinstance(result, Explanation):
        return _explain_table.row(result)
    if isinstance(result, Trained):
        return _styles_table.row(result)
    if isinstance(result, Prediction):
        return _expected_row(result, library)
    if isinstance(result, PlannedStep):
        return f"{size:>9}  {result.label:<{width}} {format_seconds(result.typical):>9}  {_joined('planned', result)}"
    if isinstance(result, StepRow):
        return scaling_row(result, None, None)
    if not result.typical > 0:  # some tools print a row without a time
        return f"{size:>9}  {result.label:<{width}} {_joined('no time', result)}"
    percentiles = [format_seconds(result.percentile(percent)) for percent in _SPREAD.values()] if spread else []
    more = {
        "interval": _halfwidth(result),
        "spread": "".join(f"{seconds:>9} " for seconds in percentiles),
        "estimate": f"{_estimate(result):>9} " if estimates else "",
        "check": _joined(_check(result), result),
    }
    return _rows(width).line(_cells(result, library) | more)


def _cells(result: Timed, library: Timed | None = None) -> dict[str, str]:
    return {
        "size": format_size(result.case.nbytes),
        "name": result.label,
        "time": format_seconds(result.typical, digits(_doubt(result))),
        "algbw": _rate(result, result.algbw),
        "busbw": "-" if _busless(result) else _rate(result, result.busbw),
        "ratio": _ratio(result, library),
    }


def _rate(result: Timed, rate: float) -> str:
    return format_rate(rate, digits(_doubt(result))) if result.case.collective.sized else ""


def _busless(result: Result | Timed) -> bool:
    """Whether messages have a size, but cross no bus."""
    return isinstance(result, Timed) and bool(result.note.shared) and result.case.collective.sized


def explained(results: Iterable[Result]) -> list[str]:
    """A line below the table for each thing in it that only some tables have."""
    results = list(results)
    estimates = any(isinstance(result, Measurement) and result.estimate is not None for result in results)
    return [*([ESTIMATE] if estimates else []), *([SHARED] if any(map(_busless, results)) else [])]


def _joined(check: str, result: Timed) -> str:
    return ", ".join(filter(None, [check, share_in_words(result), str(result.note)]))


def _check(result: Observed) -> str:
    return result.standing if isinstance(result, Reported) else result.check


def _way(result: Prediction) -> str:
    return "/".join(filter(None, [result.algorithm, result.protocol]))


def _estimate(result: Observed) -> str:
    estimate = result.estimate if isinstance(result, Measurement) else None
    return "" if estimate is None else format_seconds(estimate)


def _expected_row(result: Prediction, library: Timed | None) -> str:
    band = " .. ".join(map(format_seconds, result.band))
    more = {"band": band, "how": _way(result), "check": _joined("predicted", result)}
    return _EXPECTED.line(_cells(result, library) | more)


def _ratio(result: Timed, library: Timed | None) -> str:
    if library is None or library is result:
        return ""
    speedup = library.typical / result.typical
    known = digits(math.hypot(_doubt(result), _doubt(library)))
    return f"{significant(speedup, known, 2)}x" if speedup >= 0.01 else f"{speedup:.1g}x"


def _doubt(result: Timed) -> float:
    """Half the interval of what was measured over the median; of all else nothing is known that digits could show."""
    if not isinstance(result, Observed):
        return 0.0
    low, high = result.interval
    return (high - low) / 2 / result.typical if math.isfinite(high) else 0.0
