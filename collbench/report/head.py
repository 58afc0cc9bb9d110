"""What stands above everything: the title, and of each run what its numbers are, how many, and whether it is whole."""

from collections.abc import Sequence
from typing import NamedTuple

from collbench.report.sanitize import Sound, plain
from collbench.report.sections import distinct, listed
from collbench.results import (
    Explanation,
    Measurement,
    PlannedStep,
    Prediction,
    Reported,
    Result,
    StepPrediction,
    StepTimes,
    Trained,
)
from collbench.runfile.store import INTERRUPTED

_STATUSES: dict[str, tuple[type, ...]] = {
    "measured": (Measurement, StepTimes, Trained, Explanation),
    "imported": (Reported,),
    "predicted": (Prediction, StepPrediction, PlannedStep),
}


class About(NamedTuple):
    """A run below the title."""

    label: str
    statuses: list[str]  # each a class of report.css: measured, imported, predicted
    partial: str  # what is missing of it
    machine: str
    facts: list[str]


def title_of(runs: Sequence[Sound]) -> str:
    """The title of the page."""
    collectives = distinct(_subject(result) for run in runs for result in run.every)
    return f"{listed(collectives) or 'collectives'}: {listed(distinct(run.machine for run in runs), '; ')}"


def _subject(result: Result) -> str:
    """What a row is about; the collective of a plan stands for its gradients only."""
    return "training plan" if isinstance(result, PlannedStep) else result.case.collective.name


def about(run: Sound) -> About:
    """What its numbers are, how many rows there are, who printed them, and when it was started."""
    header = run.run.header
    facts = [f"{len(run.every):,} row{'' if len(run.every) == 1 else 's'}"]
    tool = " ".join(filter(None, (header.imported.tool, header.imported.version)))
    facts += [f"from {plain(tool, 60)}"] if tool else []
    facts += [f"started {plain(header.started, 40)}"] if header.started else []
    return About(run.label, statuses(run), partial(run), run.machine, facts)


def statuses(run: Sound) -> list[str]:
    """How its numbers came to be known: `measured` here, `imported`, `predicted`, or `no numbers`."""
    kinds = {type(result) for result in run.every}
    return [status for status, types in _STATUSES.items() if kinds & {*types}] or ["no numbers"]


def partial(run: Sound) -> str:
    """What is missing of it; nothing where it is whole."""
    if not run.run.complete:
        return "partial: the run was cut off"
    if (run.run.status or 0) >= INTERRUPTED:
        return "partial: the run was interrupted"
    return "" if run.run.header.imported.complete else "partial: the log was cut off"
