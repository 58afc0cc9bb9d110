"""The figure of what planned layouts need of a GPU's memory, against what it has."""

from collbench.analysis.plans import planned
from collbench.plots.bars import Axis, Bar, figure, label, of_what
from collbench.plots.kinds import Kind, Named, Wanted, run_by_run
from collbench.results import PlannedStep
from collbench.runfile.store import Run

_GIB = 2.0**30


def figures(run: Run, wanted: Wanted) -> Named:
    """One for layouts whose memory is known, in the order of the file; the line is the smallest GPU's."""
    rows = [row for row in planned(run.results, "layout") if row.needed > 0]
    shown = [row for row in rows if wanted.shows(row.implementation)]
    if shown:
        capacity = min(row.capacity for row in rows) / _GIB
        bars = [Bar(label(row, rows), _gib(row), None, f"{row.needed / row.capacity:.0%}") for row in shown]
        axis = Axis("memory of a GPU in the stage that needs most", _tick, capacity, f"it has {capacity:.4g} GiB")
        yield "memory", figure(bars, axis, f"What the memory of a GPU holds: {of_what(run, rows)}")


def _gib(row: PlannedStep) -> dict[str, float]:
    """So that ticks are whole numbers of them."""
    return {part: value / _GIB for part, value in row.memory.items()}


def _tick(value: float) -> str:
    return f"{value:.4g} GiB"


KIND = Kind(order=72, rows=(PlannedStep,), needs="planned layouts with their memory", figures=run_by_run(figures))
