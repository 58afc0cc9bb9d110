"""Figures of run files, measured or predicted: bandwidth and time against message size, one panel a topology.

The files are `bandwidth.png` and `latency.png`, after what tells several apart: `allreduce-latency.png` where
there are several collectives, `allreduce-half-in-place-latency.png` where that one was measured with several
dtypes and also in place.  `draw` writes them, `figures` yields them to whoever embeds one.

Matplotlib is imported here only, at the first figure.  Another figure of the same panels is a row in QUANTITIES.
"""

import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collbench.panels import Combination, Drawn, Line, Look, Panel, line_of, looks, panels
from collbench.store import Run
from collbench.units import format_seconds, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Quantity(NamedTuple):
    """The y axis of one figure: which value stands for seconds of an operation, and how it is written."""

    name: str
    scale: str
    value: Callable[[Panel, Drawn, float], float]
    label: Callable[[Panel], str]
    tick: Callable[[float], str]


QUANTITIES = (
    Quantity(
        name="bandwidth",
        scale="linear",  # from zero: what matters here is how far apart the plateaus are
        value=lambda panel, result, seconds: result.case.nbytes / seconds * (panel.factor or 1),
        label=lambda panel: f"{'bus' if panel.factor else 'algorithm'} bandwidth (GB/s)",
        tick=lambda rate: f"{rate / 1e9:.7f}".rstrip("0").rstrip("."),
    ),
    Quantity(
        name="latency",
        scale="log",
        value=lambda panel, result, seconds: seconds,
        label=lambda panel: "time per operation",
        tick=format_seconds,
    ),
)


def draw(runs: Sequence[Run], folder: Path, formats: Sequence[str] = ("png",), apart: bool = False) -> list[Path]:
    """Write every figure of these runs into `folder` and say which files; none if there is nothing to draw.

    Predictions are laid over measurements unless they are to stand `apart`.  The same runs give the same bytes,
    whatever the user's Matplotlib configuration.
    """
    return [path for stem, figure in figures(runs, apart) for path in save(figure, folder, stem, formats)]


def save(figure: "Figure", folder: Path, stem: str, formats: Sequence[str]) -> list[Path]:
    """Write one figure in each format, and say which files."""
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.{suffix}" for suffix in formats]
    for path in paths:
        with style():
            figure.savefig(path, dpi=150, metadata=undated.get(path.suffix[1:]))
    return paths


def figures(runs: Sequence[Run], apart: bool = False) -> Iterator[tuple[str, "Figure"]]:
    """Each figure, after the file name that it should have but for the suffix."""
    found = panels(runs, apart)
    styles = _styles(line for row in found.values() for panel in row for line, _ in panel.points)
    for combination, row in found.items():
        for quantity in QUANTITIES:
            details = ", ".join(filter(None, combination[1:]))
            name = f"predicted {quantity.name}" if all(panel.predicted for panel in row) else quantity.name
            title = f"{name.capitalize()} of {combination.collective} ({details})"
            yield (
                "-".join([*_distinction(combination, found), quantity.name]),
                _figure(title, row, quantity, styles),
            )


def _styles(lines: Iterable[Line]) -> dict[Line, Look]:
    """A look for each line: those of one implementation differ only in being predicted or not."""
    wanted = set(lines)
    chosen = looks(line.implementation for line in wanted)
    every = {Line(name, predicted): look for name, look in chosen.items() for predicted in (False, True)}
    return {line: look.predicted if line.predicted else look for line, look in every.items() if line in wanted}


def _distinction(combination: Combination, found: Collection[Combination]) -> list[str]:
    """The parts of a combination that tell it from the others that were found."""
    others = [combination._replace(collective=other.collective) for other in found]
    others += [other for other in found if other.collective == combination.collective]
    varied = (len(set(values)) > 1 for values in zip(*others, strict=True))
    return [part for part, varies in zip(combination, varied, strict=True) if varies and part]


def style() -> AbstractContextManager[None]:
    """Settings of every figure, whatever the user's configuration."""
    import matplotlib.style

    settings = {
        "svg.hashsalt": "collbench",
        "font.size": 11,
        "lines.markersize": 5,
        "legend.frameon": False,
        "axes.titlesize": "medium",
        "axes.titlelocation": "left",
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": "#E4E4E4",
    }
    return matplotlib.style.context(["default", settings])


