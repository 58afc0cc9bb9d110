"""Parts of figures: heading, panels, axes and legend.

`Axes` and `Figure` of present/figures.py stand for Matplotlib's types, so that figures import without Matplotlib.
"""

import math
import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from collbench.plots.views import View
from collbench.present.figures import Axes, Figure, Style
from collbench.units import format_seconds, format_size

if TYPE_CHECKING:
    import matplotlib.artist

Artist: TypeAlias = "matplotlib.artist.Artist"


def heading(figure: Figure, words: str, **font: Any) -> None:
    """Set the title of a figure at its left."""
    figure.suptitle(words, x=0.01, ha="left", **font)


def panel_grid(figure: Figure, count: int, columns: int, **shared: Any) -> list[Axes]:
    """Return `count` panels, row by row."""
    grid = figure.subplots(math.ceil(count / columns), columns, squeeze=False, **shared)
    for unused in grid.flat[count:]:
        unused.remove()
    return list(grid.flat[:count])


def value_axis(axes: Axes, view: View, steps: int = 0) -> None:
    """Set up the y axis with at most `steps` steps, unless they are powers of ten; 0 leaves it to Matplotlib."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axes.set_yscale(view.scale)
    low, high = axes.get_ylim()
    if view.scale == "linear":
        axes.set_ylim(bottom=0)
        if steps:
            axes.yaxis.set_major_locator(MaxNLocator(steps, steps=[1, 2, 5, 10]))
    elif high < 10 * low:
        axes.yaxis.set_major_locator(MaxNLocator(steps or 6))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axes.yaxis.set_major_formatter(lambda value, position: view.tick(value))
    axes.yaxis.set_minor_formatter(NullFormatter())


def size_axis(axes: Axes, sizes: Collection[int], most: int) -> None:
    """Set up the x axis over all sizes of a figure, with at most `most` of them named."""
    from matplotlib.ticker import FixedLocator, NullFormatter

    least, largest = min(sizes), max(sizes)
    margin = (largest / least) ** 0.03 if largest > least else 2
    axes.set_xscale("log", base=2)
    axes.set_xlim(least / margin, largest * margin)
    axes.xaxis.set_major_locator(FixedLocator(size_ticks(least, largest, most)))
    axes.xaxis.set_major_formatter(lambda size, position: format_size(size))
    axes.xaxis.set_minor_locator(FixedLocator([2**exponent for exponent in range(largest.bit_length())]))
    axes.xaxis.set_minor_formatter(NullFormatter())


def size_ticks(least: int, largest: int, most: int) -> list[int]:
    """Return at most `most` evenly spaced powers of two between two sizes, or the two sizes if fewer than two fit."""
    first, last = math.ceil(math.log2(least)), math.floor(math.log2(largest))
    if last <= first:
        return sorted({least, largest})
    step = next(step for step in (1, 2, 4, 5, 10, 20) if last // step - (first - 1) // step <= most)
    return [2**exponent for exponent in range(first, last + 1) if exponent % step == 0]


def bars_in_words(predicted: bool) -> str:
    """Return the meaning of bars across points, for the name of an axis."""
    return "bars: nine in ten should be inside" if predicted else "bars: 95 % intervals"


def seconds_tick(seconds: float, position: float | None = None) -> str:
    """Return a tick of a time axis that starts at 0; a formatter for Matplotlib."""
    return format_seconds(seconds) if seconds > 0 else "0"


def place_legend(figure: Figure, handles: Sequence[Artist], style: Style) -> float:
    """Put the legend outside of the panels, and return the inches left next to it.

    A legend below the panels adds its height to the figure.
    """
    options: dict[str, Any] = {"handles": handles, "handlelength": 3.5}

    # A trial in one column measures the width of an entry and the height of all.
    trial = figure.legend(**options)
    box = trial.get_window_extent()
    trial.remove()
    entry, tall = box.width / figure.dpi, box.height / figure.dpi
    width, height = figure.get_size_inches()
    if style.legend_below:
        columns = min(len(handles), max(1, math.floor(width / entry)))
        legend = figure.legend(loc="outside lower center", ncols=columns, **options)
        legend_height = legend.get_window_extent().height / figure.dpi
        figure.set_size_inches(width, height + legend_height)
        return float(width)
    columns = math.ceil(tall / height)
    legend = figure.legend(loc="outside right upper", ncols=columns, **options)
    return float(width - legend.get_window_extent().width / figure.dpi)


def wrapped(heading: str, width: int) -> str:
    """Return a title in lines of at most `width` letters; text in brackets begins a line."""
    if len(heading) <= width:
        return heading
    return "\n".join(textwrap.fill(line, width) for line in heading.replace(" (", "\n(").split("\n"))
