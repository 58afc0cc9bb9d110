"""Rows of steps as lines of a table."""

import math

from collbench.analysis.scaling.points import Curve, Point
from collbench.cli._columns import Table
from collbench.results import Result, StepPrediction, StepRow, StepTimes, Untimed
from collbench.units import format_seconds

_ROW = Table(
    "{ranks:>9}  {name:<22} {step:>10} {interval:>7} {speedup:>22} {efficiency:>22} {compute:>8} {wait:>8} {send:>8}"
    "  {check}",
    ("compute", "wait", "send", "interval", "speedup", "efficiency"),
)

LEGEND = (
    "step: median of the series' means; speed-up and efficiency: over one rank alone (or the fewest), by the rounds in "
    "which\nthey took turns, with the 95 % interval of the median; compute, wait, exposed: shares of a rank's step, "
    "computing,\nwaiting for the last to have computed, and in communication that nothing hides"
)
PREDICTED = "a model's numbers: nothing was measured; intervals are bands in which nine of ten should lie"


def heading() -> str:
    """The names of the columns of a scaling."""
    return _ROW.line(
        {
            "ranks": "ranks",
            "name": "",
            "step": "step",
            "interval": "± 95 %",
            "speedup": "speed-up",
            "efficiency": "efficiency",
            "compute": "compute",
            "wait": "wait",
            "send": "exposed",
            "check": "check",
        }
    ).rstrip()


def scaling_row(result: Result, curve: Curve | None, point: Point | None) -> str:
    """A row of a scaling; on a curve, with its speed-up and efficiency."""
    ranks, name = f"{result.case.ranks:,}", result.label
    if isinstance(result, Untimed):
        return f"{ranks:>9}  {name:<22} {result.outcome.value if not result.outcome.bad else 'FAILED'}: {result.reason}"
    if result.wrong:
        return f"{ranks:>9}  {name:<22} WRONG: {result.wrong}"
    assert isinstance(result, StepRow)
    whole = result.computing() + result.waiting() + result.exposed()
    parts = (result.computing(), result.waiting(), result.exposed())
    compute, wait, send = (f"{part / whole:.1%}" if whole else "" for part in parts)
    return _ROW.line(
        {
            "ranks": ranks,
            "name": name,
            "step": format_seconds(result.typical),
            "interval": _halfwidth(result),
            "speedup": curve.speedup(point).text("x") if curve and point else "1x",
            "efficiency": point.efficiency.times(100).text("%") if point else "100%",
            "compute": compute,
            "wait": wait,
            "send": send,
            "check": _check(result),
        }
    ).rstrip()


def _halfwidth(result: StepRow) -> str:
    low, high = result.band
    return f"{(high - low) / 2 / result.typical:.1%}" if math.isfinite(high - low) else "?"


def _check(result: StepRow) -> str:
    if isinstance(result, StepPrediction):
        way = "/".join(filter(None, (result.algorithm, result.protocol)))
        said = f"predicted, {way}" if way else "predicted"
    else:
        assert isinstance(result, StepTimes)
        said = result.check
    return ", ".join(filter(None, (said, str(result.note))))
