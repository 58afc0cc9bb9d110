"""Sequential test of an operation: as fast as expected, or slower by a given share.

Wald's test (A. Wald, Sequential Tests of Statistical Hypotheses, 1945) compares two hypotheses on the logarithm of
measured over expected times: 0, and the logarithm of 1 + `slower`.  After every round, the likelihood ratio is compared
with two bounds, which follow from the error rates; between them another round follows.

The scatter of rounds is unknown in advance, and some rounds are disturbed.  The statistic is therefore their median.
Its variance has three sources: the median distance of rounds from it, the curve's other sizes, and the usual scatter of
repeats (a moderated variance: G. Smyth, 2004).  docs/checking.md has the simulated error rates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, median
from typing import Self

from collbench.analysis.judgement import Word

PRIOR_DEVIATION = 0.03
PRIOR_OF_GPUS = 0.015
"""Prior scatter of repeats: standard deviations of logarithms (docs/checking.md)."""
PRIOR_ROUNDS = 4.0  # weight in rounds of the other sizes and the prior
FEWEST = 3  # rounds that a decision needs
MEDIAN = math.pi / 2  # variance of a median over that of a mean (normal distribution, many values)
TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)  # from the median distance to the standard deviation
HIDDEN = NormalDist().inv_cdf(0.98)  # standard deviations by which one machine in fifty beats its expectation


def usual_slower(platform: str) -> float:
    """Return the default of the tolerated slowdown, as a share of the expected time: 20 % on a CPU, else 10 %.

    Rounds scatter by 5 % on CPUs and by 1 % on GPUs; on a CPU, a minute is too short to resolve 10 %.
    """
    return 0.2 if platform == "cpu" else 0.1


@dataclass(frozen=True)
class SequentialTest:
    """The two hypotheses, and the error rates."""

    slower: float = 0.10  # tolerated slowdown, as a share of the expected time
    alarm: float = 0.01  # rate of false alarms in a check of `sizes` sizes
    miss: float = 0.05  # rate of sizes slower by `slower` that are called as expected
    sizes: int = 1
    start: float = 0.0  # the first hypothesis; below 0 if the expectation is a limit

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the log-likelihood ratio: a size below the first is as expected, above the second slow."""
        alarm = self.alarm / self.sizes
        return math.log(self.miss / (1 - alarm)), math.log((1 - self.miss) / alarm)

    def about(self, near: float) -> Self:
        """Return the test of a limit, with times above or below it by the share `near`; itself for 0."""
        return replace(self, slower=(1 + near) / (1 - near) - 1, start=math.log1p(-near)) if near else self

    def resolution(self, error: float) -> float:
        """Return the smallest slowdown that resolves against the expectation's error, as a logarithm."""
        return error * math.sqrt(2 * max(map(abs, self.bounds)))

    def _distance(self, error: float) -> float:
        return max(math.log1p(self.slower), self.resolution(error))

    def limit(self, variance: float, error: float = 0.0) -> float:
        """Return the ratio of measured over expected time above which `decide` returns SLOW."""
        distance = self._distance(error)
        return math.exp(self.start + distance / 2 + self.bounds[1] * (variance + error**2) / distance)

    def decide(self, centre: float, variance: float, error: float = 0.0) -> Word:
        """Return OK, SLOW, or UNKNOWN as yet.

        *centre* is the median of logarithms of measured over expected times, and *variance* that of this median by the
        rounds of both.  *error* is the expectation's standard deviation, the same in every round.
        """
        distance = self._distance(error)
        ratio = distance / (variance + error**2) * (centre - self.start - distance / 2)
        least, most = self.bounds
        if ratio <= least:
            return Word.OK
        return Word.SLOW if ratio >= most else Word.UNKNOWN


def sight(limit: float, variance: float, error: float) -> float:
    """Return the smallest slowdown that a size with this limit shows on 49 of 50 machines."""
    return limit * math.exp(HIDDEN * math.sqrt(variance + error**2))


def median_variance(deviation: float, *rounds: float) -> float:
    """Return the variance of the median of `rounds` rounds, or of the difference of two medians."""
    return MEDIAN * deviation**2 * sum(1 / count for count in rounds)


def deviations(curve: Sequence[Sequence[float]], prior: float = PRIOR_DEVIATION) -> list[float]:
    """Return the scatter of the rounds of each size of a curve, as standard deviations of logarithms."""
    variances = [_variance(logs) for logs in curve]
    measured = [variance for variance in variances if variance is not None]

    # Combine the prior with the mean of the sizes, and then with each size's own variance.
    common = prior**2
    if measured:
        weight = sum(len(logs) for logs in curve if len(logs) > 1)
        common = (PRIOR_ROUNDS * common + weight * fmean(measured)) / (PRIOR_ROUNDS + weight)
    moderated = []
    for logs, variance in zip(curve, variances, strict=True):
        freedom = len(logs) - 1
        pooled = PRIOR_ROUNDS * common + (freedom * variance if variance is not None else 0.0)
        moderated.append(math.sqrt(pooled / (PRIOR_ROUNDS + max(0, freedom))))
    return moderated


def _variance(logs: Sequence[float]) -> float | None:
    """Return the variance by the median distance to the median; None with fewer than three values."""
    if len(logs) < FEWEST:
        return None
    centre = median(logs)
    distance = median(abs(log - centre) for log in logs)
    # The factor corrects the median distance of few values, which is too small (simulated for normal values).
    return (TO_DEVIATION * distance) ** 2 * len(logs) / (len(logs) - 1.5)
