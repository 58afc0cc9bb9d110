"""Figures of run files, measured or predicted, against message size: one panel a topology, or all in one.

The files are `bandwidth.png` and `latency.png`, after what tells several apart: `allreduce-latency.png` where
there are several collectives, `allreduce-half-in-place-latency.png` where that one was measured with several
dtypes and also in place, `overlay-latency.png` where all topologies share a panel.  `figures`
yields them, kinds.draw writes them.

Matplotlib is imported at the first figure.  Another figure of the same panels is a row in views.QUANTITIES, another
look of all a row in styles.STYLES.
"""

import math
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from collbench.figures.axes import (
    legend_entries,
    line_name,
    measured_bound,
    place_legend,
    results_of,
    size_axis,
    value_axis,
    wrapped,
)
from collbench.figures.kinds import PLAIN, Kind, Named, Say, Wanted
from collbench.figures.overlay import Layer, alone, overlaid, place
from collbench.figures.panels import Combination, Line, Panel, only, panels, told_apart
from collbench.figures.styles import Look, Style, letters_of, looks, style
from collbench.figures.views import Quantity, chosen
from collbench.measurement import Measurement, Prediction, Reported
from collbench.runs.file import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell = tuple[Layer, ...]
"""What shares its axes: one layer, or several in an overlay."""


def figures(
    runs: Sequence[Run],
    wanted: Wanted = PLAIN,
    say: Say = lambda reason: None,
) -> Named:
    """Each figure; `say` is told of each panel that a view has to leave out, and why."""
    views = chosen(wanted.views)
    rows = panels(runs, wanted.apart, wanted.machine)
    if wanted.implementations:
        rows = {combination: only(row, wanted.implementations) for combination, row in rows.items()}
        rows = {combination: row for combination, row in rows.items() if row}
    rows = told_apart(rows, say)
    known = _looks(line for row in rows.values() for panel in row for line, _ in panel.points)
    said: set[str] = set()
    for combination, row in rows.items():
        cells: list[Cell] = [overlaid(row)] if wanted.overlay else [(Layer(panel),) for panel in row]
        for quantity in views:
            drawable = [kept for cell in cells if (kept := _drawable(cell, quantity, said, say))]
            if drawable:
                stem = [*_distinction(combination, rows), *(["overlay"] if wanted.overlay else []), quantity.name]
                yield "-".join(stem), _figure(combination, drawable, quantity, known, wanted.style)


def _drawable(cell: Cell, quantity: Quantity, said: set[str], say: Say) -> Cell:
    """The layers that the view can be drawn of; each reason against one is said once."""
    for panel in (layer.panel for layer in cell):
        reason = f"{quantity.name} not drawn for {place(panel)}: {quantity.lacking(panel)}"
        if quantity.lacking(panel) and reason not in said:
            said.add(reason)
            say(reason)
    return tuple(layer for layer in cell if not quantity.lacking(layer.panel))


def _looks(lines: Iterable[Line]) -> dict[Line, Look]:
    """A look for each line: those of one implementation differ only in being predicted or not, or in their library.

    Of several libraries the first has the implementation's own look, and the others one that clashes little.
    """
    wanted = sorted(set(lines))
    first = {line.implementation: line.library for line in reversed(wanted) if line.library}
    names = {
        line: line.implementation if line.library in ("", first.get(line.implementation)) else line.label
        for line in wanted
    }
    chosen = looks(names.values())
    order = list(chosen)
    wanted.sort(key=lambda line: (order.index(names[line]), line.predicted))
    return {line: chosen[names[line]].predicted if line.predicted else chosen[names[line]] for line in wanted}


def _distinction(combination: Combination, drawn: Collection[Combination]) -> list[str]:
    """The parts of a combination that tell it from the others that are drawn."""
    others = [combination._replace(collective=other.collective) for other in drawn]
    others += [other for other in drawn if other.collective == combination.collective]
    varied = (len(set(values)) > 1 for values in zip(*others, strict=True))
    return [part for part, varies in zip(combination, varied, strict=True) if varies and part]


def _figure(
    combination: Combination, cells: list[Cell], quantity: Quantity, known: dict[Line, Look], of_style: Style
) -> "Figure":
    columns = len(cells) if len(cells) <= 3 else math.ceil(math.sqrt(len(cells)))
    rows = math.ceil(len(cells) / columns)
    layers = [layer for cell in cells for layer in cell]
    with style(of_style):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(of_style.width(columns), of_style.height(rows)), layout="constrained")
        room = place_legend(figure, legend_entries(layers, quantity, known, of_style), of_style)
        shared = _comparable(cells, quantity)
        grid = figure.subplots(rows, columns, sharex=True, sharey=shared, squeeze=False)
        letters = of_style.letters(room, columns, shared)
        for axes, cell in zip(grid.flat, cells, strict=False):
            _panel(axes, cell, quantity, known, of_style)
            axes.set_title(_title(cell, layers, quantity, letters))
        for number, axes in enumerate(grid.flat[: len(cells)]):  # now that shared limits are known
            _finish(axes, cells, number, columns, quantity, of_style)
        _value_labels(figure, [_label(cell, quantity, of_style) for cell in cells], columns, of_style)
        for unused in grid.flat[len(cells) :]:
            unused.remove()
        if of_style.title:
            heading = _heading(combination, layers, quantity)
            figure.suptitle(wrapped(heading, letters_of(room, of_style.title)), x=0.01, ha="left")
    return figure


