"""Figures of run files, measured or predicted, against message size: one panel a topology, or all in one.

The files are `bandwidth.png` and `latency.png`, after what tells several apart: `allreduce-latency.png` where
there are several collectives, `allreduce-half-in-place-latency.png` where that one was measured with several
dtypes and also in place, `overlay-latency.png` where all topologies share a panel.  `figures`
yields them, kinds.draw writes them.

Another figure of the same panels is a view in views.py, another look of all a plot style in style.py.
"""

import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from collbench.plots import samples
from collbench.plots.axes import (
    Artist,
    Axes,
    Figure,
    heading,
    new_figure,
    panel_grid,
    place_legend,
    size_axis,
    value_axis,
    wrapped,
)
from collbench.plots.kinds import PLAIN, Kind, Named, PlotRequest, Say
from collbench.plots.panels import (
    Combination,
    Drawn,
    Layer,
    Line,
    Panel,
    coloured,
    line_of,
    one_topology,
    only,
    only_marks,
    overlaid,
    panels,
    told_apart,
)
from collbench.plots.style import GREY, MUTED, Look, Style, letters_of, looks, style
from collbench.plots.views import SAMPLES, VIEWS, Limit, View, chosen, limit, named
from collbench.results import Measurement, Prediction, Reported
from collbench.runfile.store import Run

_NEUTRAL = "#505050"  # of lines in the legend whose colour says nothing of the implementation
_WIDTH = 21  # letters in a line of the legend that is wrapped


class Part(NamedTuple):
    """One panel of a figure."""

    layers: tuple[Layer, ...]  # what shares its axes: one layer, or several in an overlay
    view: View


def figures(
    runs: Sequence[Run],
    request: PlotRequest = PLAIN,
    say: Say = lambda reason: None,
) -> Named:
    """Yield each figure with its name; `say` gets each panel that a view has to leave out, and why."""
    rows = panels(runs, request.apart, request.machine)
    if request.implementations:
        rows = {combination: only(row, request.implementations) for combination, row in rows.items()}
        rows = {combination: row for combination, row in rows.items() if row}
    rows = told_apart(rows, say)
    known = _looks(line for row in rows.values() for panel in row for line, _ in panel.points)
    said: set[str] = set()

    def say_once(reason: str) -> None:
        if reason not in said:
            said.add(reason)
            say(reason)

    for combination, row in rows.items():
        for name, figure in _of_row(combination, row, known, request, say_once):
            yield "-".join([*_distinction(combination, rows), name]), figure


def _of_row(
    combination: Combination, row: list[Panel], known: dict[Line, Look], request: PlotRequest, say: Say
) -> Named:
    """Yield the figures of one combination, a view each."""
    if request.overlay:
        cells, chosen_looks = [overlaid(row)], known
    else:
        cells, chosen_looks = [(Layer(panel),) for panel in row], _muted(known, row, request.coloured)
    for view in chosen(request.views, request.linear):
        parts = []
        for cell in cells:
            if layers := _drawable(cell, view, say):
                parts.append(Part(layers, view))
        if parts:
            # Where there is one topology, a second view stands right of the first, if it can be drawn.
            other = next((other for other in VIEWS if other.name == view.companion), None)
            alone = request.style.companion and len(parts) == 1 and not request.overlay
            if other and alone and not other.lacking(parts[0].layers[0].panel):
                parts.append(Part(parts[0].layers, other))
            name = f"overlay-{view.name}" if request.overlay else view.name
            yield name, _figure(combination, parts, chosen_looks, request.style)
    if SAMPLES in named(request.views):
        yield from samples.figures(row, known, say)


def _drawable(cell: Iterable[Layer], view: View, say: Say) -> tuple[Layer, ...]:
    """Return the layers that the view can be drawn of; `say` gets the reason for the others."""
    drawable = []
    for layer in cell:
        if lacking := view.lacking(layer.panel):
            say(f"{view.name} not drawn for {layer.panel.place}: {lacking}")
        else:
            drawable.append(layer)
    return tuple(drawable)


