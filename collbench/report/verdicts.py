"""Whether the numbers are right, as `collbench diagnose` says: a verdict for each measured curve, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from collbench.analysis.curve_fit import CurveFit
from collbench.analysis.diagnose import Diagnosis, Health, RunFacts, diagnose, settings
from collbench.analysis.diagnose import curve_remarks as own_remarks
from collbench.analysis.fit import Curve, curves
from collbench.analysis.machine import remarks, sized
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.report.sanitize import Sound, plain
from collbench.results import Observed, observed
from collbench.topology.system import System

MOST = 40  # curves of a run that are fitted and judged: each takes a part of a second


class CurveVerdict(NamedTuple):
    """The verdict of one curve in words."""

    kind: str  # of case
    implementation: str
    verdict: Health
    because: tuple[str, ...]


class RunVerdicts(NamedTuple):
    """Those of one run, what spoils its numbers, and why nothing can be said."""

    curves: tuple[CurveVerdict, ...]
    notes: tuple[str, ...]
    silence: str = ""


def fitted(run: Sound) -> list[Curve]:
    """The first curves of the run, each with a fit or the reason for none."""
    kept = set(list(_curves(run))[:MOST])
    few = [result for result in run.run.results if (result.case.kind, result.implementation) in kept]
    return curves([replace(run.run, results=tuple(few))])


def _curves(run: Sound) -> dict[tuple[Case, str], list[Observed]]:
    """What was measured, by kind of case and implementation."""
    rows: dict[tuple[Case, str], list[Observed]] = {}
    for result in observed(run.run.results):
        rows.setdefault((result.case.kind, result.implementation), []).append(result)
    return rows


def judge(run: Sound, system: System | None, why_not: str, fits: Sequence[Curve]) -> RunVerdicts:
    """The first measured curves of the run against the system; never an error, whatever the run file holds."""
    try:
        facts = RunFacts(run.run.header.environment.variables, remarks(run.run), why_not)
        notes = (*facts.caveats, *(f"{setting} was set" for setting in settings(facts)))
    except Exception:  # any type may stand in a foreign header
        facts, notes = RunFacts({}, (), why_not), ()
    rows = _curves(run)
    if not rows:
        return RunVerdicts((), tuple(map(plain, notes)), "nothing was measured that a verdict could be about")
    known = {(curve.case, curve.implementation): curve.fit for curve in fits if curve.fit}
    judged = tuple(
        _judged(kind, samples, system, facts, known.get((kind, name)))
        for (kind, name), samples in list(rows.items())[:MOST]
    )
    left = len(rows) - len(judged)
    more = (f"{left} more curves are not judged here; `collbench diagnose` judges them all",) if left else ()
    return RunVerdicts(judged, (*map(plain, notes), *more))


def _judged(
    kind: Case, rows: Sequence[Observed], system: System | None, facts: RunFacts, fit: CurveFit | None
) -> CurveVerdict:
    """A curve against the system; `fit` is its own."""
    rows = sorted(rows, key=lambda row: row.case.nbytes)
    unknown = CurveVerdict(kind.title, rows[0].implementation, Health.UNKNOWN, ())
    if not all(row.case.nbytes for row in rows):
        return unknown._replace(because=("a size of no bytes has no bandwidth to judge",))
    try:
        diagnosis = diagnose(rows, sized(system, kind.ranks) if system else None, facts)
        own = fit if fit and len(fit.sizes) == len(rows) else None
        return unknown._replace(verdict=diagnosis.verdict, because=tuple(map(plain, _because(diagnosis, own))))
    except CollbenchError as error:
        return unknown._replace(because=(plain(str(error)),))
    except (ArithmeticError, ValueError) as error:  # sizes and times that no machine has
        return unknown._replace(because=(f"its numbers cannot be reckoned with ({type(error).__name__})",))


def _because(diagnosis: Diagnosis, own: CurveFit | None) -> Iterator[str]:
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
        yield from own_remarks(diagnosis.measured, own)