def _figure(title: str, row: list[Panel], quantity: Quantity, styles: dict[Line, Look]) -> "Figure":
    from matplotlib.figure import Figure

    columns = len(row) if len(row) <= 3 else math.ceil(math.sqrt(len(row)))
    rows = math.ceil(len(row) / columns)
    width = {1: 8.0, 2: 12.4}.get(columns, 5.2 * columns)
    with style():
        figure = Figure(figsize=(width, 5.0 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=_comparable(row, quantity), squeeze=False)
        for axes, panel in zip(grid.flat, row, strict=False):
            _lines(axes, panel, quantity, styles)
            axes.set_title(_title(panel, row))
        for place, axes in enumerate(grid.flat[: len(row)]):  # now that shared limits are known
            _value_axis(axes, quantity)
            _size_axis(axes, row, 7 if columns == 1 else 6)
            label = quantity.label(row[place])
            if place % columns == 0 or label != quantity.label(row[place - 1]):
                axes.set_ylabel(label)
            if place + columns >= len(row):  # the lowest of its column
                axes.set_xlabel("message size")
                axes.tick_params(labelbottom=True)
        for unused in grid.flat[len(row) :]:
            unused.remove()
        figure.suptitle(title, x=0.01, ha="left")
        _legend(figure, row, styles)
    return figure


def _comparable(row: list[Panel], quantity: Quantity) -> bool:
    """Whether one y axis suits all panels; a linear one would lay much slower topologies on the ground."""
    peaks = [max(quantity.value(panel, result, result.typical) for result in panel.results) for panel in row]
    return quantity.scale == "log" or max(peaks) < 4 * min(peaks)


def _lines(axes: "Axes", panel: Panel, quantity: Quantity, styles: dict[Line, Look]) -> None:
    for line, look in styles.items():
        results = [result for (other, _), result in sorted(panel.points.items()) if other == line]
        if not results:
            continue
        sizes = [result.case.nbytes for result in results]
        middle = [quantity.value(panel, result, result.typical) for result in results]
        low, high = ([quantity.value(panel, result, result.band[end]) for result in results] for end in (0, 1))
        if len(results) > 1:
            axes.fill_between(sizes, low, high, color=look.color, alpha=_opacity(panel, line), linewidth=0)
        else:  # a band of one point has no area
            axes.vlines(sizes, low, high, color=look.color, alpha=0.4, linewidth=4)
        axes.plot(sizes, middle, label=_label(line, panel.predicted), **look._asdict())


def _opacity(panel: Panel, line: Line) -> float:
    """Of a band: those of predictions are wide; many of them must leave the lines to be seen, and what was measured."""
    return 0.4 / (3 + len({other for other, _ in panel.points if other.predicted})) if line.predicted else 0.2


def _label(line: Line, everything: bool) -> str:
    """Whether it is predicted need not be said of each line where `everything` is."""
    return f"{line.implementation}, predicted" if line.predicted and not everything else line.implementation


def _title(panel: Panel, row: list[Panel]) -> str:
    ranks = f"{panel.ranks} rank{'s' if panel.ranks > 1 else ''}"
    title = panel.topology if panel.topology.startswith(ranks) else f"{panel.topology}, {ranks}"
    if sum((other.topology, other.ranks) == (panel.topology, panel.ranks) for other in row) > 1:
        title += f", {panel.origin}"
    return "\n".join(textwrap.fill(line, 52) for line in (title, "; ".join(panel.remarks)) if line)


def _value_axis(axes: "Axes", quantity: Quantity) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set_yscale(quantity.scale)
    low, high = axes.get_ylim()
    if quantity.scale == "linear":
        axes.set_ylim(bottom=0)
    elif high < 10 * low:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity.tick(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _size_axis(axes: "Axes", row: list[Panel], room: int) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    sizes = [size for panel in row for _, size in panel.points]
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


def _legend(figure: "Figure", row: list[Panel], styles: dict[Line, Look]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    everything = all(panel.predicted for panel in row)
    lines = {line for panel in row for line, _ in panel.points}
    handles: list[Any] = [
        Line2D([], [], label=_label(line, everything), **look._asdict())
        for line, look in styles.items()
        if line in lines
    ]
    banded = {line_of(each).predicted for panel in row for each in panel.results if math.isfinite(each.band[1])}
    for predicted, label, alpha in ((False, "95 % interval", 0.3), (True, "nine in ten, predicted", 0.15)):
        if predicted in banded:
            handles.append(Patch(color="#808080", alpha=alpha, linewidth=0, label=label))
    figure.legend(handles=handles, loc="outside right upper", handlelength=3.5)