def _looks(lines: Iterable[Line]) -> dict[Line, Look]:
    """Return a look for each line: those of one implementation differ only in being predicted, or in their library.

    Of several libraries the first has the implementation's own look, and the others the looks that clash least.
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
    found = {}
    for line in distinct:
        look = chosen_looks[names[line]]
        found[line] = look.predicted if line.predicted else look
    return found


def _muted(known: dict[Line, Look], row: Sequence[Panel], most: int) -> dict[Line, Look]:
    """Return the looks in one figure: grey but for `most` lines; marks where a line lies on those that it picked."""
    with_colour, drawn = coloured(row, most), {line for panel in row for line, _ in panel.points}
    found = {}
    for line in (line for line in known if line in drawn):
        look = known[line] if line in with_colour else known[line].muted
        found[line] = look.marks if only_marks(row, line) else look
    return found


def _distinction(combination: Combination, drawn: Collection[Combination]) -> list[str]:
    """Return the parts of a combination that tell it from the others that are drawn."""
    others = [combination._replace(collective=other.collective) for other in drawn]
    others += [other for other in drawn if other.collective == combination.collective]
    varied = (len(set(values)) > 1 for values in zip(*others, strict=True))
    return [part for part, varies in zip(combination, varied, strict=True) if varies and part]


# ---- the figure


def _figure(combination: Combination, parts: list[Part], known: dict[Line, Look], plot_style: Style) -> Figure:
    columns = len(parts) if len(parts) <= 3 else math.ceil(math.sqrt(len(parts)))
    rows = math.ceil(len(parts) / columns)
    with style(plot_style):
        size = plot_style.width(columns), plot_style.height(rows)
        figure = new_figure(*size, dpi=plot_style.dpi)
        room = place_legend(figure, _legend_entries(parts, known, plot_style), plot_style)
        shared = _comparable(parts)
        panels = panel_grid(figure, len(parts), columns, sharex=True, sharey=shared)
        letters = plot_style.letters(room, columns, shared)
        several_bounds = len(_bounds(parts)) > 1  # the legend says the value of a single bound
        for axes, part in zip(panels, parts, strict=True):
            _panel(axes, part, known, several_bounds, plot_style)
            axes.set_title(_title(part, parts, letters))
        for number, axes in enumerate(panels):  # now that shared limits are known
            _finish(axes, parts, number, columns, plot_style)
        _value_labels(figure, [_label(part, plot_style) for part in parts], columns, plot_style)
        if plot_style.title:
            predicted = all(layer.panel.predicted for part in parts for layer in part.layers)
            what = f"{'predicted ' * predicted}{parts[0].view.heading}".capitalize()
            words = f"{what} of {combination.collective} ({', '.join(filter(None, combination[1:]))})"
            heading(figure, wrapped(words, letters_of(room, plot_style.title)))
    return figure


def _panel(axes: Axes, part: Part, known: dict[Line, Look], write_bound: bool, plot_style: Style) -> None:
    for layer in part.layers:
        _lines(axes, layer, part.view, known, plot_style)
        bound = limit(layer.panel, part.view)
        if bound:
            _draw_bound(axes, bound, layer.color or GREY)
            if write_bound and not layer.color:
                _write_bound(axes, bound, part.view, plot_style.remarks - 1)
    if part.view.level is not None:
        axes.axhline(part.view.level, color="#808080", linewidth=plot_style.lines, zorder=1)


def _lines(axes: Axes, layer: Layer, view: View, known: Mapping[Line, Look], plot_style: Style) -> None:
    """Draw the lines of a layer with their bands, those in grey behind and marks in front."""
    panel, shown = layer.panel, _results_of(layer, view)
    for line in (line for line in known if line in shown):
        look = layer.look(known[line])
        sizes = [result.case.nbytes for result in shown[line]]
        middle = [view.middle(panel, result) for result in shown[line]]
        if _has_band(look):
            low, high = zip(*(view.band(panel, result) for result in shown[line]), strict=True)
            if len(sizes) > 1:
                # Wide bands of many predictions must leave the lines to be seen.
                several = len({other for other, _ in panel.points if other.predicted})
                opacity = 0.4 / (3 + several) if line.predicted else 0.2
                axes.fill_between(sizes, low, high, color=look.color, alpha=opacity, linewidth=0)
            else:  # a band of one point has no area
                axes.vlines(sizes, low, high, color=look.color, alpha=0.4, linewidth=4 * plot_style.lines)
        front = 1.9 if look.color == MUTED else 2.0 if look.linestyle else 2.1
        axes.plot(sizes, middle, label=_name(line, panel.predicted), zorder=front, **plot_style.drawn(look))


def _results_of(layer: Layer, view: View) -> dict[Line, list[Drawn]]:
    """Return the results of each line that have a value, by size."""
    results: dict[Line, list[Drawn]] = {}
    for (line, _), result in sorted(layer.panel.points.items()):
        if math.isfinite(view.middle(layer.panel, result)):
            results.setdefault(line, []).append(result)
    return results


def _name(line: Line, everything_predicted: bool) -> str:
    """Return a line's name, which says that it is predicted unless everything is."""
    return f"{line.label}, predicted" if line.predicted and not everything_predicted else line.label


