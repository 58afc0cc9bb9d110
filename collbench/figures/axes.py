"""The axes and the legend of a figure: sizes in powers of two along x, a quantity's ticks along y."""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from collbench.figures.overlay import Layer
from collbench.figures.panels import Drawn, Line, Panel, line_of
from collbench.figures.styles import Look, Style
from collbench.figures.views import Quantity
from collbench.measurement import Measurement
from collbench.units import format_size

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NEUTRAL = "#505050"  # of lines whose colour says nothing of the implementation
_LETTER = 0.56  # width of one over the font's size; names have few narrow ones
_LINE = 1.5  # height of a line over the font's size
_HANDLE = 5.0  # width of a handle and what is about it over the font's size
_POINT = 1 / 72  # inches
_NAME = 21  # letters in a line of a topology's name


def value_axis(axes: "Axes", quantity: Quantity, marks: int = 0) -> None:
    """The y axis, with at most `marks` steps where they are not powers of ten; 0: as many as Matplotlib likes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set_yscale(quantity.scale)
    low, high = axes.get_ylim()
    if quantity.scale == "linear":
        axes.set_ylim(bottom=0)
        if marks:
            axes.yaxis.set_major_locator(MaxNLocator(marks, steps=[1, 2, 5, 10]))
    elif high < 10 * low:
        axes.yaxis.set_major_locator(MaxNLocator(marks or 6))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity.tick(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def size_axis(axes: "Axes", sizes: Collection[int], room: int) -> None:
    """The x axis over all sizes of a figure, at most `room` of them named."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    least, most = min(sizes), max(sizes)
    margin = (most / least) ** 0.03 if most > least else 2
    axes.set_xscale("log", base=2)
    axes.set_xlim(least / margin, most * margin)
    axes.xaxis.set_major_locator(FixedLocator(size_ticks(least, most, room)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(size)))
    axes.xaxis.set_minor_locator(FixedLocator([2**exponent for exponent in range(most.bit_length())]))
    axes.xaxis.set_minor_formatter(NullFormatter())


def size_ticks(least: int, most: int, room: int) -> list[int]:
    """At most `room` powers of two, evenly spaced, from `least` to `most`; the ends if fewer than two fit."""
    first, last = math.ceil(math.log2(least)), math.floor(math.log2(most))
    if last <= first:
        return sorted({least, most})
    step = next(step for step in (1, 2, 4, 5, 10, 20) if last // step - (first - 1) // step <= room)
    return [2**exponent for exponent in range(first, last + 1) if exponent % step == 0]


def line_name(line: Line, everything: bool) -> str:
    """Whether it is predicted need not be said of each line where `everything` is."""
    return f"{line.label}, predicted" if line.predicted and not everything else line.label


def legend_entries(
    layers: Sequence[Layer], quantity: Quantity, looks: Mapping[Line, Look], style: Style
) -> "list[Artist]":
    """What the legend explains: topologies by colour, implementations by the rest, bands."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    everything = all(layer.panel.predicted for layer in layers)
    drawn = {line for layer in layers for line in results_of(layer, quantity)}
    entries: list[Artist] = [
        Patch(color=layer.color, linewidth=0, label=textwrap.fill(layer.name, _NAME)) for layer in layers if layer.color
    ]
    colored = any(layer.color for layer in layers)
    for line, look in looks.items():
        if line in drawn:
            own = style.drawn(look._replace(color=_NEUTRAL) if colored else look)
            entries.append(Line2D([], [], label=line_name(line, everything), **own))
    banded = {
        line_of(result).predicted
        for layer in layers
        for result in layer.panel.results
        if math.isfinite(quantity.between(layer.panel, result)[1])
    }
    for predicted, alpha in ((False, 0.3), (True, 0.15)):
        if predicted in banded:
            entries.append(Patch(color="#808080", alpha=alpha, linewidth=0, label=quantity.intervals[predicted]))
    return entries


def results_of(layer: Layer, quantity: Quantity) -> dict[Line, list[Drawn]]:
    """The results of each line that have a value, by size."""
    results: dict[Line, list[Drawn]] = {}
    for (line, _), result in sorted(layer.panel.points.items()):
        if math.isfinite(quantity.middle(layer.panel, result)):
            results.setdefault(line, []).append(result)
    return results


def place_legend(figure: "Figure", handles: "Sequence[Artist]", style: Style) -> float:
    """Put the legend outside the panels, in as many columns as it needs; the inches that are left beside it.

    Below the panels the figure grows by its rows.
    """
    width, height = figure.get_size_inches()
    heights = [1 + str(handle.get_label()).count("\n") for handle in handles]
    longest = max(len(row) for handle in handles for row in str(handle.get_label()).split("\n"))
    entry = (longest * _LETTER + _HANDLE) * style.font * _POINT
    if style.below:
        columns = min(len(handles), max(1, math.floor(width / entry)))
        figure.set_size_inches(width, height + (_tallest(heights, columns) * _LINE + 1) * style.font * _POINT)
    else:
        columns = math.ceil(sum(heights) / math.floor(height / (style.font * _LINE * _POINT)))
    figure.legend(
        handles=handles,
        loc="outside lower center" if style.below else "outside right upper",
        handlelength=3.5,
        ncols=columns,
    )
    return float(width if style.below else width - columns * entry)


def _tallest(heights: Sequence[int], columns: int) -> int:
    """Lines of the tallest column, filled as Matplotlib does: one after the other, the first ones longer by one."""
    short, longer = divmod(len(heights), columns)
    ends = [short * (column + 1) + min(column + 1, longer) for column in range(columns)]
    return max(sum(heights[start:end]) for start, end in zip([0, *ends], ends, strict=False))


def wrapped(heading: str, width: int) -> str:
    """A figure's title in lines of so many letters; what is in brackets comes in a line of its own first."""
    if len(heading) <= width:
        return heading
    return "\n".join(textwrap.fill(line, width) for line in heading.replace(" (", "\n(").split("\n"))


def measured_bound(axes: "Axes", panel: Panel, quantity: Quantity) -> None:
    """What memory allows, where the rows say it; a dotted line, and across each size that has it."""
    measured = (result for result in panel.results if quantity.bounded and isinstance(result, Measurement))
    known = {result.case.nbytes: (result, result.floor) for result in measured if result.floor}
    if not known:
        return
    sizes = sorted(known)
    values = [quantity.value(panel, *known[size]) for size in sizes]
    axes.plot(sizes, values, color="#606060", linestyle=":", marker="_", markersize=12, zorder=1, gid="bound")
    row, floor = known[sizes[-1]]
    rates = quantity.value(panel, row, 2 * floor) < values[-1]
    off, side = (3, "bottom") if rates else (-45, "top")  # where no curve is: times rise from the left, steeply
    place, grey = (sizes[-1], values[-1]), "#606060"
    axes.annotate("bound", place, (0, off), textcoords="offset points", ha="right", va=side, color=grey)
