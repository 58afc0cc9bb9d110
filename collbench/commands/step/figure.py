"""Figures of steps and training: efficiency against ranks, overlap in buckets, who was late when, loss of strategies.

Matplotlib is imported at the first figure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from collbench.commands.step.overlap import Overlap, best_of_schedules, overlaps
from collbench.commands.step.scaling import Curve, curves, fit_law
from collbench.commands.step.stragglers import Floats, StepArrays, straggler_rows
from collbench.commands.step.trained import Effort, Ranking, StrategyRuns, geometric_mean, ranking
from collbench.plots.axes import bars_in_words, efficiency_axes, heading, name_rows, patch_legend, seconds_tick
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import ACTIVITIES, COLORS, GREY, SCREEN, Axes, Figure, Look, looks, new_figure, style
from collbench.results import StepPrediction, StepTimes, Trained, family
from collbench.results.steps import COMMUNICATED, COMPUTED
from collbench.runfile.store import Run
from collbench.units import counted, format_seconds, format_size

# Scaling.

_FINE = 120  # points of a fitted law


def scaling_figures(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of efficiency, if there is a curve."""
    shown = [curve for curve in curves(run.results) if request.shows(curve.last.row.implementation)]
    if shown:
        yield "scaling", _scaling(shown, run.header.topology.name)


@style()
def _scaling(curves: Sequence[Curve], topology: str) -> Figure:
    """Draw a panel for every mode."""
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


def _mode(axes: Axes, curves: Sequence[Curve], chosen: dict[str, Look]) -> None:
    counts = sorted({point.ranks for curve in curves for point in curve.points})
    axes.axhline(1.0, color=GREY, linewidth=1, label="ideal")
    efficiency_axes(axes, counts, counts[:: math.ceil(len(counts) / 9)])
    for curve in curves:
        _efficiency(axes, curve, chosen[family(curve.points[-1].row.implementation)])
    axes.set(ylim=(0, 1.1), xlabel=f"ranks; {bars_in_words(isinstance(curves[0].last.row, StepPrediction))}")


def _efficiency(axes: Axes, curve: Curve, look: Look) -> None:
    ranks = [point.ranks for point in curve.points]
    values = [point.efficiency.value for point in curve.points]
    predicted = isinstance(curve.last.row, StepPrediction)
    drawn = look.predicted if predicted else look
    axes.plot(ranks, values, **drawn._asdict(), label=f"{curve.name}{', predicted' if predicted else ''}")
    for point in curve.more:
        if point.efficiency.known:
            axes.vlines(point.ranks, *point.efficiency.interval, color=look.color, alpha=0.6)
    law = fit_law(curve)
    if law.residual is not None:
        fine = np.geomspace(1, ranks[-1] / ranks[0], _FINE + 1)
        fitted = [law.efficiency(count) for count in fine]
        label = f"{curve.name}: law of scaling"
        axes.plot(fine * ranks[0], fitted, color=look.color, linewidth=0.8, linestyle=":", label=label)


# Overlap.

_MOST_RANKS = 8  # in a timeline: more are too thin to read
_MARKERS = "osD^vPX"


def overlap_figures(run: Run, request: PlotRequest) -> Named:
    """Yield both pictures of every implementation; a timeline only where steps were looked at closely."""
    topology = run.header.topology.name
    found = [one for one in overlaps(run.results) if request.shows(one.row.implementation)]
    for name in dict.fromkeys(one.row.implementation for one in found):
        own = [one for one in found if one.row.implementation == name]
        yield f"buckets-{name}", _buckets(own, topology)
        shown = [row for one in best_of_schedules(own) for row in (one.sequential, one.row)]
        rows = [row for row in dict.fromkeys(shown) if isinstance(row, StepTimes) and row.activities]
        if rows:
            yield f"overlap-{name}", _timeline(rows, topology)


