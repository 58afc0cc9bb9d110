"""Which hypotheses explain a slow curve: by how likely its times are under each, and by what the header says.

Bayes' rule over the hypotheses and "something else", which may do anything to times: what is likelier than that is a
reason.  A likelihood has the model's own errors, as they go together on the machine that a hypothesis describes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from collbench.analysis.diagnose import likelihood
from collbench.analysis.diagnose.hypotheses import HYPOTHESES, Hypothesis
from collbench.analysis.diagnose.verdict import FEWEST
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.model.bands import SMALL
from collbench.model.doubt import Doubt, doubt, levels_of
from collbench.model.equation import Floats
from collbench.results import Observed, Prediction
from collbench.topology.system import System

Expect = Callable[[System, Sequence[Case], str], list[Prediction]]

NOTICED = 1.02  # times that a reason must make longer somewhere to be one
NOISY = 0.10  # how far times scatter about their neighbours, or samples about their median, on a machine at rest
NEARER = 0.9  # of the distance to the expected times, the most that may be left under a reason
HARDLY = math.log(10**6)  # by which a reason may be less likely than the first
TOLD_SO = math.log(1000)  # what a fact of the header adds to a reason's weight


@dataclass(frozen=True)
class Reason:
    """A hypothesis with its evidence: how far the times are from it, as a typical ratio, and facts of the header."""

    hypothesis: Hypothesis
    off: float  # between the measured time and the one under it: 1.1 for a tenth
    weight: float  # logarithm of how much likelier it is than something else
    facts: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """One curve by ascending size, beside what is expected of a healthy machine."""

    rows: Sequence[Observed]
    expected: Sequence[Prediction]
    system: System

    @property
    def sizes(self) -> list[int]:
        """Bytes."""
        return [row.case.nbytes for row in self.rows]

    @property
    def healthy(self) -> list[float]:
        """Seconds."""
        return [prediction.seconds for prediction in self.expected]

    def logs(self, seconds: Sequence[float]) -> Floats:
        """Logarithms of measured over other times."""
        return np.array([math.log(row.typical / other) for row, other in zip(self.rows, seconds, strict=True)])

    def doubt(self, system: System) -> Doubt:
        """How far the model may be off on a machine, at the sizes of the curve."""
        first = self.rows[0]
        return doubt(self.sizes, levels_of(system, first.case.collective.name, first.implementation))

    def off(self, seconds: Sequence[float]) -> float:
        """How far the measured times are from others, as a typical ratio.

        Sizes that were slow count as much together as the rest together: what explains a slow end is not lost among
        sizes that are right, nor may it spoil those.
        """
        far = np.abs(self.logs(seconds)).tolist()
        slow = [row.typical > other.high for row, other in zip(self.rows, self.expected, strict=True)]
        parts = [[one for one, there in zip(far, slow, strict=True) if there is wanted] for wanted in (True, False)]
        return math.exp(fmean(fmean(part) for part in parts if part))

    @property
    def scatter(self) -> float:
        """How far times over the expected ones lie from their neighbours' mean, or samples from their median.

        The greater of both, as a logarithm.
        """
        logs = self.logs(self.healthy)
        jumps = np.abs(logs[1:-1] - (logs[:-2] + logs[2:]) / 2)
        spreads = [math.log(row.percentile(90) / row.typical) for row in self.rows]
        return max(float(np.mean(jumps)), median(spreads))


@dataclass(frozen=True)
class Supposed:
    """Times under a hypothesis, and how far they may be off."""

    seconds: Sequence[float]
    doubt: Doubt


def explain(held: Held, variables: Mapping[str, str], caveats: Sequence[str], expect: Expect) -> Iterator[Reason]:
    """The reasons that the times speak for, the likeliest first; none is an answer too."""
    healthy = held.doubt(held.system)
    nothing = likelihood.of(held.logs(held.healthy), likelihood.anything(healthy, held.sizes))
    reasons = []
    for hypothesis in HYPOTHESES:
        facts = (*hypothesis.facts(variables, caveats), *_noise(hypothesis, held))
        variants = list(_variants(hypothesis, held, expect))
        if variants:
            best = max(variants, key=lambda variant: _likely(held, variant))
            weight = _together([_likely(held, variant) for variant in variants]) - nothing
            weight += math.log(hypothesis.prior) + (TOLD_SO if facts else 0.0)
            reasons.append(Reason(hypothesis, held.off(best.seconds), weight, facts))
    yield from told(reasons, math.log(held.off(held.healthy)))


def told(reasons: Iterable[Reason], nothing: float) -> Iterator[Reason]:
    """By weight: those likelier than something else, near the likeliest, and nearer to the times than no reason.

    `nothing` is the logarithm of how far the times are from the expected ones.
    """
    ranked = sorted(reasons, key=lambda reason: -reason.weight)
    for reason in ranked:
        if reason.weight > max(0.0, ranked[0].weight - HARDLY) and math.log(reason.off) < NEARER * nothing:
            yield reason


def _noise(hypothesis: Hypothesis, held: Held) -> Iterator[str]:
    """That times scatter, where it speaks for a hypothesis."""
    if hypothesis.shape == "fraction" and held.scatter >= NOISY:
        yield f"times scatter by {held.scatter:.0%}"


def _likely(held: Held, supposed: Supposed) -> float:
    return likelihood.of(held.logs(supposed.seconds), supposed.doubt)


def _together(logs: Sequence[float]) -> float:
    """Logarithm of the mean of likelihoods: variants are as likely as each other."""
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))


def _variants(hypothesis: Hypothesis, held: Held, expect: Expect) -> Iterator[Supposed]:
    """What the curve would be; nothing where the hypothesis does not apply, or would not be seen."""
    if hypothesis.shape:
        yield from _shaped(hypothesis, held)
        return
    for changed in hypothesis.changed(held.system):
        try:
            predictions = expect(changed, [row.case for row in held.rows], held.rows[0].implementation)
        except CollbenchError:
            continue
        seconds = [prediction.seconds for prediction in predictions]
        if any(other > NOTICED * usual for other, usual in zip(seconds, held.healthy, strict=True)):
            yield Supposed(seconds, held.doubt(changed))


def _shaped(hypothesis: Hypothesis, held: Held) -> Iterator[Supposed]:
    """The expected times with what fits best: a constant more, or all of it or its bytes at a fraction of the rate."""
    errors = held.doubt(held.system)
    if hypothesis.shape == "constant":
        yield from (Supposed(seconds, errors) for seconds in _with_a_constant(held))
    elif held.scatter >= NOISY:
        yield from (Supposed(seconds, likelihood.noisy(errors, held.scatter)) for seconds in _at_a_fraction(held))


def _at_a_fraction(held: Held) -> Iterator[list[float]]:
    """Of bytes, where the sizes say something of it; and of everything."""
    start = held.healthy[0]
    ratios = np.exp(held.logs(held.healthy))
    large = ratios[np.array(held.healthy) > 2 * start]
    if len(large):
        yield [start + max(1.0, float(np.median(large))) * (seconds - start) for seconds in held.healthy]
    yield [max(1.0, float(np.median(ratios))) * seconds for seconds in held.healthy]


def _with_a_constant(held: Held) -> Iterator[list[float]]:
    """None where too few sizes are small."""
    small = [(row, usual) for row, usual in zip(held.rows, held.healthy, strict=True) if row.case.nbytes < SMALL]
    if len(small) >= FEWEST:
        more = max(0.0, median(row.typical - usual for row, usual in small))
        yield [seconds + more for seconds in held.healthy]
