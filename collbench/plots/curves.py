"""Figures by message size, with a panel for each topology or one for all.

The files are `bandwidth.png` and `latency.png`.  Prefixes distinguish several: `allreduce-latency.png` for several
collectives, `allreduce-half-in-place-latency.png` for several dtypes and in-place operations, `overlay-latency.png` if
all topologies share a panel.  `figures` yields the figures, and kinds.draw writes them.  views.py has the y axes.
"""

import math
import textwrap
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np

from collbench.analysis.crossover import rivals, unsure_rivals, winners
from collbench.plots.axes import Artist, heading, panel_grid, place_legend, size_axis, value_axis, wrapped
from collbench.plots.kinds import PLAIN, Kind, Named, PlotRequest, Say
from collbench.plots.panels import (
    Combination,
    Drawn,
    Panel,
    PlotLine,
    coloured,
    one_topology,
    only,
    only_marks,
    overlaid,
    panels,
    told_apart,
)
from collbench.plots.views import VIEWS, Limit, View, chosen, limit
from collbench.present.figures import GREY, MUTED, Axes, Figure, Look, Style, letters_of, looks, new_figure, style
from collbench.results import Measurement, Prediction, Reported
from collbench.runfile.store import Run

_NEUTRAL = "#505050"  # of lines in the legend if colours are topologies
_WIDTH = 21  # letters in a line of the legend
_WIDEST = 2.0  # factor from a point to the most distant end of its measured band


class PanelCurves(NamedTuple):
    """The drawing of one panel in one view."""

    panel: Panel
    view: View
    lines: dict[PlotLine, list[Drawn]]  # by size, with a value or, where the line breaks, with NaN
    bound: Limit | None

    def value(self, result: Drawn) -> float:
        """Return the value of a point."""
        return self.view.middle(self.panel, result)

    def sure(self, result: Drawn) -> float:
        """Return the value of a point that its line passes; NaN for an uncertain time."""
        return math.nan if result.unsure else self.value(result)


Cell = list[PanelCurves]
"""Curves on the same axes: one panel, or several in an overlay."""


def figures(runs: Sequence[Run], request: PlotRequest = PLAIN, say: Say = lambda reason: None) -> Named:
    """Yield each figure with its name; `say` gets a reason for each panel that a view leaves out."""
    rows = panels(runs, request.machine)
    if request.implementations:
        rows = {combination: only(row, request.implementations) for combination, row in rows.items()}
        rows = {combination: row for combination, row in rows.items() if row}
    rows = told_apart(rows, say)
    known = _looks(line for row in rows.values() for panel in row for line, _ in panel.points)
    say_once = cache(say)
    for combination, row in rows.items():
        for name, figure in _of_row(combination, row, known, request, say_once):
            yield "-".join([*_distinction(combination, rows), name]), figure


def _of_row(
    combination: Combination, row: list[Panel], known: dict[PlotLine, Look], request: PlotRequest, say: Say
) -> Named:
    if request.overlay:
        sharing, chosen_looks = [overlaid(row)], known
    else:
        sharing, chosen_looks = [[panel] for panel in row], _muted(known, row, request.coloured)
    for view in chosen(request.views):
        for panel in row:
            if lacking := view.lacking(panel):
                say(f"{view.name} not drawn for {panel.place}: {lacking}")
        cells = []
        for shared in sharing:
            if cell := [_curves(panel, view) for panel in shared if not view.lacking(panel)]:
                cells.append(cell)
        if cells:
            # With one topology, the companion view is at the right, if it can be drawn.
            other = next((other for other in VIEWS if other.name == view.companion), None)
            alone = request.style.companion and len(cells) == 1 and not request.overlay
            if other and alone and not other.lacking(cells[0][0].panel):
                cells.append([_curves(cells[0][0].panel, other)])
            name = f"overlay-{view.name}" if request.overlay else view.name
            yield name, _figure(combination, cells, chosen_looks, request.style)


