"""The picture of synchronisation strategies: loss in time and in steps, with bands over seeds, and the target."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collbench.analysis.strategies import Effort, Ranking, StrategyRuns, geometric_mean, ranking
from collbench.plots.axes import Axes, Figure, heading, name_rows, new_figure, seconds_tick
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.style import SCREEN, looks, style
from collbench.results import Trained
from collbench.results.steps import Point
from collbench.runfile.store import Run

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


def figures(run: Run, request: PlotRequest) -> Named:
    """Yield one figure, if any strategy learns; the target is that of all strategies, drawn or not."""
    found = ranking(run.results)
    shown = tuple(entry for entry in found.entries if request.shows(entry.name)) if found else ()
    if found and shown:
        yield "losses", figure(replace(found, entries=shown))


@style()
def figure(found: Ranking) -> Figure:
    """Loss in time and in steps, and below where the target is reached, with intervals."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    height = 4.6 + 0.24 * len(found.entries)
    drawn = new_figure(SCREEN.width(2), height)
    panels = drawn.subplots(2, 2, sharex="col", sharey="row", height_ratios=(3.6, 0.24 * len(found.entries)))
    _column(panels[:, 0], found, lambda run, point: point.seconds, Effort.SECONDS)
    _column(panels[:, 1], found, lambda run, point: point.batches / run.case.ranks, Effort.STEPS)
    case = next(iter(found.entries[0].runs.values())).case
    seeds = max(len(entry.runs) for entry in found.entries)
    words = (f"{case.ranks} ranks", *(case.job.words if case.job else ()), f"{seeds} seed{'s' if seeds > 1 else ''}")
    heading(drawn, ", ".join(words), fontsize=SCREEN.title)
    (left, right), (below, steps) = panels
    left.set_title("Loss in time")
    right.set_title("Loss in steps; those that add all gradients after each are on one line")
    left.set_ylabel("loss on samples held out")
    left.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
    left.yaxis.set_minor_formatter(lambda value, position: f"{value:g}" if f"{value:.0e}"[0] in "235" else "")
    below.xaxis.set_major_locator(MaxNLocator(6))
    below.xaxis.set_major_formatter(seconds_tick)
    below.set_ylabel(f"{found.target:g} reached")
    below.set_xlabel("wall time")
    steps.set_xlabel("steps (samples seen over ranks and batch)")
    handles = []
    for entry in found.entries:
        color, dashes = _look(entry.name)
        handles.append(Line2D([], [], color=color, linestyle=dashes, linewidth=2, label=entry.name))
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _column(panels: Sequence[Axes], found: Ranking, along: Along, effort: Effort) -> None:
    """Draw a panel of curves above a panel of intervals."""
    above, below = panels
    for entry in found.entries:
        _curve(above, entry, along)
    above.set_yscale("log")
    # The highest loss after the first few steps, whose fall would take all the room.
    runs = [run for entry in found.entries for run in entry.runs.values()]
    early = (point.loss for run in runs for point in run.points[1:2] if math.isfinite(point.loss))
    above.set_ylim(top=1.15 * max(early, default=found.target))
    above.axhline(found.target, color="#606060", linewidth=1, linestyle=":", zorder=1)
    above.set_xlim(left=0)
    for row, entry in enumerate(found.entries):
        if entry.arrived:
            reached, color = entry.mean(effort), _look(entry.name)[0]
            if reached.known:
                below.plot(reached.interval, [row, row], color=color, linewidth=3, alpha=0.5, solid_capstyle="butt")
            below.plot([reached.value], [row], "o", color=color, markersize=6, markeredgecolor="white")
    name_rows(below, [entry.name for entry in found.entries], 0.6)
    below.grid(visible=True, axis="x")


def _curve(axes: Axes, entry: StrategyRuns, along: Along) -> None:
    """The geometric mean over seeds and its interval, as far as every seed goes."""
    curves = []
    for run in entry.runs.values():
        sound = [point for point in run.points if math.isfinite(point.loss) and point.loss > 0]
        curves.append(([along(run, point) for point in sound], np.log([point.loss for point in sound])))
    if not all(places for places, _ in curves):
        return
    grid = np.linspace(0, min(places[-1] for places, _ in curves), _GRID)
    rows = np.array([np.interp(grid, places, losses) for places, losses in curves])
    means = [geometric_mean(np.exp(column)) for column in rows.T]
    color, dashes = _look(entry.name)
    low, high = [one.low for one in means], [one.high for one in means]
    axes.plot(grid, [one.value for one in means], color=color, linestyle=dashes, linewidth=1.8)
    if len(curves) > 1:
        axes.fill_between(grid, low, high, color=color, alpha=0.13, linewidth=0)


def _look(name: str) -> tuple[str, Any]:
    if name in _COLOURS:
        return _COLOURS[name]
    other = looks([name])[name]
    return other.color, other.linestyle


KIND = Kind(order=50, rows=(Trained,), needs="strategies of which one at least learns", figures=run_by_run(figures))
