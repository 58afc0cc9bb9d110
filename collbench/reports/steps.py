"""What the report says of steps and training: scaling, overlap, stragglers, and strategies, in the commands' words.

Another thing to say of them is a function in PARTS.
"""

from collections.abc import Sequence

from collbench.analysis import overlap, scaling, stragglers, strategies
from collbench.reports.analysed import AnalysedRun
from collbench.reports.sanitize import safe_text
from collbench.reports.sections import Anchors, Part, TextTable, pictures
from collbench.results import Result, StepPrediction, StepTimes, Trained
from collbench.units import format_seconds, format_size

STEPPED = (StepTimes, StepPrediction, Trained)
_MOST = 60  # rows of a table, tables, and verdicts
_MOST_LATE = 8  # ranks of a table: those that cost most


def steps(analysed: AnalysedRun, room: int, anchors: Anchors) -> Part:
    """Return what is said of the steps and the training of a run, with pictures of at most *room* bytes."""
    tables: list[TextTable] = []
    words: list[str] = []
    for part in PARTS:
        found = part(analysed.run.results)
        tables += found.tables
        words += found.words
    drawn, left_out = pictures(analysed.run, STEPPED, room, anchors) if tables else ([], 0)
    return Part([safe_text(line, 600) for line in words[:_MOST]], tables[:_MOST], drawn, left_out)


def _scaling(results: Sequence[Result]) -> Part:
    tables, words = [], []
    for curve in scaling.curves(results):
        rows = []
        for point in curve.points[:_MOST]:
            speedup, efficiency = curve.speedup(point).text("x"), point.efficiency.times(100).text("%")
            rows.append((f"{point.ranks:,}", format_seconds(point.row.typical), speedup, efficiency))
        caption = safe_text(f"{curve.mode} scaling, {curve.name}", 120)
        tables.append(TextTable(caption, ("ranks", "step", "speed-up", "efficiency"), rows))
        words += scaling.verdict(curve)
    return Part(words, tables)


def _overlap(results: Sequence[Result]) -> Part:
    rows = []
    for found in overlap.overlaps(results)[:_MOST]:
        name, schedule = safe_text(found.row.label, 60), safe_text(found.step.way, 40)
        bucket = format_size(found.step.bucket) if found.step.bucket else "all"
        rows.append((name, schedule, bucket, format_seconds(found.row.typical), found.gain.text("x")))
    heading = ("implementation", "schedule", "bucket", "step", "gain")
    return Part(overlap.verdicts(results), [TextTable("Overlap", heading, rows)] if rows else [])


def _stragglers(results: Sequence[Result]) -> Part:
    """Return the ranks that cost most, by each row alone; the verdict in words is by all rows."""
    tables = []
    for result, moments in stragglers.straggler_rows(results)[:_MOST]:
        rows = []
        costly = stragglers.costliest(moments)
        for rank in costly[:_MOST_LATE]:
            late, cost = stragglers.late_by(rank, moments.median), f"{moments.cost(rank.rank):.1%}"
            rows.append((f"{rank.rank}", f"{moments.last_share(rank.rank):.0%}", late, cost, rank.finding.value))
        more = f"; {len(costly) - _MOST_LATE} ranks cost less" if len(costly) > _MOST_LATE else ""
        caption = f"Late ranks, {safe_text(result.label, 60)}: {moments.count:,} steps{more}"
        tables.append(TextTable(caption, ("rank", "was the last", "late", "costs the others", "finding"), rows))
    return Part(stragglers.verdicts(results), tables)


def _strategies(results: Sequence[Result]) -> Part:
    found = strategies.ranking(results)
    if not found:
        return Part()
    rows = [tuple(safe_text(text, 60) for text in row.values()) for row in strategies.table(found)][:_MOST]
    caption = f"Strategies: to loss {found.target:g}"
    return Part([*strategies.verdict(found)], [TextTable(caption, [*strategies.COLUMNS.values()], rows)])


PARTS = (_scaling, _overlap, _stragglers, _strategies)
