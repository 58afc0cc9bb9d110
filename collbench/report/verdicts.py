"""Whether the numbers are right, as `collbench diagnose` says: a verdict for each measured curve, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from collbench.analysis.diagnose.diagnose import Diagnosis, Evidence, Health, diagnose, settings
from collbench.analysis.diagnose.own_shape import remarks as own_remarks
from collbench.analysis.fit.curve import CurveFit
from collbench.analysis.fit.runs import Curve, curves
from collbench.analysis.machine import remarks, sized
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.measurement import Observed, observed
from collbench.report.sanitize import Sound, plain
from collbench.topology.system import System

MOST = 40  # curves of a run that are fitted and judged: each takes a part of a second


@dataclass(frozen=True)
class Judged:
    """The verdict of one curve in words."""

    what: str  # kind of case
    implementation: str
    verdict: Health
    because: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """Of one run: its curves, what spoils its numbers, or why nothing can be said."""

    curves: tuple[Judged, ...]
    notes: tuple[str, ...]
    silence: str = ""


def fits(run: Sound) -> list[Curve]:
    """The first curves of the run, each with a fit or the reason for none."""
    kept: set[tuple[Case, str]] = set()
    for result in observed(run.run.results):
        if len(kept) < MOST:
            kept.add((result.case.kind, result.implementation))
    few = [result for result in run.run.results if (result.case.kind, result.implementation) in kept]
    return curves([replace(run.run, results=tuple(few))])


def judge(run: Sound, system: System | None, why_not: str, fitted: Sequence[Curve]) -> Judgement:
    """The first measured curves of the run against the system; never an error, whatever the run file holds."""
    found: dict[tuple[Case, str], list[Observed]] = {}
    for result in observed(run.run.results):
        found.setdefault((result.case.kind, result.implementation), []).append(result)
    try:
        facts = Evidence(run.run.header.environment.variables, remarks(run.run), why_not)
        notes = (*facts.caveats, *(f"{setting} was set" for setting in settings(facts)))
    except Exception:  # any type may stand in a foreign header
        facts, notes = Evidence({}, (), why_not), ()
    if not found:
        return Judgement((), tuple(map(plain, notes)), "nothing was measured that a verdict could be about")
    known = {(each.case, each.implementation): each.fit for each in fitted if each.fit}
    chosen = list(found.items())[:MOST]
    judged = tuple(_judged(key[0], rows, _Against(system, facts, known.get(key))) for key, rows in chosen)
    left = len(found) - len(judged)
    more = (f"{left} more curves are not judged here; `collbench diagnose` judges them all",) if left else ()
    return Judgement(judged, (*map(plain, notes), *more))


class _Against(NamedTuple):
    """What a curve is held against."""

    system: System | None
    facts: Evidence
    fit: CurveFit | None  # its own


def _judged(kind: Case, rows: Sequence[Observed], against: _Against) -> Judged:
    rows = sorted(rows, key=lambda row: row.case.nbytes)
    unknown = Judged(kind.title, rows[0].implementation, Health.UNKNOWN, ())
    if not all(row.case.nbytes for row in rows):
        return replace(unknown, because=("a size of no bytes has no bandwidth to judge",))
    try:
        system = sized(against.system, kind.ranks) if against.system else None
        found = diagnose(rows, system, against.facts)
        own = against.fit if against.fit and len(against.fit.sizes) == len(rows) else None
        return replace(unknown, verdict=found.verdict, because=tuple(map(plain, _because(found, own))))
    except CollbenchError as error:
        return replace(unknown, because=(plain(str(error)),))
    except (ArithmeticError, ValueError) as error:  # sizes and times that no machine has
        return replace(unknown, because=(f"its numbers cannot be reckoned with ({type(error).__name__})",))


def _because(found: Diagnosis, own: CurveFit | None) -> Iterator[str]:
    if found.remark:
        yield found.remark
    for why, fix in found.likely():
        yield f"likely: {why}"
        yield f"to do: {fix}"
    if found.unexplained:
        yield found.unexplained
    if not found.expected:
        yield from own_remarks(found.measured, own)