def _curves(panel: Panel, view: View) -> PanelCurves:
    lines: dict[PlotLine, list[Drawn]] = {}
    unsure = {row.case.nbytes for row in panel.libraries if row.unsure}
    for (line, size), result in sorted(panel.points.items()):
        if math.isfinite(view.middle(panel, result)) or result.unsure or size in unsure:
            lines.setdefault(line, []).append(result)
    known = {line: rows for line, rows in lines.items() if any(math.isfinite(view.middle(panel, row)) for row in rows)}
    return PanelCurves(panel, view, known, limit(panel, view))


def _looks(lines: Iterable[PlotLine]) -> dict[PlotLine, Look]:
    """Return a look for each line; a prediction is a variant of its implementation's look.

    The first of several libraries has the implementation's own look, the others have the looks that clash least.
    """
    distinct = sorted(set(lines))
    first = {line.implementation: line.library for line in reversed(distinct) if line.library}
    names = {}
    for line in distinct:
        usual = line.library in ("", first.get(line.implementation))
        names[line] = line.implementation if usual else line.label
    chosen_looks = looks(names.values())
    order = list(chosen_looks)
    distinct.sort(key=lambda line: (order.index(names[line]), line.predicted))
    by_line = {}
    for line in distinct:
        look = chosen_looks[names[line]]
        by_line[line] = look.predicted if line.predicted else look
    return by_line


def _muted(known: dict[PlotLine, Look], row: Sequence[Panel], most: int) -> dict[PlotLine, Look]:
    """Return the looks in one figure: all but `most` lines are grey, and lines on others become marks."""
    with_colour, drawn = coloured(row, most), {line for panel in row for line, _ in panel.points}
    shown = {}
    for line, own_look in known.items():
        if line in drawn:
            look = own_look if line in with_colour else own_look.muted
            shown[line] = look.marks if only_marks(row, line) else look
    return shown


def _distinction(combination: Combination, drawn: Collection[Combination]) -> list[str]:
    """Return the parts of a combination that distinguish it from the other drawn ones."""
    others = [combination._replace(collective=other.collective) for other in drawn]
    others += [other for other in drawn if other.collective == combination.collective]
    varied = (len(set(values)) > 1 for values in zip(*others, strict=True))
    return [part for part, varies in zip(combination, varied, strict=True) if varies and part]


def _figure(combination: Combination, cells: Sequence[Cell], known: dict[PlotLine, Look], plot_style: Style) -> Figure:
    columns = len(cells) if len(cells) <= 3 else math.ceil(math.sqrt(len(cells)))
    rows = math.ceil(len(cells) / columns)
    every = [curves for cell in cells for curves in cell]

    # The plot style must hold from here on, since texts are measured while they are placed.
    with style(plot_style):
        size = plot_style.width(columns), plot_style.row_height * rows
        figure = new_figure(*size, dpi=plot_style.dpi)

        # The legend comes first, and leaves its room to the panels.
        room = place_legend(figure, _legend_entries(every, known, plot_style), plot_style)
        shared = all(cell[0].view == cells[0][0].view for cell in cells)
        grid = panel_grid(figure, len(cells), columns, sharex=True, sharey=shared)
        letters = plot_style.letters(room, columns, shared)
        several_bounds = len([curves for curves in every if curves.bound]) > 1  # the legend has a single value
        for axes, cell in zip(grid, cells, strict=True):
            for curves in cell:
                _draw(axes, curves, known, several_bounds, plot_style)
            _follow_medians(axes, cell)
            if (level := cell[0].view.level) is not None:
                axes.axhline(level, color="#808080", linewidth=plot_style.lines, zorder=1)
            axes.set_title(_title(cell, cells, letters))
        sizes = [size for curves in every for _, size in curves.panel.points]
        for number, axes in enumerate(grid):  # now that shared limits are known
            value_axis(axes, cells[number][0].view, plot_style.value_ticks)
            size_axis(axes, sizes, plot_style.size_ticks[min(columns, 3) - 1])
            if number + columns >= len(cells):  # the lowest panel of each column
                axes.set_xlabel("message size")
                axes.tick_params(labelbottom=True)
            _mark_outside(axes)
        _value_labels(figure, cells, columns, plot_style)
        if plot_style.title:
            heading(figure, _heading(combination, every, letters_of(room, plot_style.title)))
    return figure


