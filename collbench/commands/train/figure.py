"""Figures of plans of a training run: where the time of a step goes in each layout, and how the run scales."""

import math
from collections.abc import Sequence

from collbench.commands.train.plans import Scaled, planned, scaled
from collbench.commands.train.rows import PlannedStep, words
from collbench.host.sanitize import text
from collbench.plots.axes import (
    efficiency_axes,
    grid_along_x,
    heading,
    name_rows,
    patch_legend,
    seconds_tick,
    stacked_bar,
)
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import COLORS, DARK, GREY, OTHERS, SCREEN, STEP_PARTS, Figure, new_figure, style
from collbench.runfile.store import Run
from collbench.units import counted, format_seconds

LABEL, MACHINE = 52, 60  # most characters of the name of a bar, and of a machine
_MOST_BARS = 24  # in a figure: more are too thin to read
_WIDTH = 11.0  # inches
_MOST_TICKS = 9  # of numbers of GPUs


def _layouts(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of the time of a step in each planned layout."""
    rows = planned(run.results, "layout")
    shown = [row for row in rows if request.shows(row.implementation)]
    if shown:
        yield (
            "layouts",
            _stacked(shown, f"{text(run.header.topology.name, MACHINE)}, {counted(rows[0].gpus, 'GPU')}, predicted"),
        )


@style()
def _stacked(rows: Sequence[PlannedStep], machine: str) -> Figure:
    """Draw a bar for each row, the first at the top, with its name and its time; a line spans the band of its step."""
    shown = rows[:_MOST_BARS]
    more = f"; the first {len(shown)} of {len(rows):,}" if len(rows) > len(shown) else ""
    drawn = new_figure(_WIDTH, 0.45 * len(shown) + 2.2)
    axes = drawn.subplots()
    longest = 0.0
    for place, row in enumerate(shown):
        longest = max(longest, row.typical, row.high)
        stacked_bar(axes, place, row.parts, STEP_PARTS, 0.72, edgecolor="white", linewidth=0.4)
        axes.hlines(place, *row.band, color=DARK, linewidth=1.2)
        axes.plot(row.band, (place, place), "|", color=DARK, markersize=7)
    axes.set_xlim(0, 1.02 * longest)
    names = []
    for row in shown:
        step = f"{format_seconds(row.typical)}, MFU {row.utilisation:.0%}"
        names.append(f"{text(row.implementation, LABEL)}\n{step}")
    name_rows(axes, names)
    axes.set_ylim(top=-0.6)
    axes.xaxis.set_major_formatter(seconds_tick)
    grid_along_x(axes)
    axes.set_xlabel("seconds of a step; the line spans where nine in ten should lie")
    heading(drawn, f"Where the time of a step goes: {machine}{more}")
    # In the order in which they lie in the bars; what is too short to be seen needs no legend.
    seen: dict[str, None] = {}
    for row in shown:
        seen |= dict.fromkeys(row.parts)
    for part in list(seen):
        if all(row.parts.get(part, 0.0) <= longest / 1000 for row in shown):
            del seen[part]
    patch_legend(drawn, {words(name): STEP_PARTS.get(name, OTHERS) for name in seen}, min(5, len(seen)))
    return drawn


def _efficiencies(run: Run, request: PlotRequest) -> Named:
    """Yield a figure if there are several numbers of GPUs; what is chosen is held against the same first plan."""
    curve = scaled(planned(run.results, "scale"))
    if not curve:
        return
    rows = tuple(row for row in curve.rows if request.shows(row.implementation))
    if rows:
        yield (
            "efficiency",
            _efficiency_figure(curve._replace(rows=rows), f"{text(run.header.topology.name, MACHINE)}, predicted"),
        )


@style()
def _efficiency_figure(curve: Scaled, machine: str) -> Figure:
    """Draw a line with its band."""
    look, counts = COLORS[0], [row.gpus for row in curve.rows]
    drawn = new_figure(SCREEN.width(1) + 1, 4.4)
    axes = drawn.subplots()
    axes.plot(counts, [curve.efficiency(row) for row in curve.rows], "o--", color=look, markerfacecolor="white")
    low = [min(2.0, curve.efficiency(row, row.band[1])) for row in curve.rows]
    high = [min(2.0, curve.efficiency(row, row.band[0])) for row in curve.rows]
    axes.fill_between(counts, low, high, color=look, alpha=0.13, linewidth=0)
    axes.axhline(1.0, color=GREY, linewidth=1)
    for level in (0.9, 0.8, 0.7):
        axes.axhline(level, color="#A0A0A0", linewidth=0.9, linestyle=":")
        axes.annotate(f"{level:.0%}", (1, level), (3, 0), ("axes fraction", "data"), "offset points", va="center")
    efficiency_axes(axes, counts, counts[:: math.ceil(len(counts) / _MOST_TICKS)])
    axes.set_ylim(0, 1.25)
    axes.set_xlabel("GPUs; the band is where nine in ten should lie")
    axes.set_ylabel("tokens/s of a GPU, over the fewest GPUs'")
    heading(drawn, f"Efficiency of a training run: {machine}")
    return drawn


KINDS = {
    "layouts": Kind(70, (PlannedStep,), "planned layouts", run_by_run(_layouts)),
    "efficiency": Kind(74, (PlannedStep,), "plans on several numbers of GPUs", run_by_run(_efficiencies)),
}
