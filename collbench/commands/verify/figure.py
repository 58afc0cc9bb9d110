"""The figure of `collbench verify --bits`: errors of sums by implementation and number of ranks."""

import math
from collections.abc import Sequence
from statistics import median

from collbench.commands.verify.rows import SumBits
from collbench.plots.axes import grid_along_x, heading, name_rows, panel_grid
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import COLORS, SCREEN, TOLD_APART, Axes, Figure, new_figure, style
from collbench.results import by_key
from collbench.runfile.store import Run
from collbench.units import counted

_ROW = 0.34  # inches


def figures(run: Run, request: PlotRequest) -> Named:
    """Yield a figure with a panel for each collective and type, if there are errors."""
    rows = [row for row in run.results if isinstance(row, SumBits) and request.shows(row.implementation)]
    if rows:
        yield "errors", _figure(rows)


@style()
def _figure(rows: Sequence[SumBits]) -> Figure:
    from matplotlib.lines import Line2D

    panels = list(by_key(rows, lambda row: (row.case.collective.name, row.case.dtype.name)).items())[:TOLD_APART]
    counts = sorted({row.case.ranks for row in rows})
    colours = {count: COLORS[place % len(COLORS)] for place, count in enumerate(counts)}
    columns, names = min(3, len(panels)), len({row.label for row in rows})
    drawn = new_figure(SCREEN.width(columns), (_ROW * names + 1.4) * -(-len(panels) // columns))
    for axes, (kind, of) in zip(panel_grid(drawn, len(panels), columns), panels, strict=True):
        _panel(axes, of, colours)
        axes.set_title(", ".join(kind))
    heading(drawn, "Errors of sums: medians, and lines to the largest")
    handles = []
    for count, colour in colours.items():
        handles.append(Line2D([], [], color=colour, marker="o", label=counted(count, "rank")))
    drawn.legend(handles=handles, loc="outside right upper")
    return drawn


def _panel(axes: Axes, rows: Sequence[SumBits], colours: dict[int, str]) -> None:
    names = by_key(rows, lambda row: row.label)
    for place, of in enumerate(names.values()):
        for number, (count, colour) in enumerate(colours.items()):
            if errors := [row.error for row in of if row.case.ranks == count]:
                y = place + 0.7 * ((number + 0.5) / len(colours) - 0.5)
                typical = median(error.median for error in errors)
                axes.plot([typical, max(error.most for error in errors)], [y, y], color=colour, linewidth=1.2)
                axes.plot([typical], [y], color=colour, marker="o", linestyle="")
    name_rows(axes, list(names))
    axes.set_xscale("symlog", linthresh=0.1)  # sums may be exact
    decades = math.ceil(math.log10(max(1.0, *(row.error.most for row in rows)))) + 1
    ticks = [0.0, *(10.0**exponent for exponent in range(-1, decades, 1 + decades // 5))]
    axes.set(xlim=(0, 10.0**decades), xticks=ticks, xlabel="units in the last place (ULPs)")
    axes.xaxis.set_major_formatter("{x:g}")
    grid_along_x(axes)


KINDS = {"errors": Kind(order=65, rows=(SumBits,), needs="sums of random values", figures=run_by_run(figures))}
