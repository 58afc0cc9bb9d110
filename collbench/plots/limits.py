"""What no implementation can pass, as lines that say what they are: memory as measured, or what a line rate allows."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from collbench.analysis.roofline import LinkRoofline
from collbench.plots.ends import End
from collbench.plots.panels import Panel
from collbench.plots.views import Quantity
from collbench.results import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

GREY = "#606060"
_WIDTH = 21  # letters in a line of the legend
_SHORTEST = 0.3  # of the least time in a panel: a shorter bound, of bytes that nobody waits for, says nothing


class Limit(NamedTuple):
    """A bound in the units of a view."""

    name: str
    means: str  # the same for the legend
    values: Mapping[int, float]  # by size, in rising order
    rates: bool  # whether y is a rate, so that the bound is above
    measured: bool  # at its sizes alone

    @property
    def end(self) -> tuple[int, float]:
        """At the largest size that has it."""
        return list(self.values.items())[-1]


def limit(panel: Panel, quantity: Quantity) -> Limit | None:
    """What bounds the panel; None where nothing is known, or the view does not show it.

    Of memory it is what the rows carry: how long a copy of the fewest bytes took that must go through it, taken in turn
    with the row's own samples.  Else it is what the line rate of a data sheet allows, in
    the view's units: a bus bandwidth above that rate where switches add, since it counts the bytes of a ring.
    """
    if not quantity.bounded:
        return None
    one = panel.results[0]
    rates = quantity.value(panel, one, 2.0) < quantity.value(panel, one, 1.0)
    return _memory(panel, quantity, rates) or _line_rate(panel, quantity, rates)


def _memory(panel: Panel, quantity: Quantity, rates: bool) -> Limit | None:
    known: dict[int, float] = {}
    for result in sorted(panel.results, key=lambda result: result.case.nbytes):
        if isinstance(result, Measurement) and result.floor:
            known[result.case.nbytes] = quantity.value(panel, result, result.floor)
    return Limit("memory copy", "memory copy, in the same run", known, rates, True) if known else None


def _line_rate(panel: Panel, quantity: Quantity, rates: bool) -> Limit | None:
    bound = panel.bound
    if not isinstance(bound, LinkRoofline):
        return None
    least = _SHORTEST * min(result.typical for result in panel.results)
    by_size = {result.case.nbytes: result for result in panel.results}
    known = {
        size: quantity.value(panel, by_size[size], bound.seconds(size))
        for size in sorted(by_size)
        if rates or bound.seconds(size) >= least
    }
    means = f"bound by {bound.where} (line rate {bound.line / 1e9:.4g} GB/s)"
    return Limit("bound", means, known, rates, False) if known else None


def draw(axes: "Axes", bound: Limit, color: str = GREY) -> None:
    """A dotted line, with a dash at each size that was measured.

    Where y is a rate that one goes on, fainter, across all other sizes: what stays in caches may pass it.
    """
    dashes: dict[str, Any] = {"marker": "_", "markersize": 12} if bound.measured else {}
    values = [*bound.values.values()]
    axes.plot([*bound.values], values, color=color, linestyle=":", linewidth=1.5, zorder=1, gid="bound", **dashes)
    if bound.measured and bound.rates:
        axes.axhline(bound.end[1], color=color, linestyle=":", linewidth=1, alpha=0.7, zorder=1, gid="bound-level")


def end(bound: Limit, quantity: Quantity) -> End:
    """Its name beside the ends of lines."""
    return End(f"{bound.name}: {quantity.tick(bound.end[1])}", bound.end, GREY, True)


def write(axes: "Axes", bound: Limit, quantity: Quantity, font: float) -> None:
    """Its name in the panel, where no curve is: small messages have low rates, and times rise from the left."""
    from matplotlib.patheffects import withStroke

    words, rate = f"{bound.name}: {quantity.tick(bound.end[1])}", bound.end[1]
    halo = [withStroke(linewidth=2, foreground="white")]
    look: dict[str, Any] = {"color": GREY, "fontsize": font, "gid": "bound-name", "path_effects": halo, "zorder": 4}
    if bound.rates:
        axes.annotate(words, (0.01, rate), (0, 2), ("axes fraction", "data"), "offset points", **look)
    else:
        axes.text(0.99, 0.03, words, transform=axes.transAxes, ha="right", va="bottom", **look)


def explained(words: str) -> "Line2D":
    """An entry of the legend for a bound that is called so."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=GREY, linestyle=":", linewidth=1.5, label=textwrap.fill(words, _WIDTH))
