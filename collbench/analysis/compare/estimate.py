"""The ratio of two medians as an estimate: how far off it may be.

Of two runs that follow each other each ratio has an error of its own (a block bootstrap of the samples of both), and
one that no sample of either run shows (scatter.py).  Of the halves of an interleaved run, rounds are paired: what is
common to a round cancels in its ratio.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, combinations, combinations_with_replacement, pairwise
from statistics import fmean, median

import numpy as np

from collbench.analysis.compare.bootstrap import Floats, log_medians
from collbench.results import Measurement
from collbench.stats import Pool, percentile, student

_QUANTILE = 0.75  # of all rows, so that the few that are far rougher do not speak for the others
_FAR = 4.0  # times the usual variance, which few rounds exceed by chance in one row of a hundred


@dataclass(frozen=True)
class Estimate:
    """The logarithm of a ratio NEW/BASE, its standard error to either side, and what that error is known from."""

    log: float
    below: float
    above: float
    freedom: float  # degrees
    shared: float = 0.0  # the part of the error that all sizes of a curve may have in common

    @property
    def error(self) -> float:
        """Both sides as one."""
        return (self.below + self.above) / 2

    def interval(self, confidence: float, scatter: float = 0.0, places: int = 0) -> tuple[float, float]:
        """Between which the ratio lies; `scatter` (in logarithms) is known from so many `places`.

        Degrees of freedom of the sum of both errors: F. E. Satterthwaite (1946).
        """
        both = self.error**2 + scatter**2
        parts = self.error**4 / self.freedom + (scatter**4 / places if places else 0)
        freedom = max(1, int(both**2 / parts)) if parts else int(self.freedom)
        reach = student(0.5 + confidence / 2, freedom)
        return (
            math.exp(self.log - reach * math.hypot(self.below, scatter)),
            math.exp(self.log + reach * math.hypot(self.above, scatter)),
        )


def separate(base: Sequence[float], new: Sequence[float]) -> Estimate:
    """Of samples from two runs, one after the other; errors are half of what covers 95 % of the resampled ratios."""
    before, after = np.asarray(base, float), np.asarray(new, float)
    (drawn_before, some), (drawn_after, others) = log_medians(before, 0), log_medians(after, 1)
    log = math.log(median(new) / median(base))
    low, high = _ends(drawn_after - drawn_before)
    below, above = (max(0.0, end) / 1.96 for end in (log - low, high - log))
    return Estimate(log, below, above, some + others - 2)


def between_starts(base: Measurement, new: Measurement) -> Estimate | None:
    """Return the ratio of two rows whose ranks were started several times, by how far their starts are apart.

    A row of a single start is taken to vary from start to start as the other row does.  None where neither row has
    several starts: then only `separate` can tell.
    """
    known = base.spread or new.spread
    if not known:
        return None
    spreads = [(row.spread or known, len(row.rounds) if row.spread else 1) for row in (base, new)]
    squares = [spread.error(starts) ** 2 for spread, starts in spreads]
    error = math.sqrt(sum(squares))
    parts = sum(square**2 / spread.freedom for square, (spread, _) in zip(squares, spreads, strict=True))
    freedom = sum(squares) ** 2 / parts if parts else min(spread.freedom for spread, _ in spreads)
    return Estimate(math.log(new.typical / base.typical), error, error, freedom, shared=error)


@dataclass(frozen=True)
class Paired:
    """Rounds of an interleaved run: the logarithms of their ratios, and the variance of their centre by its samples."""

    logs: tuple[float, ...]
    within: float
    freedom: int
    starts: int = 1  # of either arm's ranks, which measured the rounds in turn

    @property
    def between(self) -> float:
        """The same variance by how far rounds are from each other, of which half the pairs are heeded."""
        distances = [abs(one - other) for one, other in combinations(self.logs, 2)]
        return (median(distances) / 0.954) ** 2 / len(self.logs)

    @property
    def centre(self) -> float:
        """Of the rounds: the median of the means of any two (J. Hodges and E. Lehmann, 1963).

        A busy machine spoils whole rounds, and what it did to one half only does not cancel.
        """
        return median((one + other) / 2 for one, other in combinations_with_replacement(self.logs, 2))


def paired(
    base: Sequence[float], new: Sequence[float], sizes: tuple[Sequence[int], Sequence[int]], starts: int = 1
) -> Paired:
    """Of two halves, given the number of samples of each of their rounds; as many rounds in both, two or more."""
    halves = [_rounds(base, sizes[0]), _rounds(new, sizes[1])]
    logs = [math.log(after / before) for before, after in zip(*(map(median, half) for half in halves), strict=True)]
    (one, some), (other, others) = (_variance(half, stream) for stream, half in enumerate(halves))
    return Paired(tuple(logs), one + other, some + others - 2, min(starts, len(logs)))


def _rounds(samples: Sequence[float], sizes: Sequence[int]) -> list[Sequence[float]]:
    return [samples[first:last] for first, last in pairwise(accumulate(sizes, initial=0))]


def _variance(rounds: Sequence[Sequence[float]], stream: int) -> tuple[float, int]:
    """Of the centre of the rounds' logarithms, by what is left of samples over their round's median; and the blocks.

    A round alone has too few samples to be resampled; together they have enough.
    """
    alone = [sample / middle for samples in rounds for middle in [median(samples)] for sample in samples]
    drawn, blocks = log_medians(np.array(alone), stream)
    low, high = _ends(drawn)
    return ((high - low) / 3.92) ** 2 * len(alone) / max(1, len(alone) - len(rounds)), blocks


def _ends(drawn: Floats) -> tuple[float, float]:
    """Between which 95 % lie."""
    ordered = np.sort(drawn).tolist()
    return percentile(ordered, 2.5), percentile(ordered, 97.5)


def with_starts(estimates: Sequence[Estimate], rows: Sequence[Paired], curves: Sequence[object]) -> list[Estimate]:
    """Return the estimates with the error that starts of the ranks add, which no round of one start shows.

    The arms of an interleaved run have ranks of their own: what their starts do to a ratio does not cancel.  Rows of
    one curve are in the order of their sizes.
    """
    pools: dict[object, Pool] = {}
    wider = []
    for estimate, row, curve in zip(estimates, rows, curves, strict=True):
        by_start = [row.logs[start :: row.starts] for start in range(row.starts)]
        spread = pools.setdefault(curve, Pool()).add([math.exp(fmean(logs)) for logs in by_start])
        error = spread.error(row.starts)
        both = math.hypot(estimate.error, error)
        freedom = both**4 / (estimate.error**4 / estimate.freedom + error**4 / spread.freedom)
        wider.append(Estimate(estimate.log, both, both, freedom, shared=error))
    return wider


def pooled(rows: Sequence[Paired]) -> list[Estimate]:
    """Estimates of all rows of an interleaved run.

    Few rounds say little of how much rounds differ, so all rows say together how many times more than their samples
    explain; a row whose own rounds differ far more than that keeps what they say.
    """
    known = [row.between / row.within / _usual(len(row.logs)) for row in rows if row.within > 0]
    more = max(1.0, float(np.quantile(known, _QUANTILE))) if known else 1.0
    rounds = sum(len(row.logs) - 1 for row in rows)
    estimates = []
    for row in rows:
        usual = row.within * more
        error = math.sqrt(row.between if row.between > _FAR * _usual(len(row.logs)) * usual else usual)
        estimates.append(Estimate(row.centre, error, error, min(rounds, row.freedom)))
    return estimates


@lru_cache
def _usual(rounds: int) -> float:
    """What `between` over `within` does not exceed in three quarters of rows whose rounds differ by chance only."""
    normal = np.random.default_rng(rounds).normal(size=(2000, rounds))
    distances = [np.abs(normal[:, one] - normal[:, other]) for one, other in combinations(range(rounds), 2)]
    return float(np.quantile((np.median(distances, axis=0) / 0.954) ** 2, _QUANTILE))
