"""Whether the numbers are right, as `collbench diagnose` says: a verdict for each measured curve, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.diagnose import Diagnosis, Facts, Verdict, diagnose, settings
from collbench.analysis.machine import remarks, sized, variables
from collbench.analysis.own_shape import remarks as own_remarks
from collbench.errors import CollbenchError
from collbench.measurement import Observed, observed
from collbench.report.sound import Sound, plain
from collbench.sweep import Case
from collbench.table import title
from collbench.topology.system import System

REASONS = 3  # shown; those behind are hardly ever it
MOST = 60  # curves of a run that are judged: each takes a part of a second


@dataclass(frozen=True)
class Judged:
    """The verdict of one curve in words."""

    what: str  # kind of case
    implementation: str
    verdict: Verdict
    because: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """Of one run: its curves, what spoils its numbers, or why nothing can be said."""

    curves: tuple[Judged, ...]
    notes: tuple[str, ...]
    silence: str = ""


def judge(run: Sound, system: System | None, why_not: str) -> Judgement:
    """Every measured curve of the run against the system; never an error, whatever the run file holds."""
    curves: dict[tuple[Case, str], list[Observed]] = {}
    for each in observed(run.run.results):
        curves.setdefault((replace(each.case, nbytes=0), each.implementation), []).append(each)
    try:
        facts = Facts(variables(run.run), remarks(run.run), why_not)
        notes = (*facts.caveats, *(f"{each} was set" for each in settings(facts)))
    except Exception:  # any type may stand in a foreign header
        facts, notes = Facts({}, (), why_not), ()
    if not curves:
        return Judgement((), tuple(map(plain, notes)), "nothing was measured that a verdict could be about")
    chosen = list(curves.items())[:MOST]
    found = tuple(_judged(kind, rows, system, facts) for (kind, _), rows in chosen)
    left = len(curves) - len(found)
    more = (f"{left} more curves are not judged here; `collbench diagnose` judges them all",) if left else ()
    return Judgement(found, (*map(plain, notes), *more))


def _judged(kind: Case, rows: Sequence[Observed], system: System | None, facts: Facts) -> Judged:
    rows = sorted(rows, key=lambda each: each.case.nbytes)
    unknown = Judged(title(kind), rows[0].implementation, Verdict.UNKNOWN, ())
    if not all(each.case.nbytes for each in rows):
        return replace(unknown, because=("a size of no bytes has no bandwidth to judge",))
    try:
        found = diagnose(rows, sized(system, kind.ranks) if system else None, facts)
        return replace(unknown, verdict=found.verdict, because=tuple(map(plain, _because(found))))
    except CollbenchError as error:
        return replace(unknown, because=(plain(str(error)),))
    except (ArithmeticError, ValueError) as error:  # sizes and times that no machine has
        return replace(unknown, because=(f"its numbers cannot be reckoned with ({type(error).__name__})",))


def _because(found: Diagnosis) -> Iterator[str]:
    if found.remark:
        yield found.remark
    for each in found.reasons[:REASONS]:
        facts = f"; {'; '.join(each.facts)}" if each.facts else ""
        yield f"likely: {each.hypothesis.name} (then {each.off:.2f}x off instead of {found.off:.2f}x){facts}"
        yield f"to do: {each.hypothesis.fix}"
    if found.verdict is Verdict.SLOW and not found.reasons:
        yield f"reason unknown; times are {found.off:.2f}x off, and nothing that the model can change explains them"
    if not found.expected:
        yield from own_remarks(found.measured)
