"""The figure of what a training run costs against how long it takes: nobody pays more for waiting longer."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.analysis.plans import front, planned
from collbench.host.sanitize import text
from collbench.plots.bars import MACHINE
from collbench.plots.kinds import Kind, Named, Wanted, run_by_run
from collbench.plots.styles import SCREEN, looks, style
from collbench.results import PlannedStep
from collbench.runfile.store import Run
from collbench.units import format_count, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELLED = 24  # points


def figures(run: Run, wanted: Wanted) -> Named:
    """One, if prices are known; the front is that of all plans, chosen or not."""
    rows = [row for row in planned(run.results, "cost") if row.price > 0]
    shown = [row for row in rows if wanted.shows(row.implementation)]
    if shown:
        yield "pareto", figure(shown, front(rows), run.header.topology.name)


def figure(rows: Sequence[PlannedStep], best: Sequence[PlannedStep], machine: str) -> "Figure":
    """A point a plan, a look a system."""
    chosen = looks(row.system for row in rows)
    what = "run" if all(row.total for row in rows) else "step"
    scale, unit = unit_of(max(row.seconds for row in rows))
    with style():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(SCREEN.width(1) + 1, 5.2), layout="constrained")
        axes = drawn.subplots()
        axes.plot(*_places(best, scale), color="#606060", linewidth=1, zorder=1)
        for system in dict.fromkeys(row.system for row in rows):
            look = chosen[system]
            own = [row for row in rows if row.system == system]
            axes.plot(*_places(own, scale), look.marker, color=look.color, label=system)
        kept = set(map(id, best))
        for row in sorted(rows, key=lambda row: id(row) not in kept)[:_LABELLED]:
            place = row.seconds / scale, row.cost
            axes.annotate(f"{row.gpus:,}", place, (5, 5), textcoords="offset points", fontsize=9.5)
        shown = [*rows, *best]
        _scale(axes, _places(shown, scale)[0], max(row.cost for row in shown))
        axes.set_xlabel(f"time of the {what}, {unit}; the line is the best that money buys")
        axes.set_ylabel("cost, in the price's currency")
        name = f": {text(machine, MACHINE)}" if machine else ""
        drawn.suptitle(f"Cost of a training {what} by its GPUs{name}, predicted", x=0.01, ha="left")
        drawn.legend(loc="outside lower left", ncols=3)
    return drawn


def _places(rows: Sequence[PlannedStep], scale: float) -> tuple[list[float], list[float]]:
    return [row.seconds / scale for row in rows], [row.cost for row in rows]


def _scale(axes: "Axes", times: Sequence[float], most: float) -> None:
    """Time by its ratios, as GPUs are counted."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    low, high = 0.7 * min(times), 1.4 * max(times)
    axes.set_xlim(low, high)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.15 * most)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.yaxis.set_major_formatter(lambda value, position: format_count(value) if value > 0 else "0")
    axes.grid(visible=True, axis="x")


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between them, eight at most; one at least, since they are further apart than two of these."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ticks = [digits * 10.0**power for power in powers for digits in (1, 1.5, 2, 3, 5, 7)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return ticks[:: math.ceil(len(ticks) / 8)]


KIND = Kind(order=78, rows=(PlannedStep,), needs="plans with a price for GPUs", figures=run_by_run(figures))
