"""Overlapped steps as lines of a table, and the verdict on them."""

import math

from collbench.analysis.overlap import Overlap
from collbench.analysis.rounds import Estimate
from collbench.results import Result, StepPrediction, StepRow, Untimed
from collbench.units import format_figure, format_seconds, format_size

_ROW = (
    "{name:<22} {schedule:<16} {bucket:>9} {step:>9} {interval:>7} {exposed:>9} {hidden:>20} {slower:>20} {gain:>22}"
    "  {check}"
)
LEGEND = (
    "step: median of the series' means; exposed: the step beyond computing alone; hidden: of what could be at best,\n"
    "where the longer part alone is left; computing: how many times as long as alone; gain: over one part after "
    "the other.\nAll steps took turns; in parentheses the 95 % interval of the rounds' median"
)
PREDICTED = "a model's numbers: nothing was measured"


def heading() -> str:
    """The names of the columns."""
    names = {name: name for name in ("schedule", "bucket", "step", "exposed", "hidden", "gain", "check")}
    return _ROW.format(**names, name="", interval="± 95 %", slower="computing").rstrip()


def overlap_row(result: Result, overlap: Overlap | None) -> str:
    """A step; one that overlaps beside the step that does not."""
    step = result.case.step
    assert step
    bucket = format_size(step.bucket) if step.bucket else "all"
    start = f"{result.label:<22} {step.way:<16} {bucket:>9}"
    if isinstance(result, Untimed):
        return f"{start} {'FAILED' if result.outcome.bad else result.outcome.value}: {result.reason}"
    if result.wrong:
        return f"{start} WRONG: {result.wrong}"
    assert isinstance(result, StepRow)
    return _ROW.format(
        name=result.label,
        schedule=step.way,
        bucket=bucket,
        step=format_seconds(result.typical),
        interval=_halfwidth(result),
        exposed=_seconds(overlap.exposed.value) if overlap else _seconds(result.exposed()),
        hidden=_text(overlap.hidden.times(100), "%") if overlap else "",
        slower=_text(overlap.slowdown, "x") if overlap else "",
        gain=_text(overlap.gain, "x") if overlap else "",
        check=", ".join(
            filter(None, ("predicted" if isinstance(result, StepPrediction) else result.check, str(result.note)))
        ),
    ).rstrip()


def _seconds(seconds: float) -> str:
    return f"-{format_seconds(-seconds)}" if seconds < 0 else format_seconds(seconds)


def _halfwidth(result: StepRow) -> str:
    low, high = result.band
    return f"{(high - low) / 2 / result.typical:.1%}" if math.isfinite(high - low) else "?"


def _text(estimate: Estimate, unit: str) -> str:
    """Without an interval where there is none, as of a prediction."""
    if not math.isfinite(estimate.value):
        return ""
    return estimate.text(unit) if estimate.known else f"{format_figure(estimate.value)}{unit}"
