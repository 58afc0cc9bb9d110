"""The figure of `collbench scan --pairs`: heat maps of senders and receivers."""

from collections.abc import Sequence

import numpy as np

from collbench.commands.scan.matrices import cells, matrices
from collbench.commands.scan.rows import LATENCY, PairTimes
from collbench.plots.axes import heading, panel_grid
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import SCREEN, Figure, new_figure, style
from collbench.runfile.store import Run
from collbench.units import format_size, significant

_PANELS = 24
_NUMBERED = 8  # most ranks of a panel with numbers in its cells


def figures(run: Run, request: PlotRequest) -> Named:
    """Yield a figure with a panel for each matrix, if there are any."""
    chosen = [rows for rows in matrices(run.results).values() if request.shows(rows[0].implementation)]
    if chosen:
        yield "pairs", _figure(chosen[:_PANELS])


@style()
def _figure(panels: Sequence[Sequence[PairTimes]]) -> Figure:
    columns = min(3, len(panels))
    drawn = new_figure(SCREEN.width(columns), 3.4 * -(-len(panels) // columns) + 0.6)
    for axes, rows in zip(panel_grid(drawn, len(panels), columns), panels, strict=True):
        case, pair, shown, unsure = rows[0].case, rows[0].pair, cells(rows), cells([row for row in rows if row.unsure])
        values = np.full((case.ranks, case.ranks), np.nan)
        values[tuple(zip(*shown, strict=True))] = [*shown.values()]

        # Slow cells are dark in all panels.
        latency = pair.pattern == LATENCY
        colours = "viridis_r" if latency else "viridis"
        image = axes.imshow(values, cmap=colours, interpolation="nearest", vmin=min(0.0, *shown.values()))
        drawn.colorbar(image, ax=axes, shrink=0.8)
        if case.ranks <= _NUMBERED:
            for (sender, receiver), value in shown.items():
                colour = "black" if (value > max(shown.values()) / 2) != latency else "white"
                number = significant(value, 2) + "*" * ((sender, receiver) in unsure)
                axes.text(receiver, sender, number, ha="center", va="center", color=colour, fontsize=7)
            axes.set(xticks=range(case.ranks), yticks=range(case.ranks))
        axes.grid(visible=False)
        axes.set(xlabel="to rank", ylabel="from rank")
        axes.set_title(f"{rows[0].label}, {pair.pattern}\n{pair.words[-1]}, {format_size(case.nbytes)}")
    mark = "; *: disturbed or uncertain" if any(row.unsure for rows in panels for row in rows) else ""
    heading(drawn, f"Messages between all pairs of ranks: latency in us, bandwidth in GB/s{mark}")
    return drawn


KINDS = {"pairs": Kind(order=67, rows=(PairTimes,), needs="pairs", figures=run_by_run(figures))}
