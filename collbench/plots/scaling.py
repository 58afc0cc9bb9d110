"""The figure of a scaling: efficiency against ranks, the ideal, and what practitioners quote; a panel a mode."""

import math
from collections.abc import Sequence

import numpy as np

from collbench.analysis.scaling import USUAL, Curve, curves, fit_law
from collbench.plots.axes import LEVEL, Axes, Figure, bars_in_words, efficiency_axes, heading, new_figure
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.style import GREY, SCREEN, Look, looks, style
from collbench.results import StepPrediction, StepTimes, family
from collbench.runfile.store import Run

_FINE = 120  # points of a fitted law


def figures(run: Run, request: PlotRequest) -> Named:
    """One, if there is a curve."""
    shown = [curve for curve in curves(run.results) if request.shows(curve.last.row.implementation)]
    if shown:
        yield "scaling", figure(shown, run.header.topology.name)


@style()
def figure(curves: Sequence[Curve], topology: str) -> Figure:
    """Draw a panel for every mode."""
    modes = list(dict.fromkeys(curve.mode for curve in curves))
    chosen = looks(family(curve.points[-1].row.implementation) for curve in curves)
    drawn = new_figure(SCREEN.width(len(modes)), 4.8)
    grid = drawn.subplots(1, len(modes), squeeze=False, sharey=True)
    for axes, mode in zip(grid.flat, modes, strict=True):
        _panel(axes, [curve for curve in curves if curve.mode == mode], chosen)
        axes.set_title(f"{mode} scaling")
    grid.flat[0].set_ylabel("efficiency")
    heading(drawn, f"Efficiency of a training step: {topology}")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower left", ncols=min(4, len(labels)))
    return drawn


def _panel(axes: Axes, curves: Sequence[Curve], chosen: dict[str, Look]) -> None:
    counts = sorted({point.ranks for curve in curves for point in curve.points})
    axes.axhline(1.0, color=GREY, linewidth=1, label="ideal")
    efficiency_axes(axes, counts, counts[:: math.ceil(len(counts) / 9)])
    quoted = sorted(USUAL)  # the numbers of ranks for which practitioners quote an efficiency
    if counts[-1] >= quoted[0] and counts[0] <= quoted[-1]:
        low, high = ([USUAL[count][end] for count in quoted] for end in (0, 1))
        axes.fill_between(quoted, low, high, color=LEVEL, alpha=0.25, linewidth=0, label="what practitioners quote")
    for curve in curves:
        _curve(axes, curve, chosen[family(curve.points[-1].row.implementation)])
    axes.set_ylim(0, 1.1)
    axes.set_xlabel(f"ranks; {bars_in_words(isinstance(curves[0].last.row, StepPrediction))}")


def _curve(axes: Axes, curve: Curve, look: Look) -> None:
    ranks = [point.ranks for point in curve.points]
    values = [point.efficiency.value for point in curve.points]
    predicted = isinstance(curve.last.row, StepPrediction)
    drawn = look.predicted if predicted else look
    axes.plot(ranks, values, **drawn._asdict(), label=f"{curve.name}{', predicted' if predicted else ''}")
    for point in curve.more:
        if point.efficiency.known:
            axes.vlines(point.ranks, point.efficiency.low, point.efficiency.high, color=look.color, alpha=0.6)
    law = fit_law(curve)
    if law.residual is not None:
        fine = np.geomspace(1, ranks[-1] / ranks[0], _FINE + 1)
        fitted = [law.efficiency(count) for count in fine]
        label = f"{curve.name}: law of scaling"
        axes.plot(fine * ranks[0], fitted, color=look.color, linewidth=0.8, linestyle=":", label=label)


KIND = Kind(
    order=30, rows=(StepTimes, StepPrediction), needs="steps on several numbers of ranks", figures=run_by_run(figures)
)