def _panel(axes: "Axes", cell: Cell, quantity: Quantity, known: dict[Line, Look], of_style: Style) -> None:
    for layer in cell:
        _lines(axes, layer, quantity, known, of_style)
        measured_bound(axes, layer.panel, quantity)
    if quantity.level is not None:
        axes.axhline(quantity.level, color="#808080", linewidth=of_style.lines, zorder=1)


def _finish(axes: "Axes", cells: list[Cell], number: int, columns: int, quantity: Quantity, of_style: Style) -> None:
    """Ticks, and what x is in the lowest of each column."""
    value_axis(axes, quantity, of_style.marks)
    sizes = [size for cell in cells for layer in cell for _, size in layer.panel.points]
    size_axis(axes, sizes, of_style.ticks(columns))
    if number + columns >= len(cells):
        axes.set_xlabel("message size")
        axes.tick_params(labelbottom=True)


def _value_labels(figure: "Figure", labels: list[str], columns: int, of_style: Style) -> None:
    """Along each axis, unless its neighbour has the same; along all where one alone would be too short for it."""
    rows = math.ceil(len(labels) / columns)
    room = 0.6 * of_style.height(rows) / rows
    if rows > 1 and len(set(labels)) == 1 and len(labels[0]) > letters_of(room, of_style.labels):
        figure.supylabel(labels[0], fontsize=of_style.labels)
        return
    for number, (axes, label) in enumerate(zip(figure.axes, labels, strict=False)):
        if number % columns == 0 or label != labels[number - 1]:
            axes.set_ylabel(label)


def _label(cell: Cell, quantity: Quantity, of_style: Style) -> str:
    """Of the y axis; it also says what is only predicted, where no title does."""
    row = [layer.panel for layer in cell]
    words = quantity.label(row)
    return f"predicted {words}" if not of_style.title and all(panel.predicted for panel in row) else words


def _heading(combination: Combination, layers: list[Layer], quantity: Quantity) -> str:
    details = ", ".join(filter(None, combination[1:]))
    predicted = all(layer.panel.predicted for layer in layers)
    name = f"predicted {quantity.heading}" if predicted else quantity.heading
    return f"{name.capitalize()} of {combination.collective} ({details})"


def _comparable(cells: list[Cell], quantity: Quantity) -> bool:
    """Whether one y axis suits all panels; a linear one would lay much slower topologies on the ground."""
    if quantity.scale == "log" or quantity.level is not None:
        return True
    peaks = [
        max(quantity.middle(layer.panel, result) for layer in cell for result in layer.panel.results) for cell in cells
    ]
    return max(peaks) < 4 * min(peaks)


def _lines(axes: "Axes", layer: Layer, quantity: Quantity, known: dict[Line, Look], of_style: Style) -> None:
    panel, shown = layer.panel, results_of(layer, quantity)
    for line in (line for line in known if line in shown):
        look = layer.look(known[line])
        sizes = [result.case.nbytes for result in shown[line]]
        middle = [quantity.middle(panel, result) for result in shown[line]]
        low, high = zip(*(quantity.between(panel, result) for result in shown[line]), strict=True)
        if len(sizes) > 1:
            axes.fill_between(sizes, low, high, color=look.color, alpha=_opacity(panel, line), linewidth=0)
        else:  # a band of one point has no area
            axes.vlines(sizes, low, high, color=look.color, alpha=0.4, linewidth=4 * of_style.lines)
        axes.plot(sizes, middle, label=line_name(line, panel.predicted), **of_style.drawn(look))


def _opacity(panel: Panel, line: Line) -> float:
    """Of a band: those of predictions are wide; many of them must leave the lines to be seen, and what was measured."""
    return 0.4 / (3 + len({other for other, _ in panel.points if other.predicted})) if line.predicted else 0.2


def _title(cell: Cell, layers: list[Layer], quantity: Quantity, width: int) -> str:
    """The topology, and what the reader must know; in an overlay of which topology, unless it is all."""
    first = cell[0].panel
    name = place(first)
    if cell[0].name:
        name = name if alone([layer.panel for layer in cell]) else ""
    elif sum(place(layer.panel) == name for layer in layers) > 1:
        name += f", {first.origin}"
    remarks = [[*layer.panel.remarks, *filter(None, [quantity.remark(layer.panel)])] for layer in cell]
    if all(remark == remarks[0] for remark in remarks):
        told = ["; ".join(remarks[0])]
    else:
        told = [f"{layer.name}: {'; '.join(words)}" for layer, words in zip(cell, remarks, strict=True) if words]
    return "\n".join(textwrap.fill(line, width) for line in (name, *told) if line)


KIND = Kind(
    order=10,
    rows=(Measurement, Reported, Prediction),
    needs="times of messages that are larger than 0 bytes",
    figures=figures,
    styled=True,
)
