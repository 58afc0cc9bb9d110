"""What the page says of plans of a training run: words, pictures and tables; all of it is predicted."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collbench.analysis.plans import communication, front, planned, rate, scaled, verdicts
from collbench.report.anchors import Anchors
from collbench.report.pictures import Picture, pictures
from collbench.report.sanitize import plain
from collbench.report.sections import AnalysedRun, TextTable
from collbench.results import CaseResult, PlannedStep
from collbench.units import format_count, format_duration, format_figure, format_seconds, format_size

_MOST = 60  # rows of a table, and words


class Plans(NamedTuple):
    """Words, pictures and tables."""

    words: list[str]
    pictures: list[Picture]
    tables: list[TextTable]
    left_out: int  # pictures


def plans(analysed: AnalysedRun, room: int, anchors: Anchors) -> Plans:
    """By the plans of a run, with pictures of so many bytes; nothing where it has none."""
    results = analysed.run.run.results
    tables = [table for make in _TABLES if (table := make(results)).rows]
    drawn, left_out = pictures(analysed.run.run, (PlannedStep,), room, anchors) if tables else ([], 0)
    return Plans([plain(line, 600) for line in verdicts(results)[:_MOST]], drawn, tables, left_out)


def _layouts(results: Sequence[CaseResult]) -> TextTable:
    rows = planned(results, "layout")
    heading = ("layout", "system", "GPUs", "step", "band", "MFU", "tokens/s", "communication", "memory", "of")
    return TextTable("Layouts, predicted", heading, [tuple(_layout(row)) for row in rows[:_MOST]])


def _layout(row: PlannedStep) -> Iterator[str]:
    yield plain(row.implementation, 60)
    yield from _common(row)
    yield f"{communication(row):.1%}"
    yield format_size(row.needed)
    yield format_size(row.capacity)


def _common(row: PlannedStep) -> Iterator[str]:
    """What several tables tell of a plan."""
    yield plain(row.system, 60)
    yield f"{row.gpus:,}"
    yield format_seconds(row.typical)
    yield " - ".join(map(format_seconds, row.band))
    yield f"{row.utilisation:.0%}"
    yield format_count(rate(row) * row.gpus)


def _scales(results: Sequence[CaseResult]) -> TextTable:
    rows = [
        (plain(row.implementation, 60), *_common(row), f"{one.efficiency(row):.1%}")
        for one in scaled(planned(results, "scale"))
        for row in one.rows
    ]
    heading = ("layout", "system", "GPUs", "step", "band", "MFU", "tokens/s", "efficiency")
    return TextTable("Scaling, predicted", heading, rows[:_MOST])


def _interconnects(results: Sequence[CaseResult]) -> TextTable:
    rows = planned(results, "interconnect")
    best = min((row.typical / row.tokens for row in rows), default=1.0)
    told = [
        (
            plain(row.implementation, 60),
            *_common(row),
            f"{communication(row):.1%}",
            f"{format_figure(row.typical / row.tokens / best)}x",
        )
        for row in rows[:_MOST]
    ]
    heading = ("layout", "system", "GPUs", "step", "band", "MFU", "tokens/s", "communication", "time of a token")
    return TextTable("Interconnects, predicted", heading, told)


def _costs(results: Sequence[CaseResult]) -> TextTable:
    rows = [row for row in planned(results, "cost") if row.price > 0]
    best = set(map(id, front(rows)))
    told = [
        (
            plain(row.implementation, 60),
            *_common(row),
            format_duration(row.seconds),
            format_count(row.cost),
            "yes" if id(row) in best else "no",
        )
        for row in rows[:_MOST]
    ]
    heading = ("layout", "system", "GPUs", "step", "band", "MFU", "tokens/s", "time", "cost", "worth it")
    return TextTable("Cost, predicted", heading, told)


_TABLES = (_layouts, _scales, _interconnects, _costs)