def _heading(combination: Combination, every: Sequence[PanelCurves], width: int) -> str:
    """Return the title: quantity, collective and, if known, the fastest implementation."""
    view, panel = every[0].view, every[0].panel
    predicted = all(curves.panel.predicted for curves in every)
    what = f"{'predicted ' * predicted}{view.heading or view.label([panel])}".capitalize()
    words = [f"{what} of {combination.collective} ({', '.join(filter(None, combination[1:]))})"]
    if all(curves.panel is panel for curves in every) and (winner := fastest(panel)):
        words += [winner] if len(winner) <= width else winner.replace(", ", ",\n").split("\n")
    return "\n".join(wrapped(line, width) for line in words)


def fastest(panel: Panel) -> str:
    """Return at most two certainly fastest implementations with their sizes; empty if none is certain."""
    compared = rivals(row for row in panel.results if not isinstance(row, Prediction))
    if len({row.implementation for row in compared}) < 2:
        return ""
    ((_, ranges),) = winners(compared, unsure_rivals(panel.results))
    sure = [span for span in ranges if len(span.names) == 1]
    longest = sorted(sure, key=lambda span: span.first / span.last)[:2]
    return f"fastest: {', '.join(map(str, sorted(longest)))}" if longest else ""


def _draw(axes: Axes, curves: PanelCurves, known: dict[PlotLine, Look], write_bound: bool, plot_style: Style) -> None:
    """Draw lines with their bands, and the bound; grey lines are behind the others, marks in front."""
    panel, view, lines, bound = curves
    for line in (line for line in known if line in lines):
        look = known[line]._replace(color=panel.color or known[line].color)
        sizes = [result.case.nbytes for result in lines[line]]
        for unbroken, neighbours in groupby(lines[line], lambda result: math.isfinite(curves.sure(result))):
            if unbroken and _has_band(look):
                _draw_band(axes, curves, list(neighbours), look, plot_style)

        front = 2.0 if look.linestyle else 2.1
        if look.color == MUTED:
            front = 1.9
        middle = [curves.sure(result) for result in lines[line]]
        axes.plot(sizes, middle, label=_name(line, panel.predicted), zorder=front, **plot_style.drawn(look))
        if unsure := [result for result in lines[line] if result.unsure]:
            hollow = look._replace(linestyle="", markerfacecolor="white" if look.linestyle else "none")
            sizes, middle = [row.case.nbytes for row in unsure], [curves.value(row) for row in unsure]
            axes.plot(sizes, middle, zorder=front, gid="unsure", **plot_style.drawn(hollow))
    if bound:
        words = view.tick(bound.last) if write_bound and not panel.color else ""
        _draw_bound(axes, bound, words, panel.color or GREY, plot_style)


def _draw_band(axes: Axes, curves: PanelCurves, results: Sequence[Drawn], look: Look, plot_style: Style) -> None:
    """Draw the band of neighbouring points; an arrow marks a measured end that is cut off."""
    sizes, middle = [result.case.nbytes for result in results], np.array([curves.value(row) for row in results])
    ends = np.sort([curves.view.band(curves.panel, result) for result in results]).T
    (low, high), opacity = np.clip(ends, middle / _WIDEST, middle * _WIDEST), 0.2
    if results[0].predicted:  # wide bands of many predictions must not hide the lines
        (low, high), opacity = ends, 0.4 / (3 + len({line for line, _ in curves.panel.points if line.predicted}))
    if len(sizes) > 1:
        axes.fill_between(sizes, low, high, color=look.color, alpha=opacity, linewidth=0)
    else:  # a band of one point has no area
        axes.vlines(sizes, low, high, color=look.color, alpha=0.4, linewidth=4 * plot_style.lines)
    for marker, shown, cut in (("v", low, ends[0] < low), ("^", high, ends[1] > high)):
        if cut.any():
            axes.plot(np.array(sizes)[cut], shown[cut], marker, color=look.color, markersize=4, gid="cut")


