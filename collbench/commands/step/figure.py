"""Figures of steps and training: scaling efficiency, lateness of ranks, loss of strategies.

Matplotlib is imported at the first figure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collbench.commands.step.rows import StepPrediction, StepTimes, Trained
from collbench.commands.step.scaling import ScalingCurve, curves
from collbench.commands.step.stragglers import Floats, StepArrays, straggler_rows
from collbench.commands.step.trained import Effort, StrategyRanking, StrategyRuns, geometric_mean, ranking
from collbench.plots.axes import bars_in_words, heading, seconds_tick
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import GREY, SCREEN, Axes, Figure, Look, looks, new_figure, style
from collbench.results import family
from collbench.runfile.store import Run
from collbench.units import counted, format_seconds, format_size

# Scaling.


def scaling_figures(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of efficiency, if there is a curve."""
    shown = [curve for curve in curves(run.results) if request.shows(curve.last.row.implementation)]
    if shown:
        yield "scaling", _scaling(shown, run.header.topology.name)


@style()
def _scaling(curves: Sequence[ScalingCurve], topology: str) -> Figure:
    modes = list(dict.fromkeys(curve.mode for curve in curves))
    chosen = looks(family(curve.points[-1].row.implementation) for curve in curves)
    drawn = new_figure(SCREEN.width(len(modes)), 4.8)
    grid = drawn.subplots(1, len(modes), squeeze=False, sharey=True)
    for axes, mode in zip(grid.flat, modes, strict=True):
        _mode(axes, [curve for curve in curves if curve.mode == mode], chosen)
        axes.set_title(f"{mode} scaling")
    grid.flat[0].set_ylabel("efficiency")
    heading(drawn, f"Efficiency of a training step: {topology}")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower left", ncols=min(4, len(labels)))
    return drawn


def _mode(axes: Axes, curves: Sequence[ScalingCurve], chosen: dict[str, Look]) -> None:
    counts = sorted({point.ranks for curve in curves for point in curve.points})
    axes.axhline(1.0, color=GREY, linewidth=1, label="ideal")
    axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
    shown = counts[:: math.ceil(len(counts) / 9)]
    axes.set_xticks(shown, [f"{count:,}" for count in shown])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:.0%}")
    for curve in curves:
        _efficiency(axes, curve, chosen[family(curve.points[-1].row.implementation)])
    axes.set(ylim=(0, 1.1), xlabel=f"ranks; {bars_in_words(isinstance(curves[0].last.row, StepPrediction))}")


def _efficiency(axes: Axes, curve: ScalingCurve, look: Look) -> None:
    ranks = [point.ranks for point in curve.points]
    values = [point.efficiency.value for point in curve.points]
    predicted = isinstance(curve.last.row, StepPrediction)
    drawn = look.predicted if predicted else look
    axes.plot(ranks, values, **drawn._asdict(), label=f"{curve.name}{', predicted' if predicted else ''}")
    for point in curve.points[1:]:
        if point.efficiency.known:
            axes.vlines(point.ranks, *point.efficiency.interval, color=look.color, alpha=0.6)


# Stragglers.

_MOST_COLUMNS = 400  # of the heat map: more are too narrow to see
_SCALE = 98.0  # percentile of lateness that gets the full colour
_ROWS, _TALLEST = 0.32, 7.0  # inches: height of a rank, and most of all ranks
_HEAT = "RdBu_r"  # late is red, early is blue: also safe for colour-blind readers
_LAST = "#D55E00"