def _has_band(look: Look) -> bool:
    """Return whether a line has a band: those of lines in grey would hide the others, and marks have none."""
    return bool(look.linestyle) and look.color != MUTED


def _draw_bound(axes: Axes, bound: Limit, color: str) -> None:
    """Draw a dotted line, with a dash at each size that was measured.

    A measured rate goes on, fainter, across all other sizes: messages that stay in caches may pass it.
    """
    dashes: dict[str, Any] = {"marker": "_", "markersize": 12} if bound.measured else {}
    sizes, values = [*bound.values], [*bound.values.values()]
    axes.plot(sizes, values, color=color, linestyle=":", linewidth=1.5, zorder=1, gid="bound", **dashes)
    if bound.measured and bound.is_rate:
        axes.axhline(bound.last, color=color, linestyle=":", linewidth=1, alpha=0.7, zorder=1, gid="bound-level")


def _write_bound(axes: Axes, bound: Limit, view: View, font: float) -> None:
    """Write its name where no curve is: small messages have low rates, and times rise from the left."""
    from matplotlib.patheffects import withStroke

    words, halo = f"{bound.name}: {view.tick(bound.last)}", [withStroke(linewidth=2, foreground="white")]
    look: dict[str, Any] = {"color": GREY, "fontsize": font, "gid": "bound-name", "path_effects": halo, "zorder": 4}
    if bound.is_rate:
        axes.annotate(words, (0.01, bound.last), (0, 2), ("axes fraction", "data"), "offset points", **look)
    else:
        axes.text(0.99, 0.03, words, transform=axes.transAxes, ha="right", va="bottom", **look)


def _finish(axes: Axes, parts: list[Part], number: int, columns: int, plot_style: Style) -> None:
    """Set ticks, and name the x axis in the lowest panel of each column."""
    value_axis(axes, parts[number].view, plot_style.value_ticks)
    sizes = [size for part in parts for layer in part.layers for _, size in layer.panel.points]
    size_axis(axes, sizes, plot_style.ticks(columns))
    if number + columns >= len(parts):
        axes.set_xlabel("message size")
        axes.tick_params(labelbottom=True)


def _value_labels(figure: Figure, labels: list[str], columns: int, plot_style: Style) -> None:
    """Name each y axis unless its neighbour has the same name; all at once where a panel is too low for it."""
    rows = math.ceil(len(labels) / columns)
    room = 0.6 * plot_style.height(rows) / rows
    if rows > 1 and len(set(labels)) == 1 and len(labels[0]) > letters_of(room, plot_style.labels):
        figure.supylabel(labels[0], fontsize=plot_style.labels)
        return
    for number, (axes, words) in enumerate(zip(figure.axes, labels, strict=False)):
        if number % columns == 0 or words != labels[number - 1]:
            axes.set_ylabel(words)


def _label(part: Part, plot_style: Style) -> str:
    """Return the name of the y axis; it also says what is only predicted, where no title does."""
    row = [layer.panel for layer in part.layers]
    words = part.view.label(row)
    predicted = all(panel.predicted for panel in row)
    return f"predicted {words}" if predicted and not plot_style.title else words


def _comparable(parts: list[Part]) -> bool:
    """Return whether one y axis suits all panels; a linear one would lay much slower topologies on the ground."""
    view = parts[0].view
    if any(part.view != view for part in parts):
        return False
    if view.scale == "log" or view.level is not None:
        return True
    peaks = []
    for part in parts:
        peaks.append(max(view.middle(layer.panel, row) for layer in part.layers for row in layer.panel.results))
    return max(peaks) < 4 * min(peaks)


def _title(part: Part, parts: list[Part], width: int) -> str:
    """Return a panel's title: the topology, and what the reader must know; nothing for the view right of it."""
    if part.view != parts[0].view:
        return ""
    layers = [layer for other in parts for layer in other.layers if other.view == part.view]
    first = part.layers[0].panel
    name = first.place
    if part.layers[0].name:
        name = name if one_topology([layer.panel for layer in part.layers]) else ""
    elif sum(layer.panel.place == name for layer in layers) > 1:
        name += f", {first.origin}"
    lines = [name, *_remarks(part)]
    return "\n".join(textwrap.fill(line, width) for line in lines if line)


