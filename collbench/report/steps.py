"""What the page says of steps and training: how they scale, what overlap hides, who is late, which style is first.

Another thing to say of them is a function in PARTS: the words are those of the command that measures it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from collbench.analysis import overlap, standings
from collbench.analysis.jitter import accusation, judgement
from collbench.analysis.jitter.lateness import Steps as Moments
from collbench.analysis.jitter.lateness import witnesses
from collbench.analysis.race import race
from collbench.analysis.scaling.points import Curve, curves
from collbench.analysis.scaling.verdict import lines
from collbench.report.analysed import AnalysedRun
from collbench.report.sanitize import safe_text
from collbench.report.sections import Anchors, Picture, TextTable, pictures
from collbench.results import Result, StepPrediction, StepTimes, Trained
from collbench.units import format_seconds, format_size

_MOST = 60  # rows of a table, tables, and verdicts
STEPPED = (StepTimes, StepPrediction, Trained)
_MOST_LATE = 8  # ranks of a table: those that cost most


class Steps(NamedTuple):
    """Tables, what they come to in words, and pictures."""

    tables: list[TextTable]
    words: list[str]
    pictures: Sequence[Picture] = ()
    left_out: int = 0  # pictures


def steps(analysed: AnalysedRun, room: int, anchors: Anchors) -> Steps:
    """By the steps and the training of a run, with pictures of so many bytes; nothing where it has none."""
    found = [part(analysed.run.results) for part in PARTS]
    tables = [table for part in found for table in part.tables]
    words = [line for part in found for line in part.words]
    drawn, left_out = pictures(analysed.run, STEPPED, room, anchors) if tables else ([], 0)
    return Steps(tables[:_MOST], [safe_text(line, 600) for line in words[:_MOST]], drawn, left_out)


def _scaled(results: Sequence[Result]) -> Steps:
    """How they scale."""
    found = [curve for curve in curves(results) if len(curve.points) > 1]
    return Steps([_scaling(curve) for curve in found], [line for curve in found for line in lines(curve)])


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
        safe_text(f"{curve.mode} scaling, {curve.name}", 120), ("ranks", "step", "speed-up", "efficiency"), rows
    )


def _overlapped(results: Sequence[Result]) -> Steps:
    """What overlap hides."""
    rows = [
        (
            safe_text(one.row.label, 60),
            safe_text(one.step.way, 40),
            format_size(one.step.bucket) if one.step.bucket else "all",
            format_seconds(one.row.typical),
            one.gain.text("x"),
        )
        for one in overlap.overlaps(results)[:_MOST]
    ]
    heading = ("implementation", "schedule", "bucket", "step", "gain")
    return Steps([TextTable("Overlap", heading, rows)] if rows else [], overlap.verdicts(results))


def _late(results: Sequence[Result]) -> Steps:
    """Who is late, or nobody, or that nobody can tell."""
    tables = [_lateness(row.label, moments) for row, moments in witnesses(results)[:_MOST]]
    return Steps(tables, judgement.verdicts(results))


def _lateness(label: str, moments: Moments) -> TextTable:
    """Of the ranks that cost most; by one row alone, where the verdict is by all."""
    found = accusation.verdict([moments]).testimonies
    costly = sorted(found, key=lambda one: moments.cost(one.rank), reverse=True)
    rows = [
        (
            f"{one.rank}",
            f"{moments.last_share(one.rank):.0%}",
            judgement.late_by(one, moments.typical),
            f"{moments.cost(one.rank):.1%}",
            one.finding.value,
        )
        for one in costly[:_MOST_LATE]
    ]
    more = f"; {len(costly) - _MOST_LATE} ranks cost less" if len(costly) > _MOST_LATE else ""
    caption = f"Late ranks, {safe_text(label, 60)}: {moments.count:,} steps{more}"
    return TextTable(caption, ("rank", "was the last", "late", "costs the others", "finding"), rows)


def _raced(results: Sequence[Result]) -> Steps:
    """Which style of synchronisation reaches a loss first."""
    told = race(results)
    if not told:
        return Steps([], [])
    rows = [tuple(safe_text(text, 60) for text in one) for one in standings.standings(told)][:_MOST]
    return Steps([TextTable(f"Styles: to loss {told.target:g}", standings.COLUMNS, rows)], [*standings.verdict(told)])


PARTS = (_scaled, _overlapped, _late, _raced)
