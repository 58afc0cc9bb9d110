"""Figures of plans of a training run: where a step's time goes, a GPU's memory, how it scales, cost against time."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from collbench.analysis.plans import LEVELS, Scaled, front, planned, scaled
from collbench.host.sanitize import text
from collbench.plots.axes import efficiency_axes, grid_along_x, heading, name_rows, patch_legend, stacked_bar
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import (
    DARK,
    GREY,
    MEMORY_PARTS,
    OTHERS,
    SCREEN,
    STEP_PARTS,
    Figure,
    looks,
    new_figure,
    style,
)
from collbench.results import PlannedStep, words
from collbench.runfile.store import Run
from collbench.units import counted, format_count, format_figure, format_seconds, unit_of

LABEL, MACHINE = 52, 60  # most characters of the name of a bar, and of a machine
_MOST_BARS = 24  # in a figure: more are too thin to read
_WIDTH = 11.0  # inches
_FONT = 9.5  # of the text behind a bar
_LETTER = 0.56  # width of a letter over its height
_COLOURS = {**STEP_PARTS, **MEMORY_PARTS}
_MOST_TICKS = 9  # of numbers of GPUs
_MOST_POINTS = 24  # of a figure of costs that have a label
_GIB = 2.0**30


_SECONDS = "seconds of a step; the line spans where nine in ten should lie"


def _rows(run: Run, request: PlotRequest, purpose: str) -> tuple[list[PlannedStep], list[PlannedStep]]:
    """Return the plans of that purpose, and those of them that are shown, in the order of the file."""
    rows = planned(run.results, purpose)
    return rows, [row for row in rows if request.shows(row.implementation)]


def _layouts(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of the time of a step in each planned layout."""
    rows, shown = _rows(run, request, "layout")
    if shown:
        title = f"Where the time of a step goes: {machine_of(run, rows)}"
        yield "layouts", _stacked(shown, rows, _step_remark, title, _SECONDS)


