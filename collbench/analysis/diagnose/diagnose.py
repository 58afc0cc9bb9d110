"""Whether measured times are as expected of a healthy machine; if slow, which hypotheses explain them best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.diagnose.explain import Expect, Held, Reason, explain
from collbench.analysis.diagnose.hypotheses import HYPOTHESES, Variables
from collbench.analysis.diagnose.verdict import FEWEST, Health, judge
from collbench.errors import CollbenchError
from collbench.model.predict import curve
from collbench.results import Observed, Prediction
from collbench.topology.system import System

TOLD = 3  # reasons


@dataclass(frozen=True)
class Diagnosis:
    """One curve: measured and expected, side by side."""

    implementation: str
    measured: tuple[Observed, ...]  # by size
    expected: tuple[Prediction, ...]  # as many, or none
    verdict: Health
    remark: str = ""  # why it is unknown, or where it is slow
    reasons: tuple[Reason, ...] = ()  # the likeliest first
    off: float = 1.0  # a typical ratio of measured to expected times, or its inverse
    limit: float = 0.0  # times slower than its kind that it would have to be to be called slow; 0: nothing to say

    def likely(self) -> Iterator[tuple[str, str]]:
        """The first reasons in words, each with what to do; those behind are hardly ever it."""
        for reason in self.reasons[:TOLD]:
            facts = f"; {'; '.join(reason.facts)}" if reason.facts else ""
            yield (
                f"{reason.hypothesis.name}: then {reason.off:.2f}x off instead of {self.off:.2f}x{facts}",
                reason.hypothesis.fix,
            )

    @property
    def unexplained(self) -> str:
        """What to say of a slow curve without a reason; nothing of any other."""
        if self.verdict is not Health.SLOW or self.reasons:
            return ""
        return f"reason: unknown; times are {self.off:.2f}x off, and nothing that the model can change explains them"

    @property
    def resolution(self) -> str:
        """What could not have been seen, of a curve that was judged; nothing of any other."""
        if self.verdict not in (Health.AS_EXPECTED, Health.FASTER):
            return ""
        return f"less than {self.limit:.1f}x slower cannot be told from healthy on this kind of machine"


@dataclass(frozen=True)
class Evidence:
    """What a run's header says that bears on the reasons."""

    variables: Variables
    caveats: tuple[str, ...] = ()
    no_system: str = "the machine is not known to the model"  # or why else there is no system to compare with


def diagnose(rows: Sequence[Observed], system: System | None, evidence: Evidence, expect: Expect = curve) -> Diagnosis:
    """One curve's rows, of one implementation and all sizes, against a system, or against none that is known."""
    rows = tuple(sorted(rows, key=lambda row: row.case.nbytes))
    name = rows[0].implementation
    if system is None:
        return Diagnosis(name, rows, (), Health.UNKNOWN, evidence.no_system)
    used = system.part(rows[0].case.ranks)
    try:
        expected = tuple(expect(used, [row.case for row in rows], name))
    except CollbenchError as error:
        return Diagnosis(name, rows, (), Health.UNKNOWN, f"nothing to compare with: {error}")
    if len(rows) < FEWEST:
        remark = f"{len(rows)} size{'s' if len(rows) > 1 else ''} measured; {FEWEST} are needed"
        return Diagnosis(name, rows, expected, Health.UNKNOWN, remark)
    held = Held(rows, expected, used)
    health, remark, limit = judge(held.sizes, held.logs(held.healthy), held.doubt(used))
    diagnosis = Diagnosis(name, rows, expected, health, remark, off=held.off(held.healthy), limit=limit)
    if health is not Health.SLOW:
        return diagnosis
    return replace(diagnosis, reasons=tuple(explain(held, evidence.variables, evidence.caveats, expect)))


def settings(evidence: Evidence) -> list[str]:
    """Variables of the header that would make a machine slow, whether or not they did."""
    return list(dict.fromkeys(fact for hypothesis in HYPOTHESES for fact in hypothesis.facts(evidence.variables, ())))
