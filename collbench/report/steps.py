"""What the page says of steps: how they scale, what overlap hides, and the verdicts in words."""

from typing import NamedTuple

from collbench.analysis import overlap
from collbench.analysis.scaling.points import Curve, curves
from collbench.analysis.scaling.verdict import lines
from collbench.report.sanitize import plain
from collbench.report.sections import AnalysedRun, TextTable
from collbench.units import format_seconds, format_size

_MOST = 60  # rows of a table, and verdicts


class Steps(NamedTuple):
    """Tables, and what they come to in words."""

    tables: list[TextTable]
    words: list[str]


def steps(analysed: AnalysedRun) -> Steps:
    """By the steps of a run; nothing where it has none."""
    results = analysed.run.run.results
    scaled = [curve for curve in curves(results) if len(curve.points) > 1]
    overlapped = overlap.overlaps(results)
    tables = [_scaling(curve) for curve in scaled] if not overlapped else []
    tables += [_overlap(overlapped)] if overlapped else []
    words = [line for curve in scaled for line in lines(curve)] + overlap.verdicts(results)
    return Steps(tables, [plain(line, 600) for line in words[:_MOST]])


def _scaling(curve: Curve) -> TextTable:
    rows = [
        (
            f"{point.ranks:,}",
            format_seconds(point.row.typical),
            curve.speedup(point).text("x"),
            point.efficiency.times(100).text("%"),
        )
        for point in curve.points[:_MOST]
    ]
    return TextTable(
        plain(f"{curve.mode} scaling, {curve.name}", 120), ("ranks", "step", "speed-up", "efficiency"), rows
    )


def _overlap(found: list[overlap.Overlap]) -> TextTable:
    rows = [
        (
            plain(one.row.label, 60),
            plain(one.step.schedule, 40),
            format_size(one.step.bucket) if one.step.bucket else "all",
            format_seconds(one.row.typical),
            one.gain.text("x"),
        )
        for one in found[:_MOST]
    ]
    return TextTable("Overlap", ("implementation", "schedule", "bucket", "step", "gain"), rows)
