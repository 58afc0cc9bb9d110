"""The figure of a scaling: efficiency against ranks, the ideal, and what practitioners quote; a panel a mode."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.analysis.scaling import USUAL, Curve, curves, fit_laws, nearest_law
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.style import SCREEN, Look, looks, style
from collbench.results import StepPrediction, StepTimes, family
from collbench.runfile.store import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FINE = 120  # points of a fitted law


def figures(run: Run, request: PlotRequest) -> Named:
    """One, if there is a curve."""
    shown = [curve for curve in curves(run.results) if request.shows(curve.last.row.implementation)]
    if shown:
        yield "scaling", figure(shown, run.header.topology.name)


def figure(curves: Sequence[Curve], topology: str) -> "Figure":
    """Draw a panel for every mode."""
    modes = list(dict.fromkeys(curve.mode for curve in curves))
    chosen = looks(family(curve.points[-1].row.implementation) for curve in curves)
    with style():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(SCREEN.width(len(modes)), 4.8), layout="constrained")
        grid = drawn.subplots(1, len(modes), squeeze=False, sharey=True)
        for axes, mode in zip(grid.flat, modes, strict=True):
            _panel(axes, [curve for curve in curves if curve.mode == mode], chosen)
            axes.set_title(f"{mode} scaling")
        grid.flat[0].set_ylabel("efficiency")
        drawn.suptitle(f"Efficiency of a training step: {topology}", x=0.01, ha="left")
        handles, labels = grid.flat[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower left", ncols=min(4, len(labels)))
    return drawn


def _panel(axes: "Axes", curves: Sequence[Curve], chosen: dict[str, Look]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

    counts = sorted({point.ranks for curve in curves for point in curve.points})
    axes.set_xscale("log", base=2)
    axes.axhline(1.0, color="#606060", linewidth=1, label="ideal")
    _usual(axes, counts[0], counts[-1])
    for curve in curves:
        _curve(axes, curve, chosen[family(curve.points[-1].row.implementation)])
    axes.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
    axes.set_ylim(0, 1.1)
    shown = counts[:: math.ceil(len(counts) / 9)]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{count:,}" for count in shown])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("ranks")


def _usual(axes: "Axes", first: int, last: int) -> None:
    """The band that practitioners quote, between the numbers of ranks that they quote it for."""
    counts = sorted(USUAL)
    if last < counts[0] or first > counts[-1]:
        return
    low, high = ([USUAL[count][end] for count in counts] for end in (0, 1))
    axes.fill_between(counts, low, high, color="#808080", alpha=0.25, linewidth=0, label="what practitioners quote")


def _curve(axes: "Axes", curve: Curve, look: Look) -> None:
    ranks = [point.ranks for point in curve.points]
    values = [point.efficiency.value for point in curve.points]
    predicted = isinstance(curve.last.row, StepPrediction)
    drawn = look.predicted if predicted else look
    axes.plot(ranks, values, **drawn._asdict(), label=f"{curve.name}{', predicted' if predicted else ''}")
    for point in curve.more:
        if point.efficiency.known:
            axes.vlines(point.ranks, point.efficiency.low, point.efficiency.high, color=look.color, alpha=0.6)
    nearest = nearest_law(fit_laws(curve))
    if nearest:
        fine = [2 ** (step * math.log2(ranks[-1] / ranks[0]) / _FINE) for step in range(_FINE + 1)]
        law = [nearest.efficiency(count) for count in fine]
        label = f"{curve.name}: {nearest.law.name}"
        axes.plot(
            [count * ranks[0] for count in fine], law, color=look.color, linewidth=0.8, linestyle=":", label=label
        )


KIND = Kind(
    order=30,
    rows=(StepTimes, StepPrediction),
    needs="steps on several numbers of ranks",
    figures=run_by_run(figures),
)
