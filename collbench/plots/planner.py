"""Figures of plans of a training run: where a step's time goes, a GPU's memory, how it scales, cost against time."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from collbench.analysis.plans import LEVELS, Scaled, front, planned, scaled
from collbench.host.sanitize import text
from collbench.plots.axes import (
    Axes,
    Figure,
    efficiency_axes,
    grid_along_x,
    heading,
    name_rows,
    new_figure,
    patch_legend,
)
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.plots.style import DARK, GREY, MEMORY_PARTS, OTHERS, SCREEN, STEP_PARTS, looks, style
from collbench.results import PlannedStep, words
from collbench.runfile.store import Run
from collbench.units import format_count, format_figure, format_seconds, unit_of

LABEL, MACHINE = 52, 60  # most characters of the name of a bar, and of a machine
_MOST_BARS = 24  # in a figure: more are too thin to read
_WIDTH = 11.0  # inches
_FONT = 9.5  # of the text behind a bar
_LETTER = 0.56  # width of a letter over its height
_COLOURS = {**STEP_PARTS, **MEMORY_PARTS}
_MOST_TICKS = 9  # of numbers of GPUs
_MOST_POINTS = 24  # of a figure of costs that have a label
_GIB = 2.0**30


class Bar(NamedTuple):
    """A stacked bar."""

    label: str
    parts: Mapping[str, float]
    band: tuple[float, float] | None  # between which its end should lie
    remark: str  # behind its end

    @property
    def end(self) -> float:
        """Where it ends, with its band."""
        return max(sum(self.parts.values()), *(self.band or (0.0,)))


class Axis(NamedTuple):
    """What bars are measured in."""

    name: str
    ticks: Callable[[float], str]
    limit: float = 0.0  # that no bar may pass, drawn as a line; 0: none
    limit_name: str = ""


_SECONDS = Axis("seconds of a step; the line spans where it should lie", format_seconds)
_SECONDS_PER_TOKEN = _SECONDS._replace(
    name=f"{_SECONDS.name}; 2x: a token takes twice as long as on the fastest",
)


def _layouts(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of the time of a step in each planned layout, in the order of the file."""
    rows = planned(run.results, "layout")
    bars = [
        Bar(_layout_label(row, rows), row.parts, row.band, _step_remark(row))
        for row in rows
        if request.shows(row.implementation)
    ]
    if bars:
        yield "layouts", _stacked(bars, _SECONDS, f"Where the time of a step goes: {machine_of(run, rows)}")


