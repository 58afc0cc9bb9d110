"""Pictures of stragglers: who was late when, a row for every rank over time, who was last, and how long steps took.

Matplotlib is imported at the first figure.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from collbench.analysis.stragglers import Floats, StepArrays, straggler_rows
from collbench.plots.axes import Axes, Figure, heading, new_figure, seconds_tick
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.style import style
from collbench.results import StepTimes
from collbench.runfile.store import Run
from collbench.units import format_seconds, format_size

_MOST_COLUMNS = 400  # of the map: more are narrower than the eye tells apart
_SCALE = 98.0  # percentile of the lateness shown that has the full colour
_ROWS, _TALLEST = 0.32, 7.0  # inches of a rank, and of all of them
_COLOURS = "RdBu_r"  # late is red and early is blue, which all who see colours tell apart
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


def figures(run: Run, request: PlotRequest) -> Named:
    """Return a figure for each row that says which rank is late."""
    for result, steps in straggler_rows(run.results):
        if request.shows(result.implementation):
            case = result.case
            words = ["lateness", case.collective.name, case.dtype.name, f"{case.nbytes}B", result.implementation]
            yield "-".join(words), _figure(result, steps)


def _figure(result: StepTimes, steps: StepArrays) -> Figure:

    binned = Binned.of(steps)
    tall = min(_TALLEST, max(1.0, _ROWS * steps.ranks))
    with style():
        figure = new_figure(10, tall + 3.6)
        grid = figure.subplots(
            2, 2, sharex="col", sharey="row", width_ratios=(8, 1.3), height_ratios=(tall, 1.5), squeeze=False
        )
        (heat, last), (trace, empty) = grid
        empty.remove()
        shown = _heat(heat, steps, binned)
        _last(last, steps)
        _trace(trace, binned)
        bar = figure.colorbar(shown, ax=[heat, last], pad=0.01, aspect=8 * max(1.0, tall), extend="both")
        bar.ax.yaxis.set_major_formatter(lambda value, position: _signed(value))
        bar.set_label("behind the median\nof the others")
        heading(figure, _title(result, steps, binned), fontsize="medium")
    return figure


def _heat(axes: Axes, steps: StepArrays, binned: Binned) -> Any:
    """Draw a row for every rank."""
    from matplotlib.colors import TwoSlopeNorm

    most = float(np.percentile(np.abs(binned.late), _SCALE)) or 1e-9
    rows = np.arange(steps.ranks + 1) - 0.5
    shown = axes.pcolormesh(
        binned.edges, rows, binned.late, cmap=_COLOURS, norm=TwoSlopeNorm(0.0, -most, most), rasterized=True
    )
    axes.set_ylim(steps.ranks - 0.5, -0.5)
    every = max(1, -(-steps.ranks // 16))
    axes.set_yticks(range(0, steps.ranks, every))
    axes.set_ylabel("rank")
    axes.grid(visible=False)
    for joint in binned.joints:
        axes.axvline(joint, color="black", linewidth=0.5)
    return shown


def _last(axes: Axes, steps: StepArrays) -> None:
    """How often every rank was the last."""
    shares = [steps.last_share(rank) for rank in range(steps.ranks)]
    axes.barh(range(steps.ranks), shares, height=0.8, color=_LAST)
    axes.set_xlim(0, max(shares) * 1.15)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:.0%}")
    axes.xaxis.set_tick_params(labelbottom=True)
    axes.set_title("was the last")
    axes.grid(visible=False, axis="y")


def _trace(axes: Axes, binned: Binned) -> None:
    """The times of steps."""
    axes.stairs(binned.longest, binned.edges, color=_LONGEST, label="longest", fill=True)
    axes.stairs(binned.usual, binned.edges, color=_USUAL, label="median", linewidth=1.2)
    most, usual = float(binned.longest.max()), float(np.median(binned.usual))
    if most > 10 * usual:
        axes.set_yscale("log")
        axes.set_ylim(float(binned.usual.min()) * 0.8, most * 1.3)
    else:
        axes.set_ylim(0, most * 1.05)
    axes.yaxis.set_major_formatter(seconds_tick)
    axes.xaxis.set_major_formatter(seconds_tick)
    axes.set_xlim(0, float(binned.edges[-1]))
    axes.set_ylabel("a step")
    axes.set_xlabel("time of measuring; lines part series")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=2, borderaxespad=0.0)
    for joint in binned.joints:
        axes.axvline(joint, color="black", linewidth=0.5)


def _signed(seconds: float) -> str:
    if abs(seconds) < 1e-12:
        return "0"
    return f"{'-' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"


def _title(result: StepTimes, steps: StepArrays, binned: Binned) -> str:
    case = result.case
    column = f"a column is the mean of {binned.size}" if binned.size > 1 else "a column each"
    lines = (
        f"{result.label}: who was late in {steps.count} steps ({column})",
        f"{case.title}, {format_size(case.nbytes)}",
    )
    return "\n".join((*lines, f"moments of two ranks are off by at most {format_seconds(result.clock)}"))


KIND = Kind(
    order=40,
    rows=(StepTimes,),
    needs="steps on one number of ranks, two at least, that were carried out in one way only",
    figures=run_by_run(figures),
)