@dataclass(frozen=True)
class Binned:
    """Steps averaged into visible columns; no column spans two series."""

    edges: Floats  # seconds of measuring, with all series back to back; one more than columns
    late: Floats  # (ranks, columns): the mean
    joints: tuple[float, ...]  # boundaries between series
    size: int  # most steps in a column

    @classmethod
    def of(cls, steps: StepArrays) -> "Binned":
        """Average whole steps into columns."""
        size = max(1, -(-steps.count // _MOST_COLUMNS))
        starts = [start for series in steps.slices for start in range(series.start, series.stop, size)]
        ends = np.cumsum(steps.seconds)
        return cls(
            edges=np.concatenate([[0.0], ends[np.array([*starts[1:], steps.count]) - 1]]),
            late=np.add.reduceat(steps.late, starts, axis=1) / np.diff([*starts, steps.count]),
            joints=tuple(float(ends[series.stop - 1]) for series in steps.slices[:-1]),
            size=size,
        )


def lateness_figures(run: Run, request: PlotRequest) -> Named:
    """Yield a heat map of lateness for each row of a straggler test."""
    for result, steps in straggler_rows(run.results):
        if request.shows(result.implementation):
            case = result.case
            words = ["lateness", case.collective.name, case.dtype.name, f"{case.nbytes}B", result.implementation]
            yield "-".join(words), _lateness(result, steps)


@style()
def _lateness(result: StepTimes, steps: StepArrays) -> Figure:
    binned = Binned.of(steps)
    tall = min(_TALLEST, max(1.0, _ROWS * steps.ranks))
    drawn = new_figure(10, tall + 2.4)
    heat, last = drawn.subplots(1, 2, sharey=True, width_ratios=(8, 1.3))
    shown = _heat(heat, steps, binned)
    shares = [steps.last_share(rank) for rank in range(steps.ranks)]
    last.barh(range(steps.ranks), shares, height=0.8, color=_LAST)
    last.set(xlim=(0, max(shares) * 1.15), title="last rank")
    last.xaxis.set_major_formatter(lambda value, position: f"{value:.0%}")
    last.grid(visible=False, axis="y")
    bar = drawn.colorbar(shown, ax=[heat, last], pad=0.01, aspect=8 * max(1.0, tall), extend="both")
    bar.ax.yaxis.set_major_formatter(_signed)
    bar.set_label("behind the median\nof the other ranks")
    column = f"each column: mean of {binned.size}" if binned.size > 1 else "one per column"
    lines = (
        f"{result.label}: lateness in {steps.count} steps ({column})",
        f"{result.case.title}, {format_size(result.case.nbytes)}",
        f"clocks of two ranks differ by at most {format_seconds(result.clock)}",
    )
    heading(drawn, "\n".join(lines), fontsize="medium")
    return drawn


def _heat(axes: Axes, steps: StepArrays, binned: Binned) -> Any:
    from matplotlib.colors import TwoSlopeNorm

    most = float(np.percentile(np.abs(binned.late), _SCALE)) or 1e-9
    rows = np.arange(steps.ranks + 1) - 0.5
    shown = axes.pcolormesh(
        binned.edges, rows, binned.late, cmap=_HEAT, norm=TwoSlopeNorm(0.0, -most, most), rasterized=True
    )
    every = max(1, -(-steps.ranks // 16))
    axes.set(ylim=(steps.ranks - 0.5, -0.5), yticks=range(0, steps.ranks, every), ylabel="rank")
    axes.grid(visible=False)
    axes.xaxis.set_major_formatter(seconds_tick)
    axes.set_xlabel("time; lines separate series")
    for joint in binned.joints:
        axes.axvline(joint, color="black", linewidth=0.5)
    return shown


def _signed(seconds: float, position: float) -> str:
    return "0" if abs(seconds) < 1e-12 else f"{'+' if seconds > 0 else ''}{format_seconds(seconds)}"


# Strategies.

_GRID = 200  # points of a line
_COLOURS = {  # of Okabe and Ito; dashes keep coinciding lines visible
    "library": ("#000000", "-"),
    "ring": ("#D55E00", (0, (6, 3))),
    "parameter-server": ("#CC79A7", (0, (2, 2))),
    "hierarchical": ("#56B4E9", (0, (6, 2, 1, 2))),  # of earlier files
    "local-sgd": ("#009E73", "-"),
    "asynchronous": ("#0072B2", "-"),
}


def loss_figures(run: Run, request: PlotRequest) -> Named:
    """Yield one figure if any strategy learns; its target is that of all strategies, drawn or not."""
    found = ranking(run.results)
    shown = tuple(entry for entry in found.entries if request.shows(entry.name)) if found else ()
    if found and shown:
        yield "losses", losses(replace(found, entries=shown))


@style()
def losses(found: StrategyRanking) -> Figure:
    """Draw loss over time and over steps, with the target and where each strategy reaches it."""
    from matplotlib.ticker import MaxNLocator

    drawn = new_figure(SCREEN.width(2), 4.6)
    left, right = drawn.subplots(1, 2, sharey=True)
    for axes, effort in zip((left, right), Effort, strict=True):
        _column(axes, found, effort)
    case = next(iter(found.entries[0].runs.values())).case
    seeds = max(len(entry.runs) for entry in found.entries)
    words = (f"{case.ranks} ranks", *(case.work.words if case.work else ()), counted(seeds, "seed"))
    heading(drawn, ", ".join(words), fontsize=SCREEN.title)
    left.set(title="Loss over time", ylabel="loss on held-out samples")
    right.set_title("Loss over steps (lines of synchronous strategies coincide)")
    left.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
    left.yaxis.set_minor_formatter(lambda value, position: f"{value:g}" if f"{value:.0e}"[0] in "235" else "")
    left.xaxis.set_major_locator(MaxNLocator(6))
    left.xaxis.set_major_formatter(seconds_tick)
    left.set_xlabel("wall time")
    right.set_xlabel("steps (samples / ranks / batch size)")
    handles, labels = left.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    return drawn


def _column(axes: Axes, found: StrategyRanking, effort: Effort) -> None:
    """Draw a panel of curves; a thick line on the target is the interval in which a strategy reaches it."""
    for entry in found.entries:
        _curve(axes, entry, effort)
    axes.set_yscale("log")
    # Scale to the loss after the first few steps: the initial drop would fill the panel.
    runs = [run for entry in found.entries for run in entry.runs.values()]
    early = [point.loss for run in runs for point in run.points[1:2] if math.isfinite(point.loss)]
    axes.set_ylim(top=1.15 * max(early, default=found.target))
    axes.axhline(found.target, color="#606060", linewidth=1, linestyle=":", zorder=1)
    axes.set_xlim(left=0)
    for entry in found.entries:
        if entry.arrived:
            reached, color = entry.mean(effort), _look(entry.name)[0]
            if reached.known:
                ends = reached.interval
                axes.plot(ends, [found.target] * 2, color=color, linewidth=3, alpha=0.5, solid_capstyle="butt")
            axes.plot([reached.value], [found.target], "o", color=color, markersize=6, markeredgecolor="white")


def _curve(axes: Axes, entry: StrategyRuns, effort: Effort) -> None:
    """Draw the geometric mean over seeds with its interval, up to where the shortest run ends."""
    curves = []
    for run in entry.runs.values():
        sound = [point for point in run.points if math.isfinite(point.loss) and point.loss > 0]
        curves.append(([effort.of(run, point) for point in sound], np.log([point.loss for point in sound])))
    if not all(places for places, _ in curves):
        return
    grid = np.linspace(0, min(places[-1] for places, _ in curves), _GRID)
    rows = np.array([np.interp(grid, places, losses) for places, losses in curves])
    means = [geometric_mean(np.exp(column)) for column in rows.T]
    color, dashes = _look(entry.name)
    middle, low, high = zip(*means, strict=True)
    axes.plot(grid, middle, color=color, linestyle=dashes, linewidth=1.8, label=entry.name)
    if len(curves) > 1:
        axes.fill_between(grid, low, high, color=color, alpha=0.13, linewidth=0)


def _look(name: str) -> tuple[str, Any]:
    if name in _COLOURS:
        return _COLOURS[name]
    other = looks([name])[name]
    return other.color, other.linestyle


KINDS = {
    "scaling": Kind(30, (StepTimes, StepPrediction), "steps on several numbers of ranks", run_by_run(scaling_figures)),
    "lateness": Kind(
        order=40,
        rows=(StepTimes,),
        needs="sequential steps on one number of ranks, at least two",
        figures=run_by_run(lateness_figures),
    ),
    "losses": Kind(50, (Trained,), "training runs in which at least one strategy learns", run_by_run(loss_figures)),
}
