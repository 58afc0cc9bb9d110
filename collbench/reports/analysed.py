"""What the analyses say of a run: its machine as a system, the fit of each curve, and whether its numbers are right."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from collbench.analysis.curve_fit import CurveFit
from collbench.analysis.diagnose import Diagnosis, RunFacts, curve_remarks, diagnose, settings
from collbench.analysis.fit import Curve, curves
from collbench.analysis.machine import machine, sized, stated_nodes, trimmed
from collbench.analysis.verdict import Health, but_for
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.reports.sanitize import SafeRun, safe_text
from collbench.results import Observed, by_key, observed
from collbench.runfile.store import Run
from collbench.topology import files
from collbench.topology.files import to_toml
from collbench.topology.system import System

_MOST_CURVES = 40  # of a run that are fitted and judged: each takes a part of a second
_MOST_GPUS = 1024  # of a header's machine: pairs of them are counted


class CurveVerdict(NamedTuple):
    """Whether one curve is as fast as it should be, as `collbench diagnose` says."""

    kind: str  # of case
    implementation: str
    verdict: Health
    because: tuple[str, ...]


@dataclass(frozen=True)
class AnalysedRun:
    """A run and what its analyses say."""

    safe: SafeRun
    system: System | None
    why_not: str  # why there is no system
    curves: Sequence[Curve]  # with their fits
    verdicts: tuple[CurveVerdict, ...]  # of measured curves
    notes: tuple[str, ...]  # what spoils the numbers of the run

    @property
    def run(self) -> Run:
        """The run itself."""
        return self.safe.run

    @property
    def label(self) -> str:
        """Its name in the report."""
        return self.safe.label


def analysed(safe: SafeRun, system_name: str | None) -> AnalysedRun:
    """Analyse a run; `system_name` is a preset or FILE.toml that its machine is known to be.

    Raises:
        UsageError: There is no such system.  Nothing that a run file holds is an error.

    """
    system, why_not = _system_of(safe.run, system_name)
    rows = by_key(observed(safe.run.cases), lambda result: (result.case.kind, result.implementation))
    judged = dict(list(rows.items())[:_MOST_CURVES])
    few = tuple(result for result in safe.run.cases if (result.case.kind, result.implementation) in judged)
    fits = curves([replace(safe.run, results=few)])
    try:
        facts = RunFacts.of(safe.run, why_not)
        notes = [*facts.caveats, *(f"{setting} was set" for setting in settings(facts))]
    except Exception:  # any type may stand in a foreign header
        facts, notes = RunFacts({}, (), why_not), []
    nodes = stated_nodes(system, safe.run) if system else 0
    if system and nodes:
        system = sized(system, safe.run.header.topology.ranks, nodes)
    if nodes is None and (why := trimmed(safe.run)):
        facts, notes = replace(facts, unplaced=why), [*notes, why]
    fit_of = {(curve.case, curve.implementation): curve.fit for curve in fits}
    verdicts = [
        _verdict(kind, samples, system, facts, fit_of.get((kind, name))) for (kind, name), samples in judged.items()
    ]
    if len(rows) > len(judged):
        notes.append(f"{len(rows) - len(judged)} more curves are not judged here; `collbench diagnose` judges them all")
    return AnalysedRun(safe, system, why_not, fits, tuple(verdicts), tuple(map(safe_text, notes)))


def _system_of(run: Run, name: str | None) -> tuple[System | None, str]:
    """Return the machine as a System, as named, described or discovered; else None, and why."""
    topology = run.header.topology
    if name:
        files.load(name)
    what = "system" if topology.model else "topology"
    try:
        if topology.model and not name:
            # Read like a user's file, so that it is no odder than those.  A calibration would name a file of the
            # machine that the run comes from.
            system = replace(msgspec.convert(topology.system, System), calibration="")
            system = files.parse(tomllib.loads(to_toml(system)), Path("the header"))
        elif len(topology.gpus) > _MOST_GPUS and not name:
            return None, f"more than {_MOST_GPUS} GPUs in one header"
        else:
            system = machine(run, name)
        stated_nodes(system, run)  # UsageError where the ranks cannot lie so on it
        return system, ""
    except CollbenchError as error:
        return None, safe_text(str(error))
    except Exception as error:
        # Any type may stand anywhere in a foreign header, so any error may come of reading it.
        return None, f"the header's {what} cannot be read ({safe_text(type(error).__name__)})"


def _verdict(
    kind: Case, rows: Sequence[Observed], system: System | None, facts: RunFacts, fit: CurveFit | None
) -> CurveVerdict:
    """Return the verdict of a curve against the system; never an error, whatever the run file holds."""
    rows = sorted(rows, key=lambda row: row.case.nbytes)
    unknown = CurveVerdict(kind.title, rows[0].implementation, Health.UNKNOWN, ())
    if not all(row.case.nbytes for row in rows):
        return unknown._replace(because=("a size of no bytes has no bandwidth to judge",))
    try:
        diagnosis = diagnose(rows, sized(system, kind.ranks) if system else None, facts)
        whole_fit = fit if fit and len(fit.sizes) == len(rows) else None
        because = tuple(map(safe_text, _because(diagnosis, whole_fit)))
        return unknown._replace(verdict=diagnosis.verdict, because=because)
    except CollbenchError as error:
        return unknown._replace(because=(safe_text(str(error)),))
    except (ArithmeticError, ValueError) as error:  # sizes and times that no machine has
        return unknown._replace(because=(f"its numbers cannot be calculated with ({type(error).__name__})",))


def _because(diagnosis: Diagnosis, fit: CurveFit | None) -> Iterator[str]:
    if diagnosis.exceptions:
        yield but_for(diagnosis.exceptions, len(diagnosis.measured)).strip()
    if diagnosis.remark:
        yield diagnosis.remark
    if diagnosis.resolution:
        yield diagnosis.resolution
    for why, fix in diagnosis.likely():
        yield f"likely: {why}"
        yield f"to do: {fix}"
    if diagnosis.unexplained:
        yield diagnosis.unexplained
    if not diagnosis.expected:
        yield from curve_remarks(diagnosis.measured, fit)
