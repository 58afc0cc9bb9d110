"""Overlapped steps as lines of a table, and the verdict on them."""

import math
from collections.abc import Sequence

from collbench.analysis.overlap import COSTS, HELPS, Overlap, as_good
from collbench.analysis.rounds import Estimate
from collbench.measurement import Result, Untimed
from collbench.step_times import StepPrediction, StepRow
from collbench.units import format_figure, format_seconds, format_size

_ROW = (
    "{name:<22} {schedule:<12} {bucket:>9} {step:>9} {interval:>7} {exposed:>9} {hidden:>16} {slower:>20} {gain:>20}"
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
    start = f"{result.label:<22} {step.schedule:<12} {bucket:>9}"
    if isinstance(result, Untimed):
        return f"{start} {'FAILED' if result.outcome.bad else result.outcome.value}: {result.reason}"
    if result.wrong:
        return f"{start} WRONG: {result.wrong}"
    assert isinstance(result, StepRow)
    return _ROW.format(
        name=result.label,
        schedule=step.schedule,
        bucket=bucket,
        step=format_seconds(result.typical),
        interval=_halfwidth(result),
        exposed=_seconds(overlap.exposed.value) if overlap else _seconds(result.exposed()),
        hidden=_estimate(overlap.hidden.times(100), "%") if overlap else "",
        slower=_estimate(overlap.slowdown, "x") if overlap else "",
        gain=_estimate(overlap.gain, "x") if overlap else "",
        check=", ".join(filter(None, ("predicted" if isinstance(result, StepPrediction) else "ok", str(result.note)))),
    ).rstrip()


def _seconds(seconds: float) -> str:
    return f"-{format_seconds(-seconds)}" if seconds < 0 else format_seconds(seconds)


def _halfwidth(result: StepRow) -> str:
    low, high = result.band
    return f"{(high - low) / 2 / result.typical:.1%}" if math.isfinite(high - low) else "?"


def _estimate(estimate: Estimate, unit: str) -> str:
    if not math.isfinite(estimate.value):
        return ""
    value = f"{format_figure(estimate.value)}{unit}"
    return f"{value} ({format_figure(estimate.low)}..{format_figure(estimate.high)})" if estimate.known else value


def verdict(fastest: Overlap, own: Sequence[Overlap]) -> str:
    """Whether overlap helps, by how much, with what buckets, and why not if it does not."""
    step = fastest.step
    bucket = f"{step.schedule} with buckets of {format_size(step.bucket)}"
    before, after = format_seconds(fastest.sequential.typical), format_seconds(fastest.row.typical)
    said = f"{fastest.row.label}: {bucket} is fastest: {before} -> {after}, {_estimate(fastest.gain, 'x')}: "
    words = {HELPS: "overlap helps", COSTS: "overlap costs more than it hides"}
    said += words.get(fastest.verdict, "inconclusive, 1 is in the interval")
    said += f"; nothing could be below {format_seconds(fastest.bound)}, the longer part alone"
    if math.isfinite(fastest.slowdown.value) and fastest.slowdown.value > 1.05:
        said += f"; computing takes {_estimate(fastest.slowdown, 'x')} as long meanwhile"
    if str(fastest.row.note):
        said += f" ({fastest.row.note})"
    others = {format_size(one.step.bucket) for one in as_good(fastest, own) if one.step.schedule == step.schedule}
    return said + (f"; not told apart from buckets of {', '.join(sorted(others))}" if others else "")
