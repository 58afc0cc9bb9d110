"""Whether an operation is as fast as expected, or slower by a stated share: measured round by round until that is sure.

Wald's test of two hypotheses (A. Wald, Sequential Tests of Statistical Hypotheses, 1945) on the logarithm of measured
over expected times: 0, or the logarithm of 1 + `slower`.  After every round the likelihood of the second over the first
is held against two bounds, which are the stated error rates; between them another round follows.

The scatter of rounds is not known beforehand, and some are disturbed.  So the statistic is their median; its variance
comes from the rounds' median distance to it, from the curve's other sizes and from the usual scatter of repeats (a
moderated variance: G. Smyth, 2004).  docs/checking.md has its simulated error rates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, median
from typing import Self

from collbench.analysis.judgement import Word

PRIOR_DEVIATION = 0.03
PRIOR_OF_GPUS = 0.015
"""What repeats scatter by before any round was seen: standard deviations of logarithms (docs/checking.md)."""
PRIOR_ROUNDS = 4.0  # that the other sizes and the prior count as, added to those of the size itself
FEWEST = 3  # rounds before which nothing is decided, unless there can only be a single one
MEDIAN = math.pi / 2  # variance of a median over that of a mean, of many normal values
TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)  # from the median distance to the standard deviation
HIDDEN = NormalDist().inv_cdf(0.98)  # standard deviations that one machine in fifty is better than its expectation


def usual_slower(platform: str) -> float:
    """Return the share of the expected time that is too much where the user says none: 20 % on a CPU, else 10 %.

    Rounds of a CPU scatter by 5 % where those of GPUs scatter by 1 %, and a minute is too short to tell 10 %.
    """
    return 0.2 if platform == "cpu" else 0.1


@dataclass(frozen=True)
class SequentialTest:
    """The two hypotheses, and how often each may be chosen although the other is true."""

    slower: float = 0.10  # share of the expected time that is too much
    alarm: float = 0.01  # false alarms: a check of as many sizes as `sizes` that calls any of them slow
    miss: float = 0.05  # sizes slower by that share which are called as expected
    sizes: int = 1
    start: float = 0.0  # the first hypothesis; below 0 where the expectation is a limit

    @property
    def bounds(self) -> tuple[float, float]:
        """Logarithms of the likelihood ratio, below which a size is as expected and above which it is slow."""
        alarm = self.alarm / self.sizes
        return math.log(self.miss / (1 - alarm)), math.log((1 - self.miss) / alarm)

    def about(self, near: float) -> Self:
        """Return the test of a limit: whether times are surely above or below it, by that share; itself for 0."""
        return replace(self, slower=(1 + near) / (1 - near) - 1, start=math.log1p(-near)) if near else self

    def resolution(self, error: float) -> float:
        """Return the logarithm of the smallest slowness that an expectation of that error can tell.

        Its variance remains after any number of rounds: the ratio of likelihoods comes no further than
        distance**2 / (2 * error**2) where one of the two hypotheses is true.
        """
        return error * math.sqrt(2 * max(map(abs, self.bounds)))

    def _distance(self, error: float) -> float:
        return max(math.log1p(self.slower), self.resolution(error))

    def limit(self, variance: float, error: float = 0.0) -> float:
        """Return the ratio of measured over expected time beyond which `decide` says SLOW."""
        distance = self._distance(error)
        return math.exp(self.start + distance / 2 + self.bounds[1] * (variance + error**2) / distance)

    def decide(self, centre: float, variance: float, error: float = 0.0) -> Word:
        """Decide from the median of logarithms of measured over expected times: OK, SLOW, or UNKNOWN as yet.

        *centre* is the median; *variance* is the median's, by its rounds and those of the expectation; *error* is the
        expectation's standard deviation, in every round alike.
        """
        distance = self._distance(error)
        ratio = distance / (variance + error**2) * (centre - self.start - distance / 2)
        least, most = self.bounds
        if ratio <= least:
            return Word.OK
        return Word.SLOW if ratio >= most else Word.UNKNOWN


def sight(limit: float, variance: float, error: float) -> float:
    """Return the slowdown that all but one in fifty machines with such a limit cannot hide."""
    return limit * math.exp(HIDDEN * math.sqrt(variance + error**2))


def median_variance(deviation: float, *rounds: float) -> float:
    """Return the variance of the median of so many rounds; of several medians, that of their difference."""
    return MEDIAN * deviation**2 * sum(1 / count for count in rounds)


def deviations(curve: Sequence[Sequence[float]], prior: float = PRIOR_DEVIATION) -> list[float]:
    """Return what the rounds of each size of a curve scatter by: a standard deviation of logarithms for each size."""
    variances = [_variance(logs) for logs in curve]
    measured = [variance for variance in variances if variance is not None]

    # What is usual, moved to the mean of the sizes; then to what each size shows by itself.
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
    """Return the variance by the median distance to the median; None of fewer than three values, of which it is 0."""
    if len(logs) < FEWEST:
        return None
    centre = median(logs)
    distance = median(abs(log - centre) for log in logs)
    # Of few values the median distance is too small: by that factor, on average (simulated for normal values).
    return (TO_DEVIATION * distance) ** 2 * len(logs) / (len(logs) - 1.5)