def _follow_medians(axes: Axes, cell: Cell) -> None:
    """Fit the y axis to lines, bounds and predictions: measured bands and uncertain times may be far away."""
    values = []
    for curves in cell:
        for row in chain.from_iterable(curves.lines.values()):
            values += [curves.sure(row), *(curves.view.band(curves.panel, row) if row.predicted else ())]
        values += curves.bound.values.values() if curves.bound else ()
    if known := [value for value in values if math.isfinite(value)]:
        axes.dataLim.intervaly = min(known), max(known)


def _mark_outside(axes: Axes) -> None:
    """Mark uncertain times outside of the axis with an arrow at its edge."""
    low, high = axes.set_ylim(axes.get_ylim())
    for line in [line for line in axes.lines if line.get_gid() == "unsure"]:
        sizes, values = map(np.asarray, line.get_data())
        for marker, edge, outside in (("v", low, values < low), ("^", high, values > high)):
            if outside.any():
                edges, color = [edge] * outside.sum(), line.get_color()
                axes.plot(sizes[outside], edges, marker, color=color, mfc="white", clip_on=False, gid="outside")


def _name(line: PlotLine, everything_predicted: bool) -> str:
    return f"{line.label}, predicted" if line.predicted and not everything_predicted else line.label


def _has_band(look: Look) -> bool:
    """Return whether a line has a band: not if it is grey, where a band would hide others, or marks."""
    return bool(look.linestyle) and look.color != MUTED


def _draw_bound(axes: Axes, bound: Limit, words: str, color: str, plot_style: Style) -> None:
    """Draw a dotted line, with a dash at each measured size.

    A fainter line extends a measured rate over all sizes; messages in caches may exceed it.  The text is where no curve
    is: small messages have low rates, and times rise from the left.
    """
    from matplotlib.patheffects import withStroke

    dashes: dict[str, Any] = {"marker": "_", "markersize": 12} if bound.measured else {}
    sizes, values = [*bound.values], [*bound.values.values()]
    axes.plot(sizes, values, color=color, linestyle=":", linewidth=1.5, zorder=1, gid="bound", **dashes)
    if bound.measured and bound.is_rate:
        axes.axhline(bound.last, color=color, linestyle=":", linewidth=1, alpha=0.7, zorder=1, gid="bound-level")
    halo = [withStroke(linewidth=2, foreground="white")]
    look: dict[str, Any] = {"color": color, "fontsize": plot_style.font - 1, "path_effects": halo, "zorder": 4}
    if words and bound.is_rate:
        place = (0.01, bound.last)
        axes.annotate(words, place, (0, 2), ("axes fraction", "data"), "offset points", gid="bound-name", **look)
    elif words:
        axes.text(0.99, 0.03, words, transform=axes.transAxes, ha="right", va="bottom", gid="bound-name", **look)


def _value_labels(figure: Figure, cells: Sequence[Cell], columns: int, plot_style: Style) -> None:
    """Name each y axis unless its left neighbour has the same name; use one name if panels are too low for it."""
    labels = []
    for cell in cells:
        row = [curves.panel for curves in cell]
        # Without a title, the axis says that values are predicted.
        predicted = not plot_style.title and all(panel.predicted for panel in row)
        labels.append(f"{'predicted ' * predicted}{cell[0].view.label(row)}")
    rows = math.ceil(len(labels) / columns)
    room = 0.6 * plot_style.row_height
    if rows > 1 and len(set(labels)) == 1 and len(labels[0]) > letters_of(room, plot_style.labels):
        figure.supylabel(labels[0], fontsize=plot_style.labels)
        return
    for number, (axes, words) in enumerate(zip(figure.axes, labels, strict=False)):
        if number % columns == 0 or words != labels[number - 1]:
            axes.set_ylabel(words)


def _title(cell: Cell, cells: Sequence[Cell], width: int) -> str:
    """Return a panel's title: topology and remarks; empty for the companion view."""
    first, view = cell[0].panel, cell[0].view
    if view != cells[0][0].view:
        return ""
    name = first.place
    if first.name:
        name = name if one_topology([curves.panel for curves in cell]) else ""
    elif sum(curves.panel.place == name for other in cells for curves in other if curves.view == view) > 1:
        name += f", {first.origin}"
    remarks = {}
    for panel, *_ in cell:
        remarks[panel.name] = "; ".join(filter(None, [*panel.remarks, view.remark(panel)]))
    if len(set(remarks.values())) == 1:
        lines = [name, *remarks.values()][:2]
    else:
        lines = [name, *(f"{topology}: {words}" for topology, words in remarks.items() if words)]
    return "\n".join(textwrap.fill(line, width) for line in lines if line)