@style()
def _buckets(own: Sequence[Overlap], topology: str) -> Figure:
    from matplotlib.ticker import NullLocator

    drawn = new_figure(SCREEN.width(1), 4.8)
    axes = drawn.subplots()
    for place, way in enumerate(dict.fromkeys(one.step.schedule for one in own)):
        ways = sorted((one for one in own if one.step.schedule == way), key=lambda one: one.step.bucket)
        sizes, times = [one.step.bucket for one in ways], [one.row.typical for one in ways]
        color, marker = COLORS[place % len(COLORS)], _MARKERS[place % len(_MARKERS)]
        axes.plot(sizes, times, label=way, color=color, marker=marker)
        for one in ways:
            axes.vlines(one.step.bucket, *one.row.band, color=color, alpha=0.5)
    first = own[0]
    axes.axhline(first.sequential.typical, color="#606060", linewidth=1, label="one after the other")
    axes.axhline(first.bound, color="#606060", linewidth=1, linestyle=":", label="bound: the longer part alone")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({one.step.bucket for one in own}))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda size, position: format_size(size))
    axes.yaxis.set_major_formatter(lambda seconds, position: format_seconds(seconds))
    axes.set_ylim(bottom=0)
    axes.set(xlabel=f"size of a bucket; {bars_in_words(isinstance(first.row, StepPrediction))}", ylabel="step")
    heading(drawn, f"A step in buckets, {first.row.label}: {topology}")
    drawn.legend(loc="outside lower left", ncols=3)
    return drawn


@style()
def _timeline(rows: Sequence[StepTimes], topology: str) -> Figure:
    """Draw a panel for every method on one time axis, with two lanes a rank."""
    lanes = 2 * min(_MOST_RANKS, rows[0].case.ranks)
    drawn = new_figure(SCREEN.width(1), 1.4 + len(rows) * (0.55 + 0.26 * lanes))
    grid = drawn.subplots(len(rows), 1, squeeze=False, sharex=True)
    for axes, row in zip(grid[:, 0], rows, strict=True):
        _lanes(axes, row)
    end = max(one.start + one.seconds for row in rows for one in row.activities)
    grid[-1, 0].set(xlim=(0, 1e3 * end), xlabel="time since the step began, ms")
    heading(drawn, f"A step of {rows[0].label}: {topology}")
    patch_legend(drawn, {what: shades[0] for what, shades in ACTIVITIES.items()}, place="outside lower left")
    return drawn


def _lanes(axes: Axes, row: StepTimes) -> None:
    step = row.case.step
    assert step
    labels: list[str] = []
    for rank, what in product(range(min(_MOST_RANKS, row.case.ranks)), (COMPUTED, COMMUNICATED)):
        own = [one for one in row.activities if one.rank == rank and one.what == what]
        spans = [(1e3 * one.start, 1e3 * one.seconds) for one in own]
        shades = [ACTIVITIES[what][one.bucket % 2] for one in own]
        axes.broken_barh(spans, (len(labels) - 0.38, 0.76), facecolors=shades, edgecolor="white", linewidth=0.3)
        labels.append(f"rank {rank} {what}")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False)
    bucket = f", buckets of {format_size(step.bucket)}" if step.bucket else ""
    axes.set_title(f"{step.schedule}{bucket}: a step takes {format_seconds(row.typical)}")


# Stragglers.

_MOST_COLUMNS = 400  # of the map: more are narrower than the eye tells apart
_SCALE = 98.0  # percentile of the lateness shown that has the full colour
_ROWS, _TALLEST = 0.32, 7.0  # inches of a rank, and of all of them
_HEAT = "RdBu_r"  # late is red and early is blue, which all who see colours tell apart
_LAST = "#D55E00"
_USUAL, _LONGEST = "#0072B2", "#A9CBE3"


