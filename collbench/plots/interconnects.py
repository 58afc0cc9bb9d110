"""The figure of one training run on several interconnects: where the time of its step goes on each."""

from collbench.analysis.plans import planned
from collbench.plots.bars import SECONDS, Bar, figure
from collbench.plots.kinds import Kind, Named, Wanted, run_by_run
from collbench.plots.layouts import said
from collbench.results import PlannedStep
from collbench.runfile.store import Run
from collbench.units import format_figure

_SECONDS = SECONDS._replace(name=f"{SECONDS.name}; 2x: a token takes twice as long as on the fastest")


def figures(run: Run, wanted: Wanted) -> Named:
    """One, if systems were compared; in the order of the file."""
    rows = planned(run.results, "interconnect")
    shown = [row for row in rows if wanted.shows(row.implementation)]
    if shown:
        best = min(row.typical / row.tokens for row in rows)
        bars = [Bar(_label(row, rows), row.parts, row.band, f"{said(row)}{_behind(row, best)}") for row in shown]
        counts = sorted({row.gpus for row in rows})
        many = f"{counts[0]:,}{f' to {counts[-1]:,}' if len(counts) > 1 else ''} GPUs"
        yield "interconnects", figure(bars, _SECONDS, f"A step by its interconnect: {many}, predicted")


def _label(row: PlannedStep, rows: list[PlannedStep]) -> str:
    """The system; its layout too where a system has several, its GPUs where they differ."""
    same = [other for other in rows if other.system == row.system]
    more = [row.implementation] if len(same) > 1 else []
    more += [f"{row.gpus:,} GPUs"] if len({other.gpus for other in rows}) > 1 else []
    return ", ".join([row.system, *more])


def _behind(row: PlannedStep, best: float) -> str:
    """How much longer its tokens take than the fastest's."""
    more = row.typical / row.tokens / best
    return f", {format_figure(more)}x" if more > 1.005 else ""


KIND = Kind(order=80, rows=(PlannedStep,), needs="plans for several interconnects", figures=run_by_run(figures))
