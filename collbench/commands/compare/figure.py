"""The figure of a comparison: ratios NEW/BASE with their intervals against message size, a panel a kind of case."""

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from collbench.analysis.comparison import Comparison, Row
from collbench.errors import UsageError
from collbench.plots.axes import LEVEL, heading, panel_grid, size_axis
from collbench.present.figures import (
    FORMATS,
    GREY,
    SCREEN,
    TOLD_APART,
    Axes,
    Figure,
    Look,
    looks,
    new_figure,
    save_as,
    style,
)
from collbench.results import by_key

_FARTHEST = 4.0  # times beyond the ratios themselves that an interval may stretch the axis


def check(paths: Sequence[Path]) -> None:
    """Raise UsageError for a file whose suffix is none of FORMATS."""
    for path in paths:
        if path.suffix[1:].lower() not in FORMATS:
            choices = ", ".join(f".{suffix}" for suffix in FORMATS)
            raise UsageError(f"cannot draw {path}: its suffix says no format; choose from: {choices}")


def draw(comparisons: Sequence[Comparison], paths: Sequence[Path]) -> list[Path]:
    """Write the figure to each of the files and return them; none if there is no ratio to draw."""
    check(paths)
    drawn = figure(comparisons) if paths else None
    if drawn is None:
        return []
    try:
        return list(chain.from_iterable(save_as(drawn, path) for path in paths))
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}; choose another --out") from None


@style()
def figure(comparisons: Sequence[Comparison]) -> "Figure | None":
    """Return a figure with a panel for each kind of case of each comparison; None if there is nothing to draw."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = []
    for comparison in comparisons:
        for rows in by_key(comparison.rows, lambda row: row.case.kind).values():
            kinds.append((comparison, sorted(rows, key=lambda row: row.case.nbytes)))
    if not kinds:
        return None
    panels = kinds[:TOLD_APART]
    columns = min(3, len(panels))
    chosen = looks(row.base.implementation for _, rows in panels for row in rows)
    drawn = new_figure(SCREEN.width(columns), 4.6 * math.ceil(len(panels) / columns))
    for axes, (comparison, rows) in zip(panel_grid(drawn, len(panels), columns), panels, strict=True):
        _panel(axes, comparison, rows, chosen)
    cut = f" (the first {TOLD_APART} of {len(kinds)} kinds of cases)" if len(kinds) > TOLD_APART else ""
    heading(drawn, f"Time NEW/BASE: above 1 is slower{cut}")
    handles: list[Line2D | Patch] = [Line2D([], [], label=name, **look._asdict()) for name, look in chosen.items()]
    handles.append(Patch(color=LEVEL, alpha=0.3, linewidth=0, label=f"within {100 * comparisons[0].margin:.3g} %"))
    drawn.legend(handles=handles, loc="outside right upper", handlelength=3.5)
    return drawn


def _panel(axes: Axes, comparison: Comparison, rows: Sequence[Row], chosen: dict[str, Look]) -> None:
    drawn = {row.base.implementation for row in rows}
    names = [name for name in chosen if name in drawn]
    axes.axhspan(1 / (1 + comparison.margin), 1 + comparison.margin, color=LEVEL, alpha=0.18, linewidth=0)
    axes.axhline(1, color=GREY, linewidth=1)
    for index, name in enumerate(names):
        # Points of one size stand next to each other, so that their intervals do not cover each other.
        aside = 2 ** (0.5 * (index - (len(names) - 1) / 2) / len(names))
        _line(axes, [row for row in rows if row.base.implementation == name], chosen[name], aside)
    _axes(axes, rows, comparison.margin)
    axes.set_title(f"{rows[0].base.case.title}\n{_origin(comparison.new.path)} against {_origin(comparison.base.path)}")


def _origin(path: Path) -> str:
    """Return the name of a run's folder, or of its file."""
    name = path.parent.name if path.stem == "run" and path.parent.name else path.name
    return name if len(name) <= 24 else f"{name[:21]}..."


def _line(axes: Axes, rows: Sequence[Row], look: Look, aside: float) -> None:
    """Draw ratios joined by a line, hollow where nothing can be concluded, and their intervals."""
    sizes, ratios = [row.base.case.nbytes * aside for row in rows], [row.ratio for row in rows]
    axes.plot(sizes, ratios, color=look.color, linestyle=look.linestyle, linewidth=1, alpha=0.7)
    for size, row in zip(sizes, rows, strict=True):
        axes.vlines(size, *row.interval, color=look.color, alpha=0.6, linewidth=1.6)
        filled = look.color if math.isfinite(row.interval[0]) else "white"
        axes.plot([size], [row.ratio], color=look.color, marker=look.marker, markerfacecolor=filled, linestyle="")


def _axes(axes: Axes, rows: Sequence[Row], margin: float) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    sizes = [row.base.case.nbytes for row in rows]
    size_axis(axes, sizes, 6)
    axes.set(xlim=(min(sizes) / 1.8, max(sizes) * 1.8), xlabel="message size", ylabel="time NEW / BASE")

    # The axis ends as far above 1 as below it; a very wide interval does not hide the rest.
    farthest_ratio = max(abs(math.log(row.ratio)) for row in rows)
    ends = [abs(math.log(max(end, 1e-9))) for row in rows for end in row.interval if math.isfinite(end)]
    farthest_end = min(max(ends, default=0.0), farthest_ratio + math.log(_FARTHEST))
    most = max(farthest_ratio, farthest_end, 1.6 * math.log1p(margin))
    low, high = math.exp(-1.1 * most), math.exp(1.1 * most)
    axes.set(yscale="log", ylim=(low, high))
    axes.yaxis.set_major_locator(MaxNLocator(7) if high < 4 * low else LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:.4g}x")
    axes.yaxis.set_minor_formatter(NullFormatter())