@dataclass(frozen=True)
class Binned:
    """Steps in as many columns as can be seen, none of which reaches from one series into the next."""

    edges: Floats  # seconds of measuring, all series one behind the other; one more than columns
    late: Floats  # (ranks, columns): the mean
    usual: Floats  # seconds of a step by column, the median
    longest: Floats  # the most
    joints: tuple[float, ...]  # where series meet
    size: int  # steps of a column at most

    @classmethod
    def of(cls, steps: StepArrays) -> "Binned":
        """Whole steps in every column."""
        each = max(1, -(-steps.count // _MOST_COLUMNS))
        starts = [start for own in steps.slices for start in range(own.start, own.stop, each)]
        counts = np.diff([*starts, steps.count])
        ends = np.cumsum(steps.seconds)
        pieces = np.split(steps.seconds, starts[1:])
        return cls(
            edges=np.concatenate([[0.0], ends[np.array([*starts[1:], steps.count]) - 1]]),
            late=np.add.reduceat(steps.late, starts, axis=1) / counts,
            usual=np.array([np.median(piece) for piece in pieces]),
            longest=np.maximum.reduceat(steps.seconds, starts),
            joints=tuple(float(ends[own.stop - 1]) for own in steps.slices[:-1]),
            size=each,
        )


def lateness_figures(run: Run, request: PlotRequest) -> Named:
    """Yield a figure for each row that says which rank is late."""
    for result, steps in straggler_rows(run.results):
        if request.shows(result.implementation):
            case = result.case
            words = ["lateness", case.collective.name, case.dtype.name, f"{case.nbytes}B", result.implementation]
            yield "-".join(words), _lateness(result, steps)


@style()
def _lateness(result: StepTimes, steps: StepArrays) -> Figure:
    binned = Binned.of(steps)
    tall = min(_TALLEST, max(1.0, _ROWS * steps.ranks))
    drawn = new_figure(10, tall + 3.6)
    shape: dict[str, Any] = {"width_ratios": (8, 1.3), "height_ratios": (tall, 1.5)}
    (heat, last), (trace, empty) = drawn.subplots(2, 2, sharex="col", sharey="row", squeeze=False, **shape)
    empty.remove()
    shown = _heat(heat, steps, binned)
    shares = [steps.last_share(rank) for rank in range(steps.ranks)]
    last.barh(range(steps.ranks), shares, height=0.8, color=_LAST)
    last.set(xlim=(0, max(shares) * 1.15), title="was the last")
    last.xaxis.set_major_formatter(lambda value, position: f"{value:.0%}")
    last.xaxis.set_tick_params(labelbottom=True)
    last.grid(visible=False, axis="y")
    _trace(trace, binned)
    for joint, axes in product(binned.joints, (heat, trace)):
        axes.axvline(joint, color="black", linewidth=0.5)
    bar = drawn.colorbar(shown, ax=[heat, last], pad=0.01, aspect=8 * max(1.0, tall), extend="both")
    bar.ax.yaxis.set_major_formatter(_signed)
    bar.set_label("behind the median\nof the others")
    column = f"a column is the mean of {binned.size}" if binned.size > 1 else "a column each"
    lines = (
        f"{result.label}: who was late in {steps.count} steps ({column})",
        f"{result.case.title}, {format_size(result.case.nbytes)}",
        f"moments of two ranks are off by at most {format_seconds(result.clock)}",
    )
    heading(drawn, "\n".join(lines), fontsize="medium")
    return drawn


def _heat(axes: Axes, steps: StepArrays, binned: Binned) -> Any:
    """Draw a row for every rank."""
    from matplotlib.colors import TwoSlopeNorm

    most = float(np.percentile(np.abs(binned.late), _SCALE)) or 1e-9
    rows = np.arange(steps.ranks + 1) - 0.5
    shown = axes.pcolormesh(
        binned.edges, rows, binned.late, cmap=_HEAT, norm=TwoSlopeNorm(0.0, -most, most), rasterized=True
    )
    every = max(1, -(-steps.ranks // 16))
    axes.set(ylim=(steps.ranks - 0.5, -0.5), yticks=range(0, steps.ranks, every), ylabel="rank")
    axes.grid(visible=False)
    return shown


def _trace(axes: Axes, binned: Binned) -> None:
    """The times of steps."""
    axes.stairs(binned.longest, binned.edges, color=_LONGEST, label="longest", fill=True)
    axes.stairs(binned.usual, binned.edges, color=_USUAL, label="median", linewidth=1.2)
    most, usual = float(binned.longest.max()), float(np.median(binned.usual))
    if most > 10 * usual:
        axes.set(yscale="log", ylim=(float(binned.usual.min()) * 0.8, most * 1.3))
    else:
        axes.set_ylim(0, most * 1.05)
    axes.yaxis.set_major_formatter(seconds_tick)
    axes.xaxis.set_major_formatter(seconds_tick)
    axes.set(xlim=(0, float(binned.edges[-1])), xlabel="time of measuring; lines part series", ylabel="a step")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=2, borderaxespad=0.0)


def _signed(seconds: float, position: float) -> str:
    if abs(seconds) < 1e-12:
        return "0"
    return f"{'-' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"


# Strategies.

_GRID = 200  # points of a line
_COLOURS = {  # of Okabe and Ito; dashes tell apart what lies on each other
    "library": ("#000000", "-"),
    "ring": ("#D55E00", (0, (6, 3))),
    "parameter-server": ("#CC79A7", (0, (2, 2))),
    "hierarchical": ("#56B4E9", (0, (6, 2, 1, 2))),
    "local-sgd": ("#009E73", "-"),
    "asynchronous": ("#0072B2", "-"),
}


def loss_figures(run: Run, request: PlotRequest) -> Named:
    """Yield one figure, if any strategy learns; the target is that of all strategies, drawn or not."""
    found = ranking(run.results)
    shown = tuple(entry for entry in found.entries if request.shows(entry.name)) if found else ()
    if found and shown:
        yield "losses", losses(replace(found, entries=shown))


@style()
def losses(found: Ranking) -> Figure:
    """Loss in time and in steps, and below where the target is reached, with intervals."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    low = 0.24 * len(found.entries)
    drawn = new_figure(SCREEN.width(2), 4.6 + low)
    panels = drawn.subplots(2, 2, sharex="col", sharey="row", height_ratios=(3.6, low))
    for column, effort in enumerate(Effort):
        _column(panels[:, column], found, effort)
    case = next(iter(found.entries[0].runs.values())).case
    seeds = max(len(entry.runs) for entry in found.entries)
    words = (f"{case.ranks} ranks", *(case.job.words if case.job else ()), counted(seeds, "seed"))
    heading(drawn, ", ".join(words), fontsize=SCREEN.title)
    (left, right), (below, steps) = panels
    left.set(title="Loss in time", ylabel="loss on samples held out")
    right.set_title("Loss in steps; those that add all gradients after each are on one line")
    left.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
    left.yaxis.set_minor_formatter(lambda value, position: f"{value:g}" if f"{value:.0e}"[0] in "235" else "")
    below.xaxis.set_major_locator(MaxNLocator(6))
    below.xaxis.set_major_formatter(seconds_tick)
    below.set(xlabel="wall time", ylabel=f"{found.target:g} reached")
    steps.set_xlabel("steps (samples seen over ranks and batch)")
    handles = []
    for entry in found.entries:
        color, dashes = _look(entry.name)
        handles.append(Line2D([], [], color=color, linestyle=dashes, linewidth=2, label=entry.name))
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _column(panels: Sequence[Axes], found: Ranking, effort: Effort) -> None:
    """Draw a panel of curves above a panel of intervals."""
    above, below = panels
    for entry in found.entries:
        _curve(above, entry, effort)
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


def _curve(axes: Axes, entry: StrategyRuns, effort: Effort) -> None:
    """The geometric mean over seeds and its interval, as far as every seed goes."""
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
    axes.plot(grid, middle, color=color, linestyle=dashes, linewidth=1.8)
    if len(curves) > 1:
        axes.fill_between(grid, low, high, color=color, alpha=0.13, linewidth=0)


def _look(name: str) -> tuple[str, Any]:
    if name in _COLOURS:
        return _COLOURS[name]
    other = looks([name])[name]
    return other.color, other.linestyle


KINDS = {
    "scaling": Kind(30, (StepTimes, StepPrediction), "steps on several numbers of ranks", run_by_run(scaling_figures)),
    "overlap": Kind(
        order=31,
        rows=(StepTimes, StepPrediction),
        needs="overlapped steps together with the same step one part after the other and its parts alone",
        figures=run_by_run(overlap_figures),
    ),
    "lateness": Kind(
        order=40,
        rows=(StepTimes,),
        needs="steps on one number of ranks, two at least, that were carried out in one way only",
        figures=run_by_run(lateness_figures),
    ),
    "losses": Kind(50, (Trained,), "strategies of which one at least learns", run_by_run(loss_figures)),
}
