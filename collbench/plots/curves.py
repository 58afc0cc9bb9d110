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
from typing import TYPE_CHECKING, NamedTuple

from collbench.plots import limits, samples
from collbench.plots.axes import legend_entries, place_legend, size_axis, value_axis, wrapped
from collbench.plots.ends import label, settle
from collbench.plots.focus import coloured, markers
from collbench.plots.kinds import PLAIN, Kind, Named, Say, Wanted
from collbench.plots.lines import ends, lines
from collbench.plots.overlay import Layer, alone, overlaid, place
from collbench.plots.panels import Combination, Line, Panel, only, panels, told_apart
from collbench.plots.styles import Look, Style, letters_of, looks, style
from collbench.plots.views import SAMPLES, Quantity, beside, chosen, named
from collbench.results import Measurement, Prediction, Reported
from collbench.runfile.store import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell = tuple[Layer, ...]
"""What shares its axes: one layer, or several in an overlay."""


class Part(NamedTuple):
    """One panel of a figure: what it shows, and of what."""

    cell: Cell
    quantity: Quantity


def figures(
    runs: Sequence[Run],
    wanted: Wanted = PLAIN,
    say: Say = lambda reason: None,
) -> Named:
    """Each figure; `say` is told of each panel that a view has to leave out, and why."""
    rows = panels(runs, wanted.apart, wanted.machine)
    if wanted.implementations:
        rows = {combination: only(row, wanted.implementations) for combination, row in rows.items()}
        rows = {combination: row for combination, row in rows.items() if row}
    rows = told_apart(rows, say)
    known = _looks(line for row in rows.values() for panel in row for line, _ in panel.points)
    said: set[str] = set()

    def once(reason: str) -> None:
        if reason not in said:
            said.add(reason)
            say(reason)

    for combination, row in rows.items():
        for name, figure in _of_row(combination, row, known, wanted, once):
            yield "-".join([*_distinction(combination, rows), name]), figure


def _of_row(combination: Combination, row: list[Panel], known: dict[Line, Look], wanted: Wanted, say: Say) -> Named:
    """The figures of one combination, by what tells them apart."""
    cells: list[Cell] = [overlaid(row)] if wanted.overlay else [(Layer(panel),) for panel in row]
    own = known if wanted.overlay else _focused(known, row, wanted.coloured)
    for quantity in chosen(wanted.views, wanted.linear):
        parts = [Part(kept, quantity) for cell in cells if (kept := _drawable(cell, quantity, say))]
        if parts:
            parts += _beside(parts, wanted.style)
            name = f"overlay-{quantity.name}" if wanted.overlay else quantity.name
            yield name, _figure(combination, parts, own, wanted.style)
    if SAMPLES in named(wanted.views):
        yield from samples.figures(row, known, say)


def _focused(known: dict[Line, Look], row: Sequence[Panel], most: int) -> dict[Line, Look]:
    """Looks in one figure: grey but for a few lines; and marks on the lines that one implementation picked."""
    chosen, drawn = coloured(row, most), {line for panel in row for line, _ in panel.points}
    own = {}
    for line in (line for line in known if line in drawn):
        look = known[line] if line in chosen else known[line].muted
        own[line] = look.marks if markers(row, line) else look
    return own


def _beside(parts: Sequence[Part], of_style: Style) -> list[Part]:
    """The view that stands right of another one of the same topology, where it can be drawn."""
    (cell, _), other = parts[0], beside(parts[0].quantity)
    wanted = of_style.beside and len(parts) == 1 and len(cell) == 1 and not cell[0].name
    return [Part(cell, other)] if wanted and other and not other.lacking(cell[0].panel) else []


def _drawable(cell: Cell, quantity: Quantity, say: Say) -> Cell:
    """The layers that the view can be drawn of; `say` is told why of the others."""
    for panel in (layer.panel for layer in cell):
        if lacking := quantity.lacking(panel):
            say(f"{quantity.name} not drawn for {place(panel)}: {lacking}")
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


def _figure(combination: Combination, parts: list[Part], known: dict[Line, Look], of_style: Style) -> "Figure":
    columns = len(parts) if len(parts) <= 3 else math.ceil(math.sqrt(len(parts)))
    rows = math.ceil(len(parts) / columns)
    layers = [layer for part in parts for layer in part.cell]
    named = columns <= of_style.ends and not any(layer.name for layer in layers)
    width = of_style.width(columns) + (of_style.margin if named else 0)
    with style(of_style):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, of_style.height(rows)), layout="constrained", dpi=of_style.dpi)
        quantities = list(dict.fromkeys(part.quantity for part in parts))
        room = place_legend(figure, legend_entries(layers, quantities, known, of_style), of_style)
        shared = _comparable(parts)
        grid = figure.subplots(rows, columns, sharex=True, sharey=shared, squeeze=False)
        letters = of_style.letters(room, columns, shared)
        for axes, part in zip(grid.flat, parts, strict=False):
            _panel(axes, part, known, len(parts) > 1 and not named, of_style)
            axes.set_title(_title(part, parts, letters))
        for number, axes in enumerate(grid.flat[: len(parts)]):  # now that shared limits are known
            _finish(axes, parts, number, columns, of_style)
        _value_labels(figure, [_label(part, of_style) for part in parts], columns, of_style)
        for unused in grid.flat[len(parts) :]:
            unused.remove()
        if of_style.title:
            heading = _heading(combination, layers, parts[0].quantity)
            figure.suptitle(wrapped(heading, letters_of(room, of_style.title)), x=0.01, ha="left")
        if named:
            _name_ends(figure, parts, known, of_style)
    return figure