def _memory(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of what layouts need of a GPU's memory; the line is the smallest GPU's."""
    rows, shown = ([row for row in part if row.needed > 0] for part in _rows(run, request, "layout"))
    if shown:
        title, limit = f"What the memory of a GPU holds: {machine_of(run, rows)}", min(row.capacity for row in rows)
        axis = "memory of a GPU in the stage that needs most"
        yield "memory", _stacked(shown, rows, lambda row: f"{row.needed / row.capacity:.0%}", title, axis, limit / _GIB)


def _interconnects(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of the same step on several interconnects."""
    rows, shown = _rows(run, request, "interconnect")
    if shown:
        fastest = min(row.typical / row.tokens for row in rows)

        def remark(row: PlannedStep) -> str:
            slowdown = row.typical / row.tokens / fastest
            return _step_remark(row) + (f", {format_figure(slowdown)}x" if slowdown > 1.005 else "")

        counts = [row.gpus for row in rows]
        gpus = " to ".join(dict.fromkeys((f"{min(counts):,}", f"{max(counts):,}")))
        title = f"A step by its interconnect: {gpus} GPUs, predicted"
        axis = f"{_SECONDS}; 2x: a token takes twice as long as on the fastest"
        yield "interconnects", _stacked(shown, rows, remark, title, axis, by_system=True)


def _step_remark(row: PlannedStep) -> str:
    return f"{format_seconds(row.typical)}, MFU {row.utilisation:.0%}"


def machine_of(run: Run, rows: Sequence[PlannedStep]) -> str:
    """Return the machine of some plans and its number of GPUs, each where it is the same for all."""
    names = []
    if len({row.system for row in rows}) == 1:
        names.append(text(run.header.topology.name or rows[0].system, MACHINE))
    if len({row.gpus for row in rows}) == 1:
        names.append(f"{counted(rows[0].gpus, 'GPU')}")
    return ", ".join([*names, "predicted"])


def _label(row: PlannedStep, rows: Sequence[PlannedStep], by_system: bool = False) -> str:
    """Return the layout, with its system where these differ, or the system, with its layout where it has several."""
    systems = [other.system for other in rows]
    names = [row.implementation] + [row.system] * (len(set(systems)) > 1)
    if by_system:
        names = [row.system] + [row.implementation] * (systems.count(row.system) > 1)
    if len({other.gpus for other in rows}) > 1:
        names.append(f"{counted(row.gpus, 'GPU')}")
    return ", ".join(names)


@style()
def _stacked(
    rows: Sequence[PlannedStep],
    every: Sequence[PlannedStep],
    remark: Callable[[PlannedStep], str],
    title: str,
    axis: str,
    limit: float = 0.0,
    by_system: bool = False,
) -> Figure:
    """Draw a bar with a remark behind it for each row, the first at the top: its step, whose band a line spans.

    With a limit, the GiB that none may pass, it is the row's memory instead.
    """
    shown = rows[:_MOST_BARS]
    more = f"; the first {len(shown)} of {len(rows):,}" if len(rows) > len(shown) else ""
    drawn = new_figure(_WIDTH, 0.36 * len(shown) + 2.2)
    axes = drawn.subplots()
    offset: dict[str, Any] = {"textcoords": "offset points", "va": "center"}
    # Memory in GiB, so that ticks are whole numbers.
    bars = [{part: size / _GIB for part, size in row.memory.items()} if limit else row.parts for row in shown]
    ends = [max(sum(parts.values()), 0 if limit else row.high) for parts, row in zip(bars, shown, strict=True)]
    longest = max(limit, *ends)
    for place, row in enumerate(shown):
        stacked_bar(axes, place, bars[place], _COLOURS, 0.72, edgecolor="white", linewidth=0.4)
        if not limit:
            axes.hlines(place, *row.band, color=DARK, linewidth=1.2)
            axes.plot(row.band, (place, place), "|", color=DARK, markersize=7)
        axes.annotate(remark(row), (max(limit, ends[place]), place), (6, 0), fontsize=_FONT, **offset)
    if limit:
        axes.axvline(limit, color="#000000", linewidth=1.2, linestyle="--")
        axes.annotate(f"it has {limit:.4g} GiB", (limit, -0.85), (-4, 0), ha="right", **offset)
    # The axis leaves room for the remarks behind the bars.
    names = [_label(row, every, by_system) for row in shown]
    label = min(max(map(len, names)), LABEL) * 11 * _LETTER / 72
    behind = (max(len(remark(row)) for row in shown) + 2) * _FONT * _LETTER / 72
    axes.set_xlim(0, longest / (1 - min(0.5, behind / (_WIDTH - 0.5 - label))))
    name_rows(axes, [text(name, LABEL) for name in names])
    axes.set_ylim(top=-1.2 if limit else -0.6)
    ticks = "{:.4g} GiB".format if limit else format_seconds
    axes.xaxis.set_major_formatter(lambda value, position: ticks(value) if value > 0 else "0")
    grid_along_x(axes)
    axes.set_xlabel(axis)
    heading(drawn, f"{title}{more}")
    parts = dict.fromkeys(part for bar in bars for part in bar)  # in the order in which they lie in the bars
    seen = [part for part in parts if any(bar.get(part, 0.0) > max(ends) / 1000 for bar in bars)]
    patch_legend(drawn, {words(name): _COLOURS.get(name, OTHERS) for name in seen}, min(5, len(seen)))
    return drawn


# ---- cost against time


def _costs(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of costs, if prices are known; the line joins the best of all plans, drawn or not."""
    rows, shown = ([row for row in part if row.price > 0] for part in _rows(run, request, "cost"))
    if shown:
        yield "pareto", _cost_figure(shown, front(rows), run.header.topology.name)


@style()
def _cost_figure(rows: Sequence[PlannedStep], best: Sequence[PlannedStep], machine: str) -> Figure:
    """Draw a point for each plan, with a look for each system, and the Pareto front as a line."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    chosen = looks(row.system for row in rows)
    what = "run" if all(row.total for row in rows) else "step"
    scale, unit = unit_of(max(row.seconds for row in rows))
    drawn = new_figure(SCREEN.width(1) + 1, 5.2)
    axes = drawn.subplots()
    axes.plot(*_places(best, scale), color=GREY, linewidth=1, zorder=1)
    for system in dict.fromkeys(row.system for row in rows):
        look = chosen[system]
        of_system = [row for row in rows if row.system == system]
        axes.plot(*_places(of_system, scale), look.marker, color=look.color, label=system)
    in_front = set(map(id, best))
    for row in sorted(rows, key=lambda row: id(row) not in in_front)[:_MOST_POINTS]:
        place = row.seconds / scale, row.cost
        axes.annotate(f"{row.gpus:,}", place, (5, 5), textcoords="offset points", fontsize=_FONT)
    # Times are logarithmic, as numbers of GPUs double.
    times, costs = _places([*rows, *best], scale)
    low, high = 0.7 * min(times), 1.4 * max(times)
    axes.set(xlim=(low, high), xscale="log", ylim=(0, 1.15 * max(costs)))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    numbers = [digits * 10.0**power for power in powers for digits in (1, 1.5, 2, 3, 5, 7)]
    between = [number for number in numbers if low <= number <= high]  # at least one, as the ends are a factor apart
    axes.set_xticks(between[:: math.ceil(len(between) / 8)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.yaxis.set_major_formatter(lambda value, position: format_count(value) if value > 0 else "0")
    axes.grid(visible=True, axis="x")
    axes.set_xlabel(f"time of the {what}, {unit}; the line is the best that money buys")
    axes.set_ylabel(f"cost, {rows[0].currency or 'in its currency'}")
    name = f": {text(machine, MACHINE)}" if machine else ""
    heading(drawn, f"Cost of a training {what} by its GPUs{name}, predicted")
    drawn.legend(loc="outside lower left", ncols=3)
    return drawn


def _places(rows: Sequence[PlannedStep], scale: float) -> tuple[list[float], list[float]]:
    return [row.seconds / scale for row in rows], [row.cost for row in rows]


# ---- how a run scales


def _efficiencies(run: Run, request: PlotRequest) -> Named:
    """One, if there are several numbers of GPUs; what is chosen is held against the same first plan."""
    found = [
        one._replace(rows=tuple(row for row in one.rows if request.shows(row.implementation)))
        for one in scaled(planned(run.results, "scale"))
    ]
    shown = [one for one in found if one.rows]
    if shown:
        yield "efficiency", _efficiency_figure(shown, run.header.topology.name)


@style()
def _efficiency_figure(found: Sequence[Scaled], machine: str) -> Figure:
    """Draw a line with its band for each system."""
    chosen = looks(one.system for one in found)
    name = text(machine if machine and len(found) == 1 else ", ".join(one.system for one in found), MACHINE)
    drawn = new_figure(SCREEN.width(1) + 1, 4.8)
    axes = drawn.subplots()
    for one in found:
        look, counts = chosen[one.system], [row.gpus for row in one.rows]
        values = [one.efficiency(row) for row in one.rows]
        axes.plot(counts, values, **look.predicted._asdict(), label=one.system)
        low, high = ([min(2.0, one.efficiency(row, row.band[end])) for row in one.rows] for end in (1, 0))
        axes.fill_between(counts, low, high, color=look.color, alpha=0.13, linewidth=0)
    axes.axhline(1.0, color=GREY, linewidth=1)
    for level in LEVELS:
        axes.axhline(level, color="#A0A0A0", linewidth=0.9, linestyle=":")
        axes.annotate(f"{level:.0%}", (1, level), (3, 0), ("axes fraction", "data"), "offset points", va="center")
    counts = sorted({row.gpus for one in found for row in one.rows})
    efficiency_axes(axes, counts, counts[:: math.ceil(len(counts) / _MOST_TICKS)])
    axes.set_ylim(0, 1.25)
    axes.set_xlabel("GPUs; bands: where nine in ten should lie")
    axes.set_ylabel("tokens/s of a GPU, over the fewest GPUs'")
    heading(drawn, f"Efficiency of a training run: {name}, predicted")
    drawn.legend(loc="outside lower left", ncols=3)
    return drawn


KINDS = {
    name: Kind(order=order, rows=(PlannedStep,), needs=needs, figures=run_by_run(drawn))
    for name, order, drawn, needs in (
        ("layouts", 70, _layouts, "planned layouts"),
        ("memory", 72, _memory, "planned layouts with their memory"),
        ("efficiency", 74, _efficiencies, "plans on several numbers of GPUs"),
        ("pareto", 78, _costs, "plans with a price for GPUs"),
        ("interconnects", 80, _interconnects, "plans for several interconnects"),
    )
}