def _legend_entries(every: Sequence[PanelCurves], known: dict[PlotLine, Look], plot_style: Style) -> list[Artist]:
    """Return the entries of the legend: topologies (by colour), implementations, bounds and bands."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    everything_predicted = all(curves.panel.predicted for curves in every)
    entries: list[Artist] = []
    for panel in (curves.panel for curves in every if curves.panel.color):
        entries.append(Patch(color=panel.color, linewidth=0, label=textwrap.fill(panel.name, _WIDTH)))
    for line in _ordered([curves for curves in every if curves.view == every[0].view], known):
        look = known[line]._replace(color=_NEUTRAL) if every[0].panel.color else known[line]
        entries.append(Line2D([], [], label=_name(line, everything_predicted), **plot_style.drawn(look)))

    # The legend has the value of a single bound; with several, each panel has its own.
    bounded = [curves for curves in every if curves.bound]
    words = {}
    for curves in bounded:
        assert curves.bound
        name = curves.bound.name if curves.panel.color else curves.bound.legend
        words[name] = f": {curves.view.tick(curves.bound.last)}" if len(bounded) == 1 else ""
    for name, value in words.items():
        label = textwrap.fill(f"{name}{value}", _WIDTH)
        entries.append(Line2D([], [], color=GREY, linestyle=":", linewidth=1.5, label=label))
    drawn = [(curves, row) for curves in every for rows in curves.lines.values() for row in rows]
    if any(row.unsure and math.isfinite(curves.value(row)) for curves, row in drawn):
        hollow: dict[str, Any] = {"color": _NEUTRAL, "marker": "o", "linestyle": "", "markerfacecolor": "white"}
        entries.append(Line2D([], [], label=textwrap.fill("hollow: disturbed or uncertain", _WIDTH), **hollow))
    for predicted, alpha in ((False, 0.3), (True, 0.15)):
        if label := _band_name(every, known, predicted):
            entries.append(Patch(color="#808080", alpha=alpha, linewidth=0, label=label))
    return entries


def _ordered(every: Sequence[PanelCurves], known: dict[PlotLine, Look]) -> list[PlotLine]:
    """Return the drawn lines in the order of their right ends, the topmost first, then grey lines, then marks."""
    ends: dict[PlotLine, list[tuple[int, float]]] = {}
    for curves in every:
        for line, results in curves.lines.items():
            *_, last = [row for row in results if math.isfinite(curves.sure(row))] or results
            ends.setdefault(line, []).append((last.case.nbytes, curves.value(last)))
    largest = max((size for places in ends.values() for size, _ in places), default=0)

    def place(line: PlotLine) -> tuple[bool, bool, bool, float]:
        sizes, values = zip(*ends[line], strict=True)
        height = math.fsum(math.log(max(value, 1e-300)) for value in values) / len(values)
        return not known[line].linestyle, known[line].color == MUTED, max(sizes) < largest, -height

    return sorted((line for line in known if line in ends), key=place)


def _band_name(every: Sequence[PanelCurves], known: dict[PlotLine, Look], predicted: bool) -> str:
    names = []
    for panel, view, lines, _ in every:
        results: list[Drawn] = []
        for line, rows in lines.items():
            if line.predicted == predicted and _has_band(known[line]):
                results += rows
        repeated = any(isinstance(result, Reported) and result.rounds for result in results)
        if any(math.isfinite(view.band(panel, result)[1]) for result in results):
            names.append("nine in ten, predicted" if predicted else "all rounds" if repeated else view.interval)
    if len(set(names)) > 1:
        return f"{names[0]} (right: {names[-1].removesuffix(' interval')})"
    return names[0] if names else ""


KINDS = {
    "curves": Kind(
        order=10,
        rows=(Measurement, Reported, Prediction),
        needs="times of messages that are larger than 0 bytes",
        figures=figures,
        styled=True,
    )
}
