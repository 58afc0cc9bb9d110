"""The figure of `collbench pairs`: heat maps of senders and receivers, in the order of the topology."""

from collections.abc import Sequence

import numpy as np

from collbench.commands.pairs.command import Kind as MatrixKind
from collbench.commands.pairs.command import matrices, shown
from collbench.commands.pairs.rows import LATENCY, ONE_WAY, PairTimes
from collbench.plots.axes import heading, panel_grid
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import SCREEN, Axes, Figure, new_figure, style
from collbench.runfile.store import Run
from collbench.units import format_size, significant

_PANELS = 24
_NUMBERED = 8  # ranks whose cells have numbers in them


def figures(run: Run, request: PlotRequest) -> Named:
    """Yield a figure with a panel for each matrix, if there are any."""
    chosen = {kind: rows for kind, rows in matrices(run.results).items() if request.shows(rows[0].implementation)}
    if chosen:
        yield "pairs", _figure(list(chosen.items())[:_PANELS])


@style()
def _figure(panels: Sequence[tuple[MatrixKind, Sequence[PairTimes]]]) -> Figure:
    columns = min(3, len(panels))
    drawn = new_figure(SCREEN.width(columns), 3.4 * -(-len(panels) // columns) + 0.6)
    for axes, (kind, rows) in zip(panel_grid(drawn, len(panels), columns), panels, strict=True):
        _panel(drawn, axes, kind, rows)
    heading(drawn, "Messages between every two ranks: latencies in us, bandwidths in GB/s")
    return drawn


def _panel(drawn: Figure, axes: Axes, kind: MatrixKind, rows: Sequence[PairTimes]) -> None:
    name, nbytes, pattern, at_once = kind
    ranks = rows[0].case.ranks
    cells = np.full((ranks, ranks), np.nan)
    for row in rows:
        cells[row.pair.sender, row.pair.receiver] = shown(row)
        if pattern != ONE_WAY:
            cells[row.pair.receiver, row.pair.sender] = shown(row)

    # What is slow is dark in all of them.
    colours = "viridis_r" if pattern == LATENCY else "viridis"
    image = axes.imshow(cells, cmap=colours, interpolation="nearest", vmin=min(0.0, float(np.nanmin(cells))))
    drawn.colorbar(image, ax=axes, shrink=0.8)
    if ranks <= _NUMBERED:
        middle = float(np.nanmax(cells)) / 2
        for (sender, receiver), value in np.ndenumerate(cells):
            if np.isfinite(value):
                pale = (value > middle) == (pattern != LATENCY)
                colour = "black" if pale else "white"
                axes.text(receiver, sender, significant(value, 2), ha="center", va="center", color=colour, fontsize=7)
        axes.set(xticks=range(ranks), yticks=range(ranks))
    axes.grid(visible=False)
    axes.set(xlabel="to rank", ylabel="from rank")
    axes.set_title(f"{name}, {pattern}\n{'at once' if at_once else 'alone'}, {format_size(nbytes)}")


KINDS = {"pairs": Kind(order=67, rows=(PairTimes,), needs="pairs", figures=run_by_run(figures))}
