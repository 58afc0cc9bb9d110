"""The figure of how a planned training run scales: tokens of a GPU and second, over those on the fewest GPUs."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.analysis.plans import LEVELS, Scaled, planned, scaled
from collbench.host.sanitize import text
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.planner import MACHINE
from collbench.plots.style import SCREEN, looks, style
from collbench.results import PlannedStep
from collbench.runfile.store import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 9


def figures(run: Run, request: PlotRequest) -> Named:
    """One, if there are several numbers of GPUs; what is chosen is held against the same first plan."""
    found = [
        one._replace(rows=tuple(row for row in one.rows if request.shows(row.implementation)))
        for one in scaled(planned(run.results, "scale"))
    ]
    shown = [one for one in found if one.rows]
    if shown:
        yield "efficiency", figure(shown, run.header.topology.name)


def figure(found: Sequence[Scaled], machine: str) -> "Figure":
    """Draw a line with its band for each system."""
    chosen = looks(one.system for one in found)
    name = text(machine if machine and len(found) == 1 else ", ".join(one.system for one in found), MACHINE)
    with style():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(SCREEN.width(1) + 1, 4.8), layout="constrained")
        axes = drawn.subplots()
        for one in found:
            look, counts = chosen[one.system], [row.gpus for row in one.rows]
            axes.plot(
                counts,
                [one.efficiency(row) for row in one.rows],
                **look.predicted._asdict(),
                label=one.system,
            )
            low, high = ([min(2.0, one.efficiency(row, row.band[end])) for row in one.rows] for end in (1, 0))
            axes.fill_between(counts, low, high, color=look.color, alpha=0.13, linewidth=0)
        _scale(axes, [row.gpus for one in found for row in one.rows])
        drawn.suptitle(f"Efficiency of a training run: {name}, predicted", x=0.01, ha="left")
        drawn.legend(loc="outside lower left", ncols=3)
    return drawn


def _scale(axes: "Axes", gpus: Sequence[int]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

    counts = sorted(set(gpus))
    axes.axhline(1.0, color="#606060", linewidth=1)
    for level in LEVELS:
        axes.axhline(level, color="#A0A0A0", linewidth=0.9, linestyle=":")
        axes.annotate(f"{level:.0%}", (1, level), (3, 0), ("axes fraction", "data"), "offset points", va="center")
    axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
    axes.set_ylim(0, 1.25)
    shown = _apart(counts)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{count:,}" for count in shown])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("GPUs")
    axes.set_ylabel("tokens/s of a GPU, over the fewest GPUs'")


def _apart(counts: Sequence[int]) -> list[int]:
    """Return the points whose labels leave each other room."""
    least = math.log(counts[-1] / counts[0]) / _MOST_TICKS
    shown = [counts[0]]
    for count in counts[1:]:
        if math.log(count / shown[-1]) >= least:
            shown.append(count)
    return shown


KIND = Kind(order=74, rows=(PlannedStep,), needs="plans on several numbers of GPUs", figures=run_by_run(figures))
