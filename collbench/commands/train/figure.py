"""The figure of plans of a training run: where the time of a step goes in each layout."""

from collections.abc import Sequence

from collbench.commands.train.rows import PlannedStep, words
from collbench.commands.train.section import planned
from collbench.host.sanitize import text
from collbench.plots.axes import grid_along_x, heading, name_rows, patch_legend, seconds_tick
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import DARK, OTHERS, STEP_PARTS, Figure, new_figure, style
from collbench.runfile.store import Run
from collbench.units import counted, format_seconds

LABEL, MACHINE = 52, 60  # most characters of the name of a bar, and of a machine
_MOST_BARS = 24  # in a figure: more are too thin to read
_WIDTH = 11.0  # inches


def _layouts(run: Run, request: PlotRequest) -> Named:
    """Yield a figure of the time of a step in each planned layout."""
    rows = planned(run.results, "layout")
    shown = [row for row in rows if request.shows(row.implementation)]
    if shown:
        yield (
            "layouts",
            _stacked(shown, f"{text(run.header.topology.name, MACHINE)}, {counted(rows[0].gpus, 'GPU')}, predicted"),
        )


@style()
def _stacked(rows: Sequence[PlannedStep], machine: str) -> Figure:
    """Draw a bar for each row, the first at the top, with its name and its time; a line spans the band of its step."""
    shown = rows[:_MOST_BARS]
    more = f"; the first {len(shown)} of {len(rows):,}" if len(rows) > len(shown) else ""
    drawn = new_figure(_WIDTH, 0.45 * len(shown) + 2.2)
    axes = drawn.subplots()
    longest = 0.0
    for place, row in enumerate(shown):
        longest = max(longest, row.typical, row.high)
        left = 0.0
        for part, length in row.parts.items():
            colour = STEP_PARTS.get(part, OTHERS)
            axes.barh(place, length, left=left, height=0.72, color=colour, edgecolor="white", linewidth=0.4)
            left += length
        axes.hlines(place, *row.band, color=DARK, linewidth=1.2)
        axes.plot(row.band, (place, place), "|", color=DARK, markersize=7)
    axes.set_xlim(0, 1.02 * longest)
    names = []
    for row in shown:
        step = f"{format_seconds(row.typical)}, MFU {row.utilisation:.0%}"
        names.append(f"{text(row.implementation, LABEL)}\n{step}")
    name_rows(axes, names)
    axes.set_ylim(top=-0.6)
    axes.xaxis.set_major_formatter(seconds_tick)
    grid_along_x(axes)
    axes.set_xlabel("seconds of a step; the line spans where nine in ten should lie")
    heading(drawn, f"Where the time of a step goes: {machine}{more}")
    # In the order in which they lie in the bars; what is too short to be seen needs no legend.
    seen: dict[str, None] = {}
    for row in shown:
        seen |= dict.fromkeys(row.parts)
    for part in list(seen):
        if all(row.parts.get(part, 0.0) <= longest / 1000 for row in shown):
            del seen[part]
    patch_legend(drawn, {words(name): STEP_PARTS.get(name, OTHERS) for name in seen}, min(5, len(seen)))
    return drawn


KINDS = {"layouts": Kind(70, (PlannedStep,), "planned layouts", run_by_run(_layouts))}
