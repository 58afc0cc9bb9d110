"""The heat map of a fleet: times over the fleet's median, by node and size.

Nodes that stand out have a row each; a fleet of more nodes than can be read is drawn by its quantiles at each size.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collbench.analysis.fleet import Array, Group
from collbench.errors import writing
from collbench.plots.axes import heading, panel_grid, wrapped
from collbench.present.figures import SCREEN, Axes, Figure, new_figure, save, style
from collbench.units import format_size

_ROWS = 40  # that can be read: of as many nodes each is drawn, and of more nodes as many outliers
_BANDS = {"slowest": 100, "95 %": 95, "75 %": 75, "median": 50, "25 %": 25, "5 %": 5, "fastest": 0}  # percentiles
_PANELS, _COLUMNS = 4, 20  # sizes up to which each has its name and its numbers
_NAME, _TITLE = 20, 95  # characters of a node's name, of a line of a panel's title
_MOST = 0.2  # share of time from which on colours are the same; every night has the same scale


def draw(found: Sequence[Group], paths: Sequence[Path]) -> list[Path]:
    """Write the figure to each of the files and return them; none if there is no group."""
    if not (found and paths):
        return []
    drawn, written = figure(found), []
    for path in paths:
        with writing(path, "--plot"):
            written += save(drawn, path.parent, path.stem, [path.suffix[1:]])
    return written


@style()
def figure(found: Sequence[Group]) -> Figure:
    """Return a figure with a panel for each of the largest groups."""
    from matplotlib.ticker import PercentFormatter

    tables = [_table(group) for group in found[:_PANELS]]
    heights = [len(names) for names, _ in tables]
    drawn = new_figure(SCREEN.width(1) + 1, 1.6 + sum(0.26 * height + 1.2 for height in heights))
    panels = panel_grid(drawn, len(tables), 1, gridspec_kw={"height_ratios": heights})
    for axes, group, (names, cells) in zip(panels, found, tables, strict=False):
        mesh = _panel(axes, group, names, cells)
    bar = drawn.colorbar(mesh, ax=panels, pad=0.01, fraction=0.05, extend="both", format=PercentFormatter(1, 0))
    bar.set_label("time over the fleet's median: above 0 is slower")
    heading(drawn, "Times of nodes against the fleet's median, the slowest first")
    return drawn


def _table(group: Group) -> tuple[list[str], Array]:
    """Return the names of the rows, and by row and size the time over the fleet's median, less 1."""
    away = group.times / group.medians - 1
    usual, named = np.nanmedian(away, axis=1), {outlier.node for outlier in group.outliers}
    order = sorted(range(len(usual)), key=lambda row: (group.nodes[row] not in named, -usual[row]))
    many = len(order) > _ROWS
    chosen = [row for row in order if group.nodes[row] in named][:_ROWS] if many else order
    names = [name if len(name) <= _NAME else f"...{name[3 - _NAME :]}" for name in map(group.nodes.__getitem__, chosen)]
    if not many:
        return names, away[chosen]
    return [*names, *_BANDS], np.vstack([away[chosen], np.nanpercentile(away, list(_BANDS.values()), axis=0)])


def _panel(axes: Axes, group: Group, names: Sequence[str], cells: Array) -> Any:
    mesh = axes.imshow(cells, cmap="RdBu_r", vmin=-_MOST, vmax=_MOST, aspect="auto")
    axes.set_facecolor("0.8")  # of what was not measured
    for row, column in np.argwhere(np.isfinite(cells)) if len(group.sizes) <= _COLUMNS else ():
        percent = round(100 * cells[row, column])
        color, words = "white" if abs(percent) > 60 * _MOST else "black", f"{percent:+d}" if percent else "0"
        axes.text(column, row, words, ha="center", va="center", fontsize=7.5, color=color)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    step = math.ceil(len(group.sizes) / _COLUMNS)
    sizes = [format_size(size) for size in group.sizes[::step]]
    axes.set_xticks(range(0, len(group.sizes), step), sizes, rotation=45, ha="right", fontsize=8.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    count = f"{len(group.nodes):,} nodes{'' if np.isfinite(cells).all() else ', grey: not measured'}"
    if len(group.nodes) > _ROWS:
        axes.axhline(len(names) - len(_BANDS) - 0.5, color="black", linewidth=1.5)
        count += ": those that stand out, and below the line quantiles of all"
    axes.set_title(f"{wrapped(group.curve.title, _TITLE)}\n{count}", fontsize=10)
    return mesh