def _panel(axes: "Axes", part: Part, known: dict[Line, Look], words: bool, of_style: Style) -> None:
    for layer in part.cell:
        lines(axes, layer, part.quantity, known, of_style)
        if bound := limits.limit(layer.panel, part.quantity):
            limits.draw(axes, bound, layer.color or limits.GREY)
            if words and not layer.color:
                limits.write(axes, bound, part.quantity, of_style.remarks - 1)
    if part.quantity.level is not None:
        axes.axhline(part.quantity.level, color="#808080", linewidth=of_style.lines, zorder=1)


def _name_ends(figure: "Figure", parts: Sequence[Part], known: dict[Line, Look], of_style: Style) -> None:
    """In the panels of the first view: in another one beside it lines end in the same order."""
    shown = [(axes, part) for axes, part in zip(figure.axes, parts, strict=False) if part.quantity == parts[0].quantity]
    made = [(axes, label(axes, ends(part.cell[0], part.quantity, known), of_style.remarks - 1)) for axes, part in shown]
    settle(figure, made)


def _finish(axes: "Axes", parts: list[Part], number: int, columns: int, of_style: Style) -> None:
    """Ticks, and what x is in the lowest of each column."""
    value_axis(axes, parts[number].quantity, of_style.marks)
    sizes = [size for part in parts for layer in part.cell for _, size in layer.panel.points]
    size_axis(axes, sizes, of_style.ticks(columns))
    if number + columns >= len(parts):
        axes.set_xlabel("message size")
        axes.tick_params(labelbottom=True)


def _value_labels(figure: "Figure", labels: list[str], columns: int, of_style: Style) -> None:
    """Along each axis, unless its neighbour has the same; along all where one alone would be too short for it."""
    rows = math.ceil(len(labels) / columns)
    room = 0.6 * of_style.height(rows) / rows
    if rows > 1 and len(set(labels)) == 1 and len(labels[0]) > letters_of(room, of_style.labels):
        figure.supylabel(labels[0], fontsize=of_style.labels)
        return
    for number, (axes, words) in enumerate(zip(figure.axes, labels, strict=False)):
        if number % columns == 0 or words != labels[number - 1]:
            axes.set_ylabel(words)


def _label(part: Part, of_style: Style) -> str:
    """Of the y axis; it also says what is only predicted, where no title does."""
    row = [layer.panel for layer in part.cell]
    words = part.quantity.label(row)
    return f"predicted {words}" if not of_style.title and all(panel.predicted for panel in row) else words


def _heading(combination: Combination, layers: list[Layer], quantity: Quantity) -> str:
    details = ", ".join(filter(None, combination[1:]))
    predicted = all(layer.panel.predicted for layer in layers)
    name = f"predicted {quantity.heading}" if predicted else quantity.heading
    return f"{name.capitalize()} of {combination.collective} ({details})"


def _comparable(parts: list[Part]) -> bool:
    """Whether one y axis suits all panels; a linear one would lay much slower topologies on the ground."""
    quantity = parts[0].quantity
    if any(part.quantity != quantity for part in parts):
        return False
    if quantity.scale == "log" or quantity.level is not None:
        return True
    peaks = [
        max(quantity.middle(layer.panel, result) for layer in part.cell for result in layer.panel.results)
        for part in parts
    ]
    return max(peaks) < 4 * min(peaks)


def _title(part: Part, parts: list[Part], width: int) -> str:
    """The topology, and what the reader must know; in an overlay of which topology, unless it is all.

    Another view beside it says only what it is.
    """
    if part.quantity != parts[0].quantity:
        return ""
    cell, layers = part.cell, [layer for other in parts for layer in other.cell if other.quantity == part.quantity]
    first = cell[0].panel
    name = place(first)
    if cell[0].name:
        name = name if alone([layer.panel for layer in cell]) else ""
    elif sum(place(layer.panel) == name for layer in layers) > 1:
        name += f", {first.origin}"
    remarks = [[*layer.panel.remarks, *filter(None, [part.quantity.remark(layer.panel)])] for layer in cell]
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
