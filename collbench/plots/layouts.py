"""The figure of a search for layouts: where the time of an expected step goes, in the order of their ranks."""

from collbench.analysis.plans import planned
from collbench.plots.bars import SECONDS, Bar, figure, label, of_what
from collbench.plots.kinds import Kind, Named, Wanted, run_by_run
from collbench.results import PlannedStep
from collbench.runfile.store import Run
from collbench.units import format_seconds


def figures(run: Run, wanted: Wanted) -> Named:
    """One, if layouts were ranked; in the order of the file."""
    rows = planned(run.results, "layout")
    shown = [row for row in rows if wanted.shows(row.implementation)]
    if shown:
        bars = [Bar(label(row, rows), row.parts, row.band, said(row)) for row in shown]
        yield "layouts", figure(bars, SECONDS, f"Where the time of a step goes: {of_what(run, rows)}")


def said(row: PlannedStep) -> str:
    """Of a step, behind its bar."""
    return f"{format_seconds(row.typical)}, MFU {row.utilisation:.0%}"


KIND = Kind(order=70, rows=(PlannedStep,), needs="planned layouts", figures=run_by_run(figures))