def _memory(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of what layouts need of a GPU's memory; the line is the smallest GPU's."""
    rows = [row for row in planned(run.results, "layout") if row.needed > 0]
    bars = []
    for row in rows:
        if request.shows(row.implementation):
            parts = {part: nbytes / _GIB for part, nbytes in row.memory.items()}  # so that ticks are whole numbers
            bars.append(Bar(_layout_label(row, rows), parts, None, f"{row.needed / row.capacity:.0%}"))
    if bars:
        capacity = min(row.capacity for row in rows) / _GIB
        name, limit_name = "memory of a GPU in the stage that needs most", f"it has {capacity:.4g} GiB"
        axis = Axis(name, lambda value: f"{value:.4g} GiB", capacity, limit_name)
        yield "memory", _stacked(bars, axis, f"What the memory of a GPU holds: {machine_of(run, rows)}")


def _interconnects(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of the same step on several interconnects, in the order of the file."""
    rows = planned(run.results, "interconnect")
    bars = []
    for row in rows:
        if request.shows(row.implementation):
            slowdown = row.typical / row.tokens / min(other.typical / other.tokens for other in rows)
            remark = _step_remark(row) + (f", {format_figure(slowdown)}x" if slowdown > 1.005 else "")
            bars.append(Bar(_interconnect_label(row, rows), row.parts, row.band, remark))
    if bars:
        counts = sorted({row.gpus for row in rows})
        gpus = f"{counts[0]:,} to {counts[-1]:,}" if len(counts) > 1 else f"{counts[0]:,}"
        yield "interconnects", _stacked(bars, _SECONDS_PER_TOKEN, f"A step by its interconnect: {gpus} GPUs, predicted")


def _step_remark(row: PlannedStep) -> str:
    return f"{format_seconds(row.typical)}, MFU {row.utilisation:.0%}"


def machine_of(run: Run, rows: Sequence[PlannedStep]) -> str:
    """Return the machine of some plans and its number of GPUs, each where it is the same for all."""
    names = []
    if len({row.system for row in rows}) == 1:
        names.append(text(run.header.topology.name or rows[0].system, MACHINE))
    if len({row.gpus for row in rows}) == 1:
        names.append(f"{rows[0].gpus:,} GPUs")
    return ", ".join([*names, "predicted"])


def _layout_label(row: PlannedStep, rows: Sequence[PlannedStep]) -> str:
    """Return the layout, with its system and its GPUs where these differ."""
    names = [row.implementation]
    if len({other.system for other in rows}) > 1:
        names.append(row.system)
    if len({other.gpus for other in rows}) > 1:
        names.append(f"{row.gpus:,} GPUs")
    return ", ".join(names)


def _interconnect_label(row: PlannedStep, rows: Sequence[PlannedStep]) -> str:
    """Return the system, with its layout where it has several, and its GPUs where they differ."""
    names = [row.system]
    if [other.system for other in rows].count(row.system) > 1:
        names.append(row.implementation)
    if len({other.gpus for other in rows}) > 1:
        names.append(f"{row.gpus:,} GPUs")
    return ", ".join(names)


# ---- stacked bars


@style()
def _stacked(bars: Sequence[Bar], axis: Axis, title: str) -> Figure:
    """Draw bars one below the other, the first at the top."""
    shown = bars[:_MOST_BARS]
    more = f"; the first {len(shown)} of {len(bars):,}" if len(bars) > len(shown) else ""
    drawn = new_figure(_WIDTH, 0.36 * len(shown) + 2.2)
    axes = drawn.subplots()
    for row, bar in enumerate(shown):
        _bar(axes, row, bar, axis.limit)
    if axis.limit:
        axes.axvline(axis.limit, color="#000000", linewidth=1.2, linestyle="--")
        place, offset = (axis.limit, -0.85), (-4, 0)
        axes.annotate(axis.limit_name, place, offset, textcoords="offset points", ha="right", va="center")
    axes.set_xlim(0, _room(shown) * max(axis.limit, *(bar.end for bar in shown)))
    name_rows(axes, [text(bar.label, LABEL) for bar in shown])
    axes.set_ylim(top=-1.2 if axis.limit else -0.6)
    axes.xaxis.set_major_formatter(lambda value, position: axis.ticks(value) if value > 0 else "0")
    grid_along_x(axes)
    axes.set_xlabel(axis.name)
    heading(drawn, f"{title}{more}")
    _parts_legend(drawn, shown)
    return drawn


def _room(bars: Sequence[Bar]) -> float:
    """Return the axis over the longest bar, which leaves room for the remarks behind the bars."""
    label = min(max(len(bar.label) for bar in bars), LABEL) * 11 * _LETTER / 72
    remark = (max(len(bar.remark) for bar in bars) + 2) * _FONT * _LETTER / 72
    return 1 / (1 - min(0.5, remark / (_WIDTH - 0.5 - label)))


def _bar(axes: Axes, row: int, bar: Bar, limit: float) -> None:
    left = 0.0
    for part, value in bar.parts.items():
        colour = _COLOURS.get(part, OTHERS)
        axes.barh(row, value, left=left, height=0.72, color=colour, edgecolor="white", linewidth=0.4)
        left += value
    if bar.band:
        axes.hlines(row, *bar.band, color=DARK, linewidth=1.2)
        axes.plot(bar.band, (row, row), "|", color=DARK, markersize=7)
    place = max(limit, bar.end), row
    axes.annotate(bar.remark, place, (6, 0), textcoords="offset points", va="center", fontsize=_FONT)


def _parts_legend(drawn: Figure, bars: Sequence[Bar]) -> None:
    """Explain the parts that can be seen in one of the bars, in the order in which they lie in them."""
    least = max(bar.end for bar in bars) / 1000
    largest: dict[str, float] = {}
    for bar in bars:
        for part, value in bar.parts.items():
            largest[part] = max(value, largest.get(part, 0.0))
    names = [part for part, value in largest.items() if value > least]
    patch_legend(drawn, {words(name): _COLOURS.get(name, OTHERS) for name in names}, min(5, len(names)))


# ---- cost against time


def _costs(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of costs, if prices are known; the line joins the best of all plans, drawn or not."""
    rows = [row for row in planned(run.results, "cost") if row.price > 0]
    shown = [row for row in rows if request.shows(row.implementation)]
    if shown:
        yield "pareto", _cost_figure(shown, front(rows), run.header.topology.name)


@style()
def _cost_figure(rows: Sequence[PlannedStep], best: Sequence[PlannedStep], machine: str) -> Figure:
    """Draw a point for each plan, with a look for each system, and the Pareto front as a line."""
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
    times, costs = _places([*rows, *best], scale)
    _cost_axes(axes, times, max(costs))
    axes.set_xlabel(f"time of the {what}, {unit}; the line is the best that money buys")
    axes.set_ylabel("cost, in the price's currency")
    name = f": {text(machine, MACHINE)}" if machine else ""
    heading(drawn, f"Cost of a training {what} by its GPUs{name}, predicted")
    drawn.legend(loc="outside lower left", ncols=3)
    return drawn


def _places(rows: Sequence[PlannedStep], scale: float) -> tuple[list[float], list[float]]:
    return [row.seconds / scale for row in rows], [row.cost for row in rows]


def _cost_axes(axes: Axes, times: Sequence[float], most: float) -> None:
    """Set up both axes; times are logarithmic, as numbers of GPUs double."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    low, high = 0.7 * min(times), 1.4 * max(times)
    axes.set(xlim=(low, high), xscale="log", ylim=(0, 1.15 * most))
    axes.set_xticks(_round_numbers(low, high))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.yaxis.set_major_formatter(lambda value, position: format_count(value) if value > 0 else "0")
    axes.grid(visible=True, axis="x")


def _round_numbers(low: float, high: float) -> list[float]:
    """Return round numbers between two ends that are at least a factor of 2 apart: one to eight of them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    numbers = [digits * 10.0**power for power in powers for digits in (1, 1.5, 2, 3, 5, 7)]
    between = [number for number in numbers if low <= number <= high]
    return between[:: math.ceil(len(between) / 8)]


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
    efficiency_axes(axes, counts, _apart(counts))
    axes.set_ylim(0, 1.25)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("tokens/s of a GPU, over the fewest GPUs'")
    heading(drawn, f"Efficiency of a training run: {name}, predicted")
    drawn.legend(loc="outside lower left", ncols=3)
    return drawn


def _apart(counts: Sequence[int]) -> list[int]:
    """Return the points whose labels leave each other room."""
    least = math.log(counts[-1] / counts[0]) / _MOST_TICKS
    shown = [counts[0]]
    for count in counts[1:]:
        if math.log(count / shown[-1]) >= least:
            shown.append(count)
    return shown


KINDS = {
    "layouts": Kind(order=70, rows=(PlannedStep,), needs="planned layouts", figures=run_by_run(_layouts)),
    "memory": Kind(
        order=72, rows=(PlannedStep,), needs="planned layouts with their memory", figures=run_by_run(_memory)
    ),
    "efficiency": Kind(
        order=74,
        rows=(PlannedStep,),
        needs="plans on several numbers of GPUs",
        figures=run_by_run(_efficiencies),
    ),
    "pareto": Kind(order=78, rows=(PlannedStep,), needs="plans with a price for GPUs", figures=run_by_run(_costs)),
    "interconnects": Kind(
        order=80, rows=(PlannedStep,), needs="plans for several interconnects", figures=run_by_run(_interconnects)
    ),
}
