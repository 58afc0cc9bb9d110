"""The lines of one panel against message size: values with bands, marks where one picked another, names at the ends."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from collbench.plots import limits
from collbench.plots.axes import has_band, line_name, results_of
from collbench.plots.ends import End
from collbench.plots.overlay import Layer
from collbench.plots.panels import Line, Panel
from collbench.plots.styles import MUTED, Look, Style
from collbench.plots.views import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MUTED_TEXT = "#8C8C8C"  # of a label: what is thin must be darker to be read


def lines(axes: "Axes", layer: Layer, quantity: Quantity, known: Mapping[Line, Look], style: Style) -> None:
    """Draw them in the order of `known`, those in grey behind and marks in front."""
    panel, shown = layer.panel, results_of(layer, quantity)
    for line in (line for line in known if line in shown):
        look = layer.look(known[line])
        sizes = [result.case.nbytes for result in shown[line]]
        middle = [quantity.middle(panel, result) for result in shown[line]]
        if has_band(look):
            low, high = zip(*(quantity.between(panel, result) for result in shown[line]), strict=True)
            if len(sizes) > 1:
                axes.fill_between(sizes, low, high, color=look.color, alpha=_opacity(panel, line), linewidth=0)
            else:  # a band of one point has no area
                axes.vlines(sizes, low, high, color=look.color, alpha=0.4, linewidth=4 * style.lines)
        place = 1.9 if look.color == MUTED else 2.0 if look.linestyle else 2.1
        axes.plot(sizes, middle, label=line_name(line, panel.predicted), zorder=place, **style.drawn(look))


def _opacity(panel: Panel, line: Line) -> float:
    """Of a band: those of predictions are wide; many of them must leave the lines to be seen, and what was measured."""
    return 0.4 / (3 + len({other for other, _ in panel.points if other.predicted})) if line.predicted else 0.2


def ends(layer: Layer, quantity: Quantity, known: Mapping[Line, Look]) -> list[End]:
    """Where lines end, and the bound, and their names; what is predicted goes without where the same was measured."""
    shown = results_of(layer, quantity)
    found = []
    for line in (line for line in known if line in shown and known[line].linestyle):
        if line.predicted and line._replace(predicted=False) in shown:
            continue
        last, look = shown[line][-1], known[line]
        twins = [other for other in shown if other.implementation == line.implementation and other.library]
        name = line.label if len({other.library for other in twins}) > 1 else line.implementation
        muted = look.color == MUTED
        place = (last.case.nbytes, quantity.middle(layer.panel, last))
        found.append(End(name, place, _MUTED_TEXT if muted else look.color, not muted))
    bound = limits.limit(layer.panel, quantity)
    return [*(found if len(found) > 1 else []), *([limits.end(bound, quantity)] if bound else [])]
