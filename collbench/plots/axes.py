"""The axes and the legend of a figure: sizes in powers of two along x, a quantity's ticks along y."""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from collbench.plots.limits import explained, limit
from collbench.plots.overlay import Layer
from collbench.plots.panels import Drawn, Line, line_of
from collbench.plots.styles import MUTED, Look, Style
from collbench.plots.views import Quantity
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
    layers: Sequence[Layer], quantities: Sequence[Quantity], looks: Mapping[Line, Look], style: Style
) -> "list[Artist]":
    """What the legend explains: topologies by colour, implementations by the rest, bands.

    Lines come in the order in which they end at the right, the topmost first; those in grey after the others.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    everything = all(layer.panel.predicted for layer in layers)
    entries: list[Artist] = [
        Patch(color=layer.color, linewidth=0, label=textwrap.fill(layer.name, _NAME)) for layer in layers if layer.color
    ]
    colored = any(layer.color for layer in layers)
    for line in _ordered(layers, quantities[0], looks):
        own = style.drawn(looks[line]._replace(color=_NEUTRAL) if colored else looks[line])
        entries.append(Line2D([], [], label=line_name(line, everything), **own))
    bounds = [bound for layer in layers if (bound := limit(layer.panel, quantities[0]))]
    values = f": {quantities[0].tick(bounds[0].end[1])}" if len(layers) == 1 and bounds else ""
    named = dict.fromkeys((bound.name if colored else bound.means) + values for bound in bounds)
    entries += [explained(words) for words in named]
    for predicted, alpha in ((False, 0.3), (True, 0.15)):
        banded = [one.intervals[predicted] for one in quantities if _banded(layers, one, looks, predicted)]
        other = f" (right: {banded[-1].removesuffix(' interval')})" if len(set(banded)) > 1 else ""
        entries += [Patch(color="#808080", alpha=alpha, linewidth=0, label=f"{one}{other}") for one in banded[:1]]
    return entries


def _ordered(layers: Sequence[Layer], quantity: Quantity, looks: Mapping[Line, Look]) -> list[Line]:
    """Those that are drawn: marks on others last, before them those in grey; by the value at the largest size."""
    found: dict[Line, list[tuple[int, float]]] = {}
    for layer in layers:
        for line, results in results_of(layer, quantity).items():
            end = (results[-1].case.nbytes, quantity.middle(layer.panel, results[-1]))
            found.setdefault(line, []).append(end)
    largest = max((size for ends in found.values() for size, _ in ends), default=0)

    def place(line: Line) -> tuple[bool, bool, bool, float]:
        sizes, values = zip(*found[line], strict=True)
        value = math.fsum(math.log(max(value, 1e-300)) for value in values) / len(values)
        return not looks[line].linestyle, looks[line].color == MUTED, max(sizes) < largest, -value

    return sorted((line for line in looks if line in found), key=place)


def _banded(layers: Sequence[Layer], quantity: Quantity, looks: Mapping[Line, Look], predicted: bool) -> bool:
    """Whether any band of that kind is drawn."""
    return any(
        math.isfinite(quantity.between(layer.panel, result)[1])
        for layer in layers
        for result in layer.panel.results
        if (line := line_of(result)).predicted == predicted and has_band(looks[line])
    )


def has_band(look: Look) -> bool:
    """Bands of lines in grey would hide the others; marks on other lines have none."""
    return bool(look.linestyle) and look.color != MUTED


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
