"""The picture of a race of styles: loss against wall time and against steps, with bands over seeds and the target."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.analysis.race import Entry, Estimate, Race, estimate
from collbench.figures.styles import SCREEN, looks, save, style
from collbench.trained import Point, Trained
from collbench.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "losses"  # of the picture's file
_GRID = 200  # points of a line
_COLOURS = {  # of Okabe and Ito; dashes tell apart what lies on each other
    "library": ("#000000", "-"),
    "ring": ("#D55E00", (0, (6, 3))),
    "parameter-server": ("#CC79A7", (0, (2, 2))),
    "hierarchical": ("#56B4E9", (0, (6, 2, 1, 2))),
    "local-sgd": ("#009E73", "-"),
    "asynchronous": ("#0072B2", "-"),
}
Along = Callable[[Trained, Point], float]
"""Where a point of a run stands on the x axis."""


def draw(race: Race, folder: Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Write the picture, and say which files."""
    return save(figure(race), folder, NAME, formats)


def figure(race: Race) -> "Figure":
    """Both panels, one beside the other, with one loss axis."""
    with style():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(SCREEN.width(2), 5.4), layout="constrained")
        left, right = drawn.subplots(1, 2, sharey=True)
        _panel(left, race, lambda run, point: point.seconds, Entry.seconds)
        _panel(right, race, lambda run, point: point.batches / run.case.ranks, Entry.steps)
        left.set_ylabel("loss on samples held out")
        left.set_xlabel("wall time")
        left.xaxis.set_major_formatter(lambda value, position: format_seconds(value) if value > 0 else "0")
        right.set_xlabel("steps (samples seen, over ranks and batch)")
        _titles(drawn, left, right, race)
        handles = [_line(left, entry) for entry in race.entries]
        drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _panel(axes: "Axes", race: Race, along: Along, part: Callable[[Entry, int], float]) -> None:
    for entry in race.entries:
        _curve(axes, entry, along)
    axes.set_yscale("log")
    axes.axhline(race.target, color="#606060", linewidth=1, linestyle=":", zorder=1)
    for entry in race.arrived:
        color, _ = _look(entry.name)
        _mark(axes, race.target, entry.over(lambda seed, entry=entry: part(entry, seed)), color)  # type: ignore[misc]
    axes.set_xlim(left=0)
    axes.margins(y=0.04)


def _curve(axes: "Axes", entry: Entry, along: Along) -> None:
    """The geometric mean over seeds and its interval, as far as every seed goes."""
    curves = [_track(run, along) for run in entry.runs.values()]
    if not curves:
        return
    grid = np.linspace(0, min(places[-1] for places, _ in curves), _GRID)
    rows = np.array([np.interp(grid, places, np.log(losses)) for places, losses in curves])
    told = [estimate(np.exp(column)) for column in rows.T]
    color, dashes = _look(entry.name)
    axes.plot(grid, [one.value for one in told], color=color, linestyle=dashes, linewidth=1.8)
    if len(curves) > 1:
        axes.fill_between(
            grid, [one.low for one in told], [one.high for one in told], color=color, alpha=0.13, linewidth=0
        )


def _track(run: Trained, along: Along) -> tuple[list[float], list[float]]:
    """As far as its losses are numbers."""
    sound = [point for point in run.points if math.isfinite(point.loss) and point.loss > 0]
    return [along(run, point) for point in sound], [point.loss for point in sound]


def _mark(axes: "Axes", target: float, reached: Estimate, color: str) -> None:
    """Where the target is reached, with the interval."""
    if math.isfinite(reached.high):
        axes.plot(
            [reached.low, reached.high], [target, target], color=color, linewidth=4, alpha=0.55, solid_capstyle="butt"
        )
    axes.plot([reached.value], [target], "o", color=color, markersize=6, markeredgecolor="white", zorder=5)


def _titles(drawn: "Figure", left: "Axes", right: "Axes", race: Race) -> None:
    case = next(iter(race.entries[0].runs.values())).case
    seeds = max(len(entry.runs) for entry in race.entries)
    words = case.job.words if case.job else ()
    drawn.suptitle(
        f"{case.ranks} ranks, {', '.join(words)}; {seeds} seed{'s' if seeds > 1 else ''}",
        x=0.01,
        ha="left",
        fontsize=SCREEN.title,
    )
    left.set_title(f"in time; dots: where loss {race.target:g} is reached")
    right.set_title("in steps; styles that wait for all after each share a line")


def _line(axes: "Axes", entry: Entry) -> Any:
    color, dashes = _look(entry.name)
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, linestyle=dashes, linewidth=2, label=entry.name)


def _look(name: str) -> tuple[str, Any]:
    if name in _COLOURS:
        return _COLOURS[name]
    other = looks([name])[name]
    return other.color, other.linestyle
