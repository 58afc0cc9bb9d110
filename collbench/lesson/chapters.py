"""The chapters on training steps: what runs of `collbench step` say, with the plots of these runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from collbench.analysis.overlap import overlaps
from collbench.analysis.scaling import curves
from collbench.analysis.strategies import Effort, ranking
from collbench.lesson.content import HERE, MODEL, Chapter, Question
from collbench.lesson.numbers import nearest
from collbench.plots import losses, overlap, scaling
from collbench.plots.axes import Figure
from collbench.plots.kinds import PLAIN
from collbench.plots.save import page_png, page_svg
from collbench.runfile.store import Run
from collbench.units import format_seconds, format_size


class _Facts(NamedTuple):
    """What the run of a chapter says."""

    numbers: Mapping[str, str]  # by the names in the chapter's texts
    answer: int  # index of the right choice
    figures: Iterator[tuple[str, Figure]]


def chapters(runs: Sequence[Run], texts: Sequence[Mapping[str, Any]]) -> tuple[Chapter, ...]:
    """Return the chapters of `assets/lesson.toml` whose numbers the runs have; the last run that has them counts."""
    written = []
    for text in texts:
        found = [(run, facts) for run in runs if (facts := FACTS[text["name"]](run, text))]
        if found:
            written.append(_chapter(text, *found[-1]))
    return tuple(written)


def _chapter(text: Mapping[str, Any], run: Run, facts: _Facts) -> Chapter:
    """Return a chapter with its numbers filled in, and the first plot of its run."""
    figure = next((drawn for _, drawn in facts.figures), None)
    filled = {key: text[key].format_map(facts.numbers) for key in ("idea", "ask", "because")}
    machine = run.header.topology.name
    source = f"{MODEL}: {machine}" if run.header.topology.model else HERE
    question = Question(
        name=text["name"],
        ask=filled["ask"],
        choices=tuple(text["choices"]),
        answer=facts.answer,
        because=filled["because"],
        source=source,
        command=text["command"],
    )
    return Chapter(
        name=text["name"],
        title=text["title"],
        idea=filled["idea"],
        question=question,
        after=text["after"],
        command=text["command"],
        figure=page_svg(figure) if figure else "",
        picture=page_png(figure) if figure else b"",
        caption=machine,
    )


def _speed_up(run: Run, text: Mapping[str, Any]) -> _Facts | None:
    """Return what a scaling says of its most ranks."""
    found = curves(run.results)
    if not found:
        return None
    curve = found[0]
    point = curve.last
    row = point.row
    parts = {"computing": row.computing(), "waiting": row.waiting(), "exposed": row.exposed()}
    numbers = {part: f"{seconds / sum(parts.values()):.0%}" for part, seconds in parts.items()} | {
        "system": run.header.topology.name.split(",")[0],
        "ranks": str(point.ranks),
        "compute": format_seconds(curve.base.row.computing()),
        "size": format_size(row.case.nbytes),
        "speedup": f"{curve.speedup(point).value:,.0f} times",
        "efficiency": f"{point.efficiency.value:.0%}",
    }
    choices = [float(choice.rstrip("%")) / 100 for choice in text["choices"]]
    return _Facts(numbers, nearest(point.efficiency.value, choices), scaling.figures(run, PLAIN))


def _overlap(run: Run, text: Mapping[str, Any]) -> _Facts | None:
    """Return what the fastest step with overlap says."""
    found = [each for each in overlaps(run.results) if math.isfinite(each.hidden.value)]
    if not found:
        return None
    best = min(found, key=lambda each: each.row.typical)
    hidden = min(1.0, max(0.0, best.hidden.value))
    computing = best.sequential.computing()
    numbers = {
        "system": run.header.topology.name.split(",")[0],
        "ranks": str(best.row.case.ranks),
        "compute": format_seconds(computing),
        "communicate": format_seconds(best.sequential.exposed()),
        "sequential": format_seconds(best.sequential.typical),
        "bucket": format_size(best.step.bucket),
        "step": format_seconds(best.row.typical),
        "hidden": f"{hidden:.0%}",
        "exposed": format_seconds(best.exposed.value),
    }
    return _Facts(numbers, nearest(hidden, text["shares"]), overlap.figures(run, PLAIN))


def _asynchronous(run: Run, text: Mapping[str, Any]) -> _Facts | None:
    """Return who of ring and asynchronous reaches the loss first."""
    found = ranking(run.results)
    entries = {entry.name: entry for entry in found.entries} if found else {}
    names = [choice.partition(",")[0] for choice in text["choices"]]
    if not found or not all(name in entries and entries[name].arrived for name in names):
        return None
    case = next(iter(entries[names[0]].runs.values())).case
    seconds = {name: entries[name].mean(Effort.SECONDS).value for name in names}
    slowed = max((factor for _, factor in case.job.slow), default=1) if case.job else 1
    numbers = {name: format_seconds(took) for name, took in seconds.items()}
    numbers |= {f"{name}-steps": f"{entries[name].mean(Effort.STEPS).value:.0f}" for name in names}
    numbers |= {"ranks": str(case.ranks), "factor": f"{slowed:g}", "target": f"{found.target:g}"}
    return _Facts(numbers, names.index(min(seconds, key=seconds.__getitem__)), losses.figures(run, PLAIN))


FACTS: Mapping[str, Callable[[Run, Mapping[str, Any]], _Facts | None]] = {
    "speed-up": _speed_up,
    "overlap": _overlap,
    "asynchronous": _asynchronous,
}
"""By the name of a chapter."""
