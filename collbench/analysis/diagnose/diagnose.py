"""Whether measured times are as expected, by the model's bands; if slow, which hypotheses explain them best."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import fmean, median

from collbench.analysis.diagnose.hypotheses import HYPOTHESES, Hypothesis, Variables
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.measurement import Prediction
from collbench.model.predict import LARGE, curve, regime
from collbench.model.schedule import TABLED
from collbench.observed import Observed
from collbench.topology.system import System
from collbench.units import format_size

Expect = Callable[[System, Sequence[Case], str], list[Prediction]]

FEWEST = 3  # sizes that a verdict needs
TOLD = 3  # reasons
MARGIN = math.log(1.25)  # beyond the band: what a machine may be slower than others of its kind, and still be right
LOOSE = math.log(2)  # the same for what NCCL's own table does not cost: operations made of sends and receives
CEILING = {"one node": 1.25, "nodes over InfiniBand": 1.3, "nodes over others": 1.8, "pcie": 1.6}
"""Times the expected time that a healthy machine takes at most at the bandwidth end, where the model knows most.

Bands are quantiles of all collectives and machines together, some of which the model does not follow.
"""
EXPLAINED = 0.6  # of the distance from the expected times, the most that may be left under a likely reason
PLAUSIBLE = 2.5  # times off that a reason may leave; beyond, something else is wrong too, and it is not known
SIGNED = 0.9  # the same where a fact of the header speaks for the reason
PENALTY = 0.05  # logarithm of a ratio that each reason must gain over nothing, and each variant after the first
NOTICED = 1.02  # times that a reason must make longer somewhere to be one
SMALL = 2**16  # bytes up to which latency is what counts
NOISY = 0.10  # how far times scatter about their neighbours, or samples about their median, on a machine at rest


class Health(Enum):
    """Of one curve."""

    AS_EXPECTED = "as expected"
    SLOW = "slow"
    FASTER = "faster than modelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reason:
    """A hypothesis with its evidence: how far the times are from it, as a typical ratio, and facts of the header."""

    hypothesis: Hypothesis
    off: float  # between the measured time and the one under it: 1.1 for a tenth
    left: float  # its logarithm and the penalties
    facts: tuple[str, ...]


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
        predictions = expect(used, [row.case for row in rows], name)
    except CollbenchError as error:
        return Diagnosis(name, rows, (), Health.UNKNOWN, f"nothing to compare with: {error}")
    expected = tuple(_narrowed(prediction, regime(used)) for prediction in predictions)
    if len(rows) < FEWEST:
        remark = f"{len(rows)} size{'s' if len(rows) > 1 else ''} measured; {FEWEST} are needed"
        return Diagnosis(name, rows, expected, Health.UNKNOWN, remark)
    verdict, remark = judge(rows, expected)
    diagnosis = Diagnosis(name, rows, expected, verdict, remark)
    diagnosis = replace(diagnosis, off=math.exp(_distance(diagnosis, _seconds(expected))))
    if verdict is not Health.SLOW:
        return diagnosis
    return replace(diagnosis, reasons=tuple(explain(diagnosis, used, evidence, expect)))


def _narrowed(expected: Prediction, where: str) -> Prediction:
    """With no more above than a healthy machine may take."""
    if expected.case.nbytes < LARGE or expected.case.collective.name not in TABLED:
        return expected
    return replace(expected, high=min(expected.high, CEILING[where] * expected.seconds))


def _seconds(predictions: Sequence[Prediction]) -> list[float]:
    return [prediction.seconds for prediction in predictions]


def _distances(rows: Sequence[Observed], seconds: Sequence[float]) -> list[float]:
    """Logarithms of measured over other times."""
    return [math.log(row.typical / other) for row, other in zip(rows, seconds, strict=True)]


def _distance(diagnosis: Diagnosis, seconds: Sequence[float]) -> float:
    """How far the measured times are from others: sizes that were slow count as much together as the rest together.

    So what explains a slow end is not lost among sizes that are right, nor may it spoil those.
    """
    off = [abs(distance) for distance in _distances(diagnosis.measured, seconds)]
    slow = [row.typical > other.high for row, other in zip(diagnosis.measured, diagnosis.expected, strict=True)]
    parts = [[far for far, there in zip(off, slow, strict=True) if there is wanted] for wanted in (True, False)]
    return fmean(fmean(part) for part in parts if part)


def judge(rows: Sequence[Observed], expected: Sequence[Prediction]) -> tuple[Health, str]:
    """Slow where half of the sizes, neighbours, or the bandwidth end lie beyond their bands, by the median of them.

    A few sizes beyond are none of the machine's: outliers, or where the library changes its algorithm.
    """
    above = _distances(rows, [prediction.high for prediction in expected])
    below = [-distance for distance in _distances(rows, [prediction.low for prediction in expected])]
    for verdict, beyond, at_end in ((Health.SLOW, above, 0.0), (Health.FASTER, below, MARGIN)):
        place = _worst(beyond, rows, at_end)
        if place is not None:
            ratio = rows[place].typical / expected[place].seconds
            sizes = f"{sum(distance > 0 for distance in beyond)} of {len(rows)} sizes are beyond the band"
            where = format_size(rows[place].case.nbytes)
            return verdict, f"{ratio:.2g} times the expected time at {where}, {sizes}"
    return Health.AS_EXPECTED, ""


def _worst(beyond: Sequence[float], rows: Sequence[Observed], at_end: float) -> int | None:
    """The middle of the stretch that is furthest beyond its bands, if any is by more than its margin."""
    loose = rows[0].case.collective.name not in TABLED
    excess = {
        stretch: median(beyond[i] for i in stretch) - (LOOSE if loose else margin)
        for stretch, margin in _stretches([row.case.nbytes for row in rows], at_end)
    }
    worst = max(excess, key=lambda stretch: excess[stretch])
    return worst[len(worst) // 2] if excess[worst] > 0 else None


def _stretches(sizes: Sequence[int], at_end: float) -> list[tuple[range, float]]:
    """Neighbours whose median decides, with their margins: each half of the sizes, and the bandwidth end."""
    half = max(FEWEST, len(sizes) // 2)
    halves = [(range(first, first + half), MARGIN) for first in range(len(sizes) - half + 1)]
    end = sum(size < LARGE for size in sizes)
    return [*halves, (range(end, len(sizes)), at_end)] if len(sizes) - end >= FEWEST else halves


def settings(evidence: Evidence) -> list[str]:
    """Variables of the header that would make a machine slow, whether or not they did."""
    return list(dict.fromkeys(fact for hypothesis in HYPOTHESES for fact in hypothesis.facts(evidence.variables, ())))


def explain(diagnosis: Diagnosis, system: System, evidence: Evidence, expect: Expect = curve) -> Iterator[Reason]:
    """The reasons that the times speak for, the likeliest first; none is an answer too."""
    nothing = math.log(diagnosis.off)
    reasons = []
    for hypothesis in HYPOTHESES:
        said = tuple(hypothesis.facts(evidence.variables, evidence.caveats))
        reason = _best(hypothesis, said, diagnosis, _variants(hypothesis, diagnosis, system, expect))
        least = SIGNED if said else EXPLAINED
        if reason and reason.left <= nothing * least and reason.off <= PLAUSIBLE:
            reasons.append(reason)
    yield from sorted(reasons, key=lambda reason: (not reason.facts, reason.left))


def _best(
    hypothesis: Hypothesis, said: tuple[str, ...], diagnosis: Diagnosis, curves: Sequence[Sequence[float]]
) -> Reason | None:
    """The curve that fits best, each further one being a little less likely; None if there is none."""
    distances = [_distance(diagnosis, seconds) for seconds in curves]
    reasons = [
        Reason(hypothesis, math.exp(off), off + PENALTY * (1 + number / 2), said)
        for number, off in enumerate(distances)
    ]
    return min(reasons, key=lambda reason: reason.left, default=None)


def _variants(hypothesis: Hypothesis, diagnosis: Diagnosis, system: System, expect: Expect) -> list[list[float]]:
    """Seconds at each measured size under a hypothesis, in all its variants; none where it does not apply."""
    rows, healthy = diagnosis.measured, _seconds(diagnosis.expected)
    if hypothesis.shape:
        quiet = hypothesis.needs_noise and scatter(rows, healthy) < NOISY
        shaped = [] if quiet else _shaped(hypothesis.shape, rows, healthy)
        return [shaped] if shaped else []
    curves = []
    for changed in hypothesis.changed(system):
        try:
            seconds = _seconds(expect(changed, [row.case for row in rows], diagnosis.implementation))
        except CollbenchError:
            continue
        if any(other > NOTICED * usual for other, usual in zip(seconds, healthy, strict=True)):
            curves.append(seconds)
    return curves


def _shaped(shape: str, rows: Sequence[Observed], healthy: Sequence[float]) -> list[float]:
    """The expected times with what fits best: a constant more, or their bytes at a fraction of the rate.

    None where the sizes say nothing of it.
    """
    if shape == "fraction":
        start = healthy[0]
        times = [row.typical / usual for row, usual in zip(rows, healthy, strict=True) if usual > 2 * start]
        return [start + max(1.0, median(times)) * (seconds - start) for seconds in healthy] if times else []
    excess = [row.typical - usual for row, usual in zip(rows, healthy, strict=True) if row.case.nbytes <= SMALL]
    if len(excess) < FEWEST:
        return []
    more = max(0.0, median(excess))
    return [seconds + more for seconds in healthy]


def scatter(rows: Sequence[Observed], healthy: Sequence[float]) -> float:
    """How far times over the expected ones lie from their neighbours' mean, or samples from their median.

    The greater of both, as a logarithm.
    """
    logs = _distances(rows, healthy)
    jumps = [abs(here - (before + after) / 2) for before, here, after in zip(logs, logs[1:], logs[2:], strict=False)]
    spreads = [math.log(row.percentile(90) / row.typical) for row in rows]
    return max(fmean(jumps), median(spreads))
