"""Axes of figures: sizes along x in powers of two, and the ticks that a quantity wants along y."""

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from collbench.figures.views import Quantity
from collbench.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
