"""What a comparison judges: a case by one implementation, or all its sizes together; and the rule of the verdict."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import fmean, stdev

from collbench.analysis.compare.estimate import Estimate
from collbench.cases import Case
from collbench.results import Observed
from collbench.stats import student

FEWEST_SIZES = 4  # that a mean over sizes is made of


class Verdict(Enum):
    """Of a row, or of all sizes together."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    UNKNOWN = "unknown"


def verdict(interval: tuple[float, float], margin: float) -> Verdict:
    """What an interval of the ratio says; what is surely within the margin is the same, even if it is surely not 1."""
    low, high = interval
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return Verdict.SAME
    if low > 1:
        return Verdict.SLOWER
    return Verdict.FASTER if high < 1 else Verdict.INCONCLUSIVE


class Judged:
    """A ratio NEW/BASE of times with its verdict."""

    ratio: float
    interval: tuple[float, float]  # NaN where nothing is known
    verdict: Verdict

    def regression(self, margin: float) -> bool:
        """Whether it is slower, and by more than the margin."""
        return self.verdict is Verdict.SLOWER and self.ratio > 1 + margin


@dataclass(frozen=True)
class Row(Judged):
    """A case by one implementation in both runs: seconds of an operation, and the interval of their ratio NEW/BASE."""

    base: Observed
    new: Observed
    before: float
    after: float
    ratio: float
    interval: tuple[float, float]
    verdict: Verdict
    remark: str = ""

    @property
    def case(self) -> Case:
        """The same in both runs."""
        return self.base.case

    @property
    def implementation(self) -> str:
        """The same in both runs."""
        return self.base.implementation

    def hides(self, margin: float) -> bool:
        """Whether a regression cannot be excluded."""
        return not self.regression(margin) and not self.interval[1] <= 1 + margin


@dataclass(frozen=True)
class Together(Judged):
    """All sizes of a kind of case by one implementation: the geometric mean of their ratios, and its interval.

    A change too small to be told at any one size is told by all of them, if they agree.
    """

    case: Case  # of no size
    implementation: str
    sizes: int
    ratio: float
    interval: tuple[float, float]
    verdict: Verdict


def judged(base: Observed, new: Observed, log: float, interval: tuple[float, float], margin: float) -> Row:
    """The row of a ratio that is given as a logarithm."""
    return Row(base, new, base.typical, new.typical, math.exp(log), interval, verdict(interval, margin))


def by_curve(results: Iterable[Observed]) -> list[list[Observed]]:
    """Results of one kind of case and implementation, by size, where there are FEWEST_SIZES of them or more."""
    curves: dict[object, list[Observed]] = {}
    for result in results:
        curves.setdefault((result.case.kind, result.implementation), []).append(result)
    long = (curve for curve in curves.values() if len(curve) >= FEWEST_SIZES)
    return [sorted(curve, key=lambda result: result.case.nbytes) for curve in long]


def together(curve: Sequence[tuple[Observed, Estimate]], confidence: float, margin: float) -> Together:
    """Of a result by each size and the estimate of its ratio: sizes are so many looks at one change.

    Student's interval of the mean logarithm, with as many looks as the sizes are worth.  Their spread holds their own
    errors and what the machine did to each; a change that is larger at some sizes than at others widens it, too.  What
    the start of a run's ranks did to all sizes alike does not show in that spread, and is added.
    """
    logs = [estimate.log for _, estimate in curve]
    looks, centre = _looks(logs), fmean(logs)
    freedom = int((looks + len(logs)) / 2) - 1  # simulated: so many of the spread, which likeness spoils less
    shared = math.sqrt(fmean(estimate.shared**2 for _, estimate in curve))
    reach = student(0.5 + confidence / 2, freedom) * math.hypot(stdev(logs) / math.sqrt(looks), shared)
    interval = math.exp(centre - reach), math.exp(centre + reach)
    first = curve[0][0]
    ratio = math.exp(centre)
    return Together(first.case.kind, first.implementation, len(curve), ratio, interval, verdict(interval, margin))


def _looks(logs: Sequence[float]) -> float:
    """How many independent values say as much: neighbours were measured one after the other, and are alike.

    By the correlation r of neighbours, n (1 - r) / (1 + r); G. Bayley and J. Hammersley (1946).
    """
    centre = fmean(logs)
    apart = [log - centre for log in logs]
    square = sum(distance**2 for distance in apart)
    alike = sum(one * other for one, other in pairwise(apart)) / square if square else 0.0
    # Of few values that are not alike at all, this comes out at -1/n on average.
    alike = min(0.9, max(0.0, alike + 1 / len(logs)))
    return max(2.0, len(logs) * (1 - alike) / (1 + alike))