def _remarks(part: Part) -> list[str]:
    """Return what the reader must know of a panel; in an overlay of which topology, unless it is all."""
    remarks = {}
    for layer in part.layers:
        words = [*layer.panel.remarks, *filter(None, [part.view.remark(layer.panel)])]
        remarks[layer.name] = "; ".join(words)
    if len(set(remarks.values())) == 1:
        return [*remarks.values()][:1]
    return [f"{name}: {words}" for name, words in remarks.items() if words]


# ---- the legend


def _legend_entries(parts: Sequence[Part], looks: Mapping[Line, Look], plot_style: Style) -> list[Artist]:
    """Return what the legend explains: topologies by colour, implementations by the rest, bounds, bands."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    layers = [layer for part in parts for layer in part.layers]
    everything_predicted = all(layer.panel.predicted for layer in layers)
    entries: list[Artist] = []
    for layer in layers:
        if layer.color:
            entries.append(Patch(color=layer.color, linewidth=0, label=textwrap.fill(layer.name, _WIDTH)))
    for line in _ordered(layers, parts[0].view, looks):
        look = looks[line]._replace(color=_NEUTRAL) if layers[0].color else looks[line]
        entries.append(Line2D([], [], label=_name(line, everything_predicted), **plot_style.drawn(look)))
    for words in _bound_names(parts):
        label = textwrap.fill(words, _WIDTH)
        entries.append(Line2D([], [], color=GREY, linestyle=":", linewidth=1.5, label=label))
    for predicted, alpha in ((False, 0.3), (True, 0.15)):
        if label := _band_name(parts, looks, predicted):
            entries.append(Patch(color="#808080", alpha=alpha, linewidth=0, label=label))
    return entries


def _ordered(layers: Sequence[Layer], view: View, looks: Mapping[Line, Look]) -> list[Line]:
    """Return the lines that are drawn in the order in which they end at the right, the topmost first.

    Those in grey come after the others, and marks on other lines last.
    """
    ends: dict[Line, list[tuple[int, float]]] = {}
    for layer in layers:
        for line, results in _results_of(layer, view).items():
            end = (results[-1].case.nbytes, view.middle(layer.panel, results[-1]))
            ends.setdefault(line, []).append(end)
    largest = max((size for places in ends.values() for size, _ in places), default=0)

    def place(line: Line) -> tuple[bool, bool, bool, float]:
        sizes, values = zip(*ends[line], strict=True)
        height = math.fsum(math.log(max(value, 1e-300)) for value in values) / len(values)
        return not looks[line].linestyle, looks[line].color == MUTED, max(sizes) < largest, -height

    return sorted((line for line in looks if line in ends), key=place)


def _bound_names(parts: Sequence[Part]) -> list[str]:
    """Return the names of the bounds that are drawn, with its value if there is one."""
    bounds = _bounds(parts)
    if len(bounds) == 1:
        view, layer, bound = bounds[0]
        return [f"{bound.name if layer.color else bound.legend}: {view.tick(bound.last)}"]
    return list(dict.fromkeys(bound.name if layer.color else bound.legend for _, layer, bound in bounds))


def _bounds(parts: Sequence[Part]) -> list[tuple[View, Layer, Limit]]:
    found = []
    for part in parts:
        for layer in part.layers:
            if bound := limit(layer.panel, part.view):
                found.append((part.view, layer, bound))
    return found


def _band_name(parts: Sequence[Part], looks: Mapping[Line, Look], predicted: bool) -> str:
    """Return what the bands of measured or predicted lines are called; empty if there is none."""
    names: list[str] = []
    for part in parts:
        for layer in part.layers:
            for result in layer.panel.results:
                line = line_of(result)
                banded = line.predicted == predicted and _has_band(looks[line])
                if banded and math.isfinite(part.view.band(layer.panel, result)[1]):
                    names.append(part.view.interval(predicted))
    if len(set(names)) > 1:
        return f"{names[0]} (right: {names[-1].removesuffix(' interval')})"
    return names[0] if names else ""


KIND = Kind(
    order=10,
    rows=(Measurement, Reported, Prediction),
    needs="times of messages that are larger than 0 bytes",
    figures=figures,
    styled=True,
)
