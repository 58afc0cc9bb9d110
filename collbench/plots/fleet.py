"""The heat map of a fleet: times over the fleet's median, by node and size.

Nodes that stand out have a row each; a fleet of more nodes than can be read is drawn by its quantiles at each size.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collbench.analysis.fleet import Array, Group
from collbench.errors import UsageError
from collbench.plots.axes import Axes, Figure, heading, new_figure, panel_grid, wrapped
from collbench.plots.save import save
from collbench.plots.style import SCREEN, style
from collbench.units import format_size

_ROWS = 40  # that can be read: of as many nodes each is drawn, and of more nodes as many outliers
_PANELS = 4
_BANDS = {
    "slowest": 100,
    "99 %": 99,
    "95 %": 95,
    "75 %": 75,
    "median": 50,
    "25 %": 25,
    "5 %": 5,
    "1 %": 1,
    "fastest": 0,
}
_COLUMNS = 20  # sizes up to which each has its name and its numbers
_NAMED, _TITLE = 20, 95  # characters of a node's name, of a line of a panel's title


def draw(found: Sequence[Group], paths: Sequence[Path]) -> list[Path]:
    """Write the figure to each of the files and return them; none if no group has nodes enough."""
    drawn = figure(found) if paths else None
    if drawn is None:
        return []
    try:
        return [written for path in paths for written in save(drawn, path.parent, path.stem, [path.suffix[1:]])]
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}; choose another --plot") from None


@style()
def figure(found: Sequence[Group]) -> "Figure | None":
    """Return a figure with a panel for each of the largest groups; None where none has nodes enough."""
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.ticker import MaxNLocator

    shown = [group for group in found if group.enough][:_PANELS]
    if not shown:
        return None
    tables = [_table(group) for group in shown]
    most = max(0.05, *(min(0.25, float(np.nanmax(np.abs(cells)))) for _, cells, _ in tables))
    heights = [len(names) for names, *_ in tables]
    drawn = new_figure(SCREEN.width(1) + 1, 1.6 + sum(0.26 * height + 1.2 for height in heights))
    panels = panel_grid(drawn, len(shown), 1, gridspec_kw={"height_ratios": heights})
    for axes, group, (names, cells, nodes) in zip(panels, shown, tables, strict=True):
        mesh = _panel(axes, group, names, cells, nodes, TwoSlopeNorm(0.0, -most, most))
    bar = drawn.colorbar(mesh, ax=panels, pad=0.01, fraction=0.05, extend="both")
    bar.ax.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], min_n_ticks=3))
    bar.ax.yaxis.set_major_formatter(lambda share, position: f"{_percent(share)} %")
    bar.set_label("time over the fleet's median: above 0 is slower")
    heading(drawn, "Times of nodes against the fleet's median, the slowest first")
    return drawn


def _table(group: Group) -> tuple[list[str], Array, int]:
    """Return the names of the rows, time over the median less 1 by row and size, and how many rows are nodes."""
    away = group.ratios - 1
    slower = {outlier.node: outlier.ratio - 1 for outlier in group.outliers}
    usual = np.nanmedian(away, axis=1).tolist()
    order = sorted(range(len(usual)), key=lambda row: _place(slower.get(group.nodes[row]), usual[row]))
    if len(order) > _ROWS:
        order = order[: min(_ROWS, len(slower))]
    names = [_short(group.nodes[row]) for row in order]
    if len(order) == len(group.nodes):
        return names, away[order], len(order)
    bands = np.nanpercentile(away, list(_BANDS.values()), axis=0)
    return [*names, *_BANDS], np.vstack([away[order], bands]), len(order)


def _place(outlier: float | None, usual: float) -> tuple[bool, float]:
    """Return what a node is sorted by: those that stand out first, then by how slow they are."""
    return outlier is None, -(usual if outlier is None else outlier)


def _short(name: str) -> str:
    return name if len(name) <= _NAMED else f"{name[: _NAMED - 3]}..."


def _panel(axes: Axes, group: Group, names: Sequence[str], cells: Array, nodes: int, norm: Any) -> Any:
    mesh = axes.pcolormesh(np.ma.masked_invalid(cells), cmap="RdBu_r", norm=norm, edgecolors="white", linewidth=0.5)
    axes.set_facecolor("0.8")  # of what was not measured
    for row, column in np.argwhere(np.isfinite(cells)) if len(group.sizes) <= _COLUMNS else ():
        color = "white" if abs(cells[row, column]) > 0.6 * norm.vmax else "black"
        place, words = (column + 0.5, row + 0.5), _percent(cells[row, column])
        axes.text(*place, words, ha="center", va="center", fontsize=7.5, color=color)
    axes.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8.5)
    axes.set_ylim(len(names), 0)
    columns = range(0, len(group.sizes), math.ceil(len(group.sizes) / _COLUMNS))
    sizes = [format_size(group.sizes[column]) for column in columns]
    axes.set_xticks([column + 0.5 for column in columns], sizes, rotation=45, ha="right", fontsize=8.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    count = f"{len(group.nodes):,} nodes"
    if nodes < len(names):
        axes.axhline(nodes, color="black", linewidth=1.5)
        count += f": {nodes} that stand out, below them quantiles of all" if nodes else ": quantiles"
    axes.set_title(f"{wrapped(group.curve.title, _TITLE)}\n{count}", fontsize=10)
    return mesh


def _percent(share: float) -> str:
    return f"{100 * share:+.0f}" if abs(share) >= 0.005 else "0"
