"""How well the ratio of two medians is known, from samples that follow each other.

The ratio of two successive runs has two errors:

* Its own, by a block bootstrap of the samples of both, with the same draws every time.  Successive samples are alike,
  so whole stretches are resampled (H. Künsch, 1989, with stretches that do not overlap).  A stretch lasts at least the
  cube root of the number of samples, and longer than their memory, as far as enough stretches remain.
* The machine's drift from minute to minute, which no sample shows.  Ratios of neighbouring sizes scatter more than
  their own errors explain (`scatter`).  A shift of all sizes for a whole run cannot be told from a true change.

Of the halves of an interleaved run, rounds are paired: drift that a round shares cancels in its ratio.  Means of a log
have no samples; only ratios of neighbouring sizes tell their spread (`of_means`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, pairwise
from statistics import fmean, median, variance
from typing import Any, TypeVar

import numpy as np

from collbench.results import by_key
from collbench.stats import FADING, PRIOR, Estimate, Spread, percentile, student

T = TypeVar("T")
Sizes = tuple[float, float]  # a scatter, and the number of sizes that it is known from
Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

DRAWS = 1000
FEWEST = 5  # samples below which nothing is said of their median
_BLOCKS = (7, 100)  # the fewest, as long as there are as many samples, and the most
_LEVELS = 401  # order statistics among which a resampled median is looked for: beyond, they are closer than it is known
_REMEMBERED = 2.0  # autocorrelation times that a block lasts
_SEED = 20250
_FARTHEST = 300.0  # of an interval's end, as a logarithm: what is beyond has no floating-point number
_UNTHREADED = 200_000  # multiplications of a product; OpenBLAS starts threads beyond 262,144


def log_medians(samples: Floats, stream: int) -> tuple[Floats, int]:
    """Return logarithms of DRAWS medians of resampled samples, independent by `stream`, and the number of blocks."""
    count = len(samples)
    order = np.argsort(samples, kind="stable")
    ordered = samples[order]
    blocks = block_count(samples)
    levels = np.unique(np.linspace(0, count - 1, min(count, _LEVELS)).round().astype(int))
    logs = np.log(ordered[levels])
    # How many samples of each block are among the lowest so many.
    member = np.zeros((len(levels), blocks), np.float32)
    np.add.at(member, (np.searchsorted(levels, np.arange(count)), (np.arange(count) * blocks // count)[order]), 1)
    below = member.cumsum(axis=0)

    # In each resample, the first levels that half of the samples, and more than half of them, do not lie above.
    # Products are so small that a BLAS keeps to one thread: its threads cost more than they save, and hundreds of
    # times more on a busy machine.
    drawn = _drawn(blocks, stream)
    least, most = [], []
    for part in np.array_split(drawn, math.ceil(below.size * DRAWS / _UNTHREADED), axis=1):
        counts = below @ part
        half = counts[-1] / 2
        least.append((counts < half).sum(axis=0))
        most.append((counts <= half).sum(axis=0))
    middles = (logs[np.concatenate(least)] + logs[np.concatenate(most)]) / 2

    # A resample of few blocks strays too little from the centre.
    centre = math.log(np.median(ordered))
    return centre + (middles - centre) * math.sqrt(blocks / (blocks - 1)), blocks


def block_count(samples: Floats) -> int:
    """Return the number of blocks that the samples are divided into."""
    count = len(samples)
    length = max(count ** (1 / 3), _REMEMBERED * memory(samples))
    fewest, most = _BLOCKS
    return int(min(max(count / length, fewest), most, count))


def memory(samples: Floats) -> float:
    """Return the autocorrelation time of being above or below the median: 1 if samples are independent.

    That is for how many samples one is remembered, by the correlations up to the first that is at most 0.05.
    """
    values = np.sign(samples - np.median(samples))
    power = float(values @ values)
    total = 1.0
    for lag in range(1, len(values) // 4):
        alike = float(values[:-lag] @ values[lag:]) / power if power else 0.0
        if alike <= 0.05:
            break
        total += 2 * alike
    return total


@lru_cache(maxsize=256)
def _drawn(blocks: int, stream: int) -> Floats:
    """How often each block is in each resample (blocks, DRAWS)."""
    generator = np.random.default_rng((_SEED, blocks, stream))
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS)
    return np.ascontiguousarray(drawn.T, np.float32)


_QUANTILE = 0.75  # of all rows, so that the few that are far rougher do not speak for the others
_FAR = 4.0  # times the usual variance, which few rounds exceed by chance in one row of a hundred


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of a ratio NEW/BASE, its standard error to either side, and its degrees of freedom."""

    log: float
    below: float
    above: float
    freedom: float  # degrees
    shared: float = 0.0  # the part of the error that all sizes of a curve may have in common
    scatter: Sizes = (0.0, 0)  # between the runs, of all sizes or those near it, where rougher
    near: Sizes = (0.0, 0)  # of sizes near it alone: of many sizes, some are calm by chance
    moved: float = 0.0  # how much more or less a change of the machine may be, as its barriers tell
    outlier: bool = False  # whether it is so far from its neighbours, or so little known, that it speaks for itself

    @property
    def error(self) -> float:
        """Mean of both sides."""
        return (self.below + self.above) / 2

    def estimate(self, confidence: float, scatter: float = 0.0, places: float = 0) -> Estimate:
        """Return the ratio with its interval; `scatter` (in logarithms) is known from so many `places`.

        Degrees of freedom of the sum of both errors: F. E. Satterthwaite (1946).
        """
        both = self.error**2 + scatter**2
        parts = self.error**4 / self.freedom + (scatter**4 / places if places else 0)
        freedom = max(1, int(both**2 / parts)) if parts else int(self.freedom)
        reach = student(0.5 + confidence / 2, freedom)
        below, above = (
            min(_FARTHEST, self.moved + reach * math.hypot(error, scatter)) for error in (self.below, self.above)
        )
        return Estimate(math.exp(self.log), math.exp(self.log - below), math.exp(self.log + above))


def separate(base: Sequence[float], new: Sequence[float]) -> LogRatio:
    """Estimate the ratio from samples of two successive runs; errors are half the middle 95 % of resampled ratios."""
    before, after = np.asarray(base, float), np.asarray(new, float)
    (drawn_before, some), (drawn_after, others) = log_medians(before, 0), log_medians(after, 1)
    log = math.log(median(new) / median(base))
    low, high = _ends(drawn_after - drawn_before)
    below, above = (max(0.0, end) / 1.96 for end in (log - low, high - log))
    return LogRatio(log, below, above, some + others - 2)


def start_spreads(logs: Sequence[tuple[object, Sequence[Sequence[float]]]], usual: Spread = PRIOR) -> list[Spread]:
    """Return how far starts or rounds are apart at each row, given its curve and their logarithms in one run or two.

    As in `Pool` the sizes nearby say the same, here the smaller and the larger ones, but for those that are far
    rougher than most and than is `usual`, which speak for themselves alone.
    """
    apart = [_apart(runs) for _, runs in logs]
    spreads: dict[int, Spread] = {}
    for rows in by_key(range(len(logs)), lambda row: logs[row][0]).values():
        typical = max(usual.deviation**2 / _FAR, median(apart[row][0] / max(1, apart[row][1]) for row in rows))
        calm = [row for row in rows if _calm(*apart[row], typical)]
        for row in rows:
            squares, freedom = usual.freedom * usual.deviation**2, usual.freedom
            # Sizes that are as calm as most say the same, the less the farther they are; a rough one speaks for itself.
            for other in calm if row in calm else [row]:
                weight = FADING ** abs(rows.index(other) - rows.index(row))
                squares, freedom = squares + weight * apart[other][0], freedom + weight * apart[other][1]
            spreads[row] = Spread(math.sqrt(squares / max(1, freedom)), max(1, freedom))
    return [spreads[row] for row in range(len(logs))]


def _calm(squares: float, freedom: int, typical: float) -> bool:
    """Return whether repeats are about as far apart as is typical; a single distance may be twice as far by chance."""
    return squares <= typical * math.pow(_FAR, 1 + 1 / max(1, freedom)) * freedom


def _apart(runs: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the squared distances of each run's logarithms from their mean, summed, and their degrees of freedom."""
    several = [run for run in runs if len(run) > 1]
    return sum((len(run) - 1) * variance(run) for run in several), sum(len(run) - 1 for run in several)


def between_repeats(log: float, repeats: Sequence[int], spread: Spread) -> LogRatio:
    """Return a ratio with the error that starts or rounds of both rows show: none where neither was repeated.

    A row that was not repeated is taken to vary from one to the next as the other does.
    """
    error = math.hypot(*map(spread.error, repeats)) if max(repeats) > 1 else 0.0
    return LogRatio(log, error, error, spread.freedom)


@dataclass(frozen=True)
class Paired:
    """Rounds of an interleaved run: the logarithms of their ratios, and the variance of their centre by its samples."""

    logs: tuple[float, ...]
    within: float
    freedom: int
    starts: int = 1  # of either arm's ranks, which measured the rounds in turn

    @property
    def between(self) -> float:
        """The same variance by the median distance of two rounds, so that outliers do not count."""
        distances = [abs(first - second) for first, second in combinations(self.logs, 2)]
        return (median(distances) / 0.954) ** 2 / len(self.logs)

    @property
    def centre(self) -> float:
        """Centre of the rounds: the median of the means of any two (J. Hodges and E. Lehmann, 1963).

        A busy machine spoils whole rounds, and what it did to one half only does not cancel.
        """
        return median(fmean(pair) for pair in combinations_with_replacement(self.logs, 2))


def paired(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], starts: int = 1) -> Paired:
    """Pair the samples of two halves round by round; as many rounds in both, two or more."""
    logs = [math.log(median(after) / median(before)) for before, after in zip(base, new, strict=True)]
    (before, blocks_before), (after, blocks_after) = _variance(base, 0), _variance(new, 1)
    return Paired(tuple(logs), before + after, blocks_before + blocks_after - 2, min(starts, len(logs)))


def _variance(rounds: Sequence[Sequence[float]], stream: int) -> tuple[float, int]:
    """Variance of the centre of the rounds' logarithms, by samples over their round's median; and number of blocks.

    A round has too few samples to be resampled; together they have enough.
    """
    alone = np.concatenate([np.asarray(samples) / median(samples) for samples in rounds])
    drawn, blocks = log_medians(alone, stream)
    low, high = _ends(drawn)
    return ((high - low) / 3.92) ** 2 * len(alone) / max(1, len(alone) - len(rounds)), blocks


def _ends(drawn: Floats) -> tuple[float, float]:
    """The ends of the middle 95 %."""
    ordered = np.sort(drawn).tolist()
    return percentile(ordered, 2.5), percentile(ordered, 97.5)


def with_starts(estimates: Sequence[LogRatio], rows: Sequence[Paired], curves: Sequence[object]) -> list[LogRatio]:
    """Return the estimates with the error that starts of the ranks add, which no round of one start shows.

    The arms of an interleaved run have ranks of their own: what their starts do to a ratio does not cancel.  Rows of
    one curve are in the order of their sizes.
    """
    # Starts took turns: every `starts`-th round is of the same one.
    started = []
    for curve, row in zip(curves, rows, strict=True):
        means = [fmean(row.logs[start :: row.starts]) for start in range(row.starts)]
        started.append((curve, [means]))
    spreads = start_spreads(started)
    wider = []
    for estimate, row, spread in zip(estimates, rows, spreads, strict=True):
        error = spread.error(row.starts)
        both = math.hypot(estimate.error, error)
        freedom = both**4 / (estimate.error**4 / estimate.freedom + error**4 / spread.freedom)
        wider.append(LogRatio(estimate.log, both, both, freedom, shared=error))
    return wider


def pooled(rows: Sequence[Paired]) -> list[LogRatio]:
    """Return the estimates of all rows of an interleaved run.

    Few rounds say little of how much rounds differ, so all rows say together how many times more than their samples
    explain; a row whose own rounds differ far more than that keeps what they say.
    """
    excess = [row.between / row.within / _usual(len(row.logs)) for row in rows if row.within > 0]
    more = max(1.0, float(np.quantile(excess, _QUANTILE))) if excess else 1.0
    rounds = sum(len(row.logs) - 1 for row in rows)
    estimates = []
    for row in rows:
        usual = row.within * more
        rough = row.between > _FAR * _usual(len(row.logs)) * usual
        error = math.sqrt(row.between if rough else usual)
        estimates.append(LogRatio(row.centre, error, error, min(rounds, row.freedom)))
    return estimates


@lru_cache
def _usual(rounds: int) -> float:
    """The ratio of `between` over `within` in the rougher quarter of rows whose rounds differ by chance only."""
    normal = np.random.default_rng(rounds).normal(size=(2000, rounds))
    distances = [np.abs(normal[:, first] - normal[:, second]) for first, second in combinations(range(rounds), 2)]
    return float(np.quantile((np.median(distances, axis=0) / 0.954) ** 2, _QUANTILE))


NEAR = 3  # sizes to either side: small messages, large ones and what fits a cache are disturbed by different things

_PERCENT, _NORMAL, _CAREFUL = 75, 1.15, 1.0
"""Scatter is read off three quarters of the sizes, so that the steps of a real change are left out.  Those of normal
scatter reach 1.15 standard errors; asking for 1.0 overstates the scatter by a seventh, since it is known from few.
Near a size it is asked for 1.15: of so many windows one would look rough by chance."""


@dataclass(frozen=True)
class Scatter:
    """Scatter between two runs, as logarithms of ratios, each with the number of sizes that it is known from."""

    everywhere: Sizes = (0.0, 0)
    near: Mapping[int, Sizes] = field(default_factory=dict)  # by size

    def at(self, nbytes: int) -> Sizes:
        """Return the scatter of the sizes near that size, or of all where these are rougher."""
        return max(self.everywhere, self.near.get(nbytes, self.everywhere))


def scatter(curves: Sequence[Sequence[tuple[int, LogRatio]]]) -> Scatter:
    """Return how far ratios of neighbouring sizes scatter beyond their errors.

    A curve is (nbytes, estimate) by size.  Implementations of one size were sampled in turn, and what the machine did
    to one it did to all, so a size counts once.
    """
    distances = []
    for whole in curves:
        far = outliers([(nbytes, estimate.log) for nbytes, estimate in whole])
        curve = [point for point in whole if point[0] not in far]
        steps = _steps([estimate.log for _, estimate in curve])

        # Each ratio is held against the middle of its neighbours: a change that comes or goes with the size is no
        # scatter, nor is a step.
        threes = enumerate(zip(curve, curve[1:], curve[2:], strict=False))
        for place, ((_, left), (nbytes, middle), (_, right)) in threes:
            if steps & {place, place + 1}:
                continue
            off = abs(middle.log - (left.log + right.log) / 2)
            distances.append((nbytes, off, middle.error**2 + (left.error**2 + right.error**2) / 4))
    sizes = sorted({nbytes for curve in curves for nbytes, _ in curve})
    near = {}
    for place, nbytes in enumerate(sizes):
        window = sizes[max(0, place - NEAR) : place + NEAR + 1]
        near[nbytes] = _excess([distance for distance in distances if distance[0] in window], _NORMAL)
    return Scatter(_excess(distances, _CAREFUL), near)


def _excess(distances: Sequence[tuple[int, float, float]], reach: float) -> tuple[float, int]:
    """Return the scatter of each size that, with its errors, explains the distances, and the number of their sizes.

    A distance is a size, its ratio's distance from the middle of its neighbours, and the variance of that.  Distances
    are explained if three quarters of them stay within `reach` standard errors.
    """
    if not distances:
        return 0.0, 0
    sizes, off, errors = map(np.array, zip(*distances, strict=True))
    places = len(set(sizes.tolist()))

    # A distance from the middle of two neighbours has 1.5 times the square of the scatter of each.
    def too_little(square: float) -> bool:
        return percentile((off / np.sqrt(np.maximum(errors + 1.5 * square, 1e-300))).tolist(), _PERCENT) > reach

    if not too_little(0.0):
        return 0.0, places
    low, high = 0.0, float(off.max() ** 2)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if too_little(middle) else (low, middle)
    return math.sqrt(high), places


PUBLISHED = Spread(0.013, 1)
"""How far ratios of two logs of one machine scatter before any was seen, as a standard deviation of logarithms, and how
many degrees of freedom that is worth: fitted to 139 published repeats (docs/analysis.md)."""
LEAST_STEP, FAR_STEP = math.log(1.15), 4.0
"""How far apart neighbours of a sampled curve are where it jumps: in logarithms, and over the median of all neighbours,
which one in 150 exceeds by chance."""
STANDS_OUT, FAR_OUT = math.log(1.5), 10.0
"""How far from the sizes near it a ratio is a change and no noise: in logarithms, and over the usual distance.  Of 58
published repeats of one node one has a size that is (docs/analysis.md)."""
_SEVERAL = 8  # sizes of a curve
_REACH = 2  # sizes to either side that a ratio of means is held against: a step of three sizes is none that stands out


def of_means(curves: Sequence[Sequence[tuple[int, float]]]) -> Scatter:
    """Return the scatter of ratios of two means.

    A curve is (nbytes, logarithm of the ratio) by size; a size counts once, an outlier does not.  PUBLISHED
    is added to the others (a moderated variance: G. Smyth, 2004).
    """
    squares_at: dict[int, list[float]] = {nbytes: [] for curve in curves for nbytes, _ in curve}
    for curve in curves:
        far = outliers(curve)
        rest = [(nbytes, log) for nbytes, log in curve if nbytes not in far]
        logs = [log for _, log in rest]
        for (nbytes, _), *distances in zip(rest, _from_median(logs), _from_nearer(logs), strict=True):
            squares_at[nbytes].append(max(distances) ** 2)
    sizes = sorted(squares_at)

    # Of two sizes each is as far from the middle as the other: that may as well be a change.
    squares = [fmean(squares_at[nbytes]) if squares_at[nbytes] and len(sizes) > 2 else None for nbytes in sizes]
    near = {nbytes: _moderated(_around(squares, place, NEAR)) for place, nbytes in enumerate(sizes)}
    return Scatter(_moderated(squares), near)


def outliers(curve: Sequence[tuple[int, float]]) -> set[int]:
    """Return the sizes whose logarithm is so far from its neighbours that it is a change, and no scatter."""
    logs = [log for _, log in curve]
    off = _from_median(logs)
    distances = list(map(max, off, _from_nearer(logs)))
    # If a third of the sizes or fewer are far off, they do not count in what is usual; of few sizes that is too sharp.
    calm = [distance for distance in distances if distance <= STANDS_OUT]
    if len(distances) < _SEVERAL or 3 * len(calm) < 2 * len(distances):
        calm = distances
    usual = median(calm) / 0.6745  # the median of normal errors
    far = max(STANDS_OUT, FAR_OUT * usual)
    return {nbytes for (nbytes, _), distance in zip(curve, off, strict=True) if distance > far}


def _steps(logs: Sequence[float]) -> set[int]:
    """Return behind which places a curve jumps: a change from there on, which is no scatter either.

    A swing to and fro is none: a step is far larger than its neighbours.
    """
    jumps = [abs(after - before) for before, after in pairwise(logs)]
    far = max(LEAST_STEP, FAR_STEP * median(jumps)) if jumps else 0.0
    nearby = [max(before, after) for before, after in zip([0.0, *jumps], [*jumps[1:], 0.0], strict=False)]
    return {place for place, jump in enumerate(jumps) if jump > max(far, 3 * nearby[place])}


def _from_median(logs: Sequence[float]) -> list[float]:
    """Return how far each is from the median of itself and its neighbours, which no outlier and no step moves.

    In units of the deviation of independent errors (by simulation, within 3 %).
    """
    # Of an odd number the median is never between both sides of a step.
    reach = min(_REACH, max(1, (len(logs) - 2) // 2))
    around = [_around(logs, place, reach) for place, _ in enumerate(logs)]
    unit = math.sqrt(1 - 2 / 3 / (2 * reach + 1))
    return [abs(log - median(near)) / unit for log, near in zip(logs, around, strict=True)]


def _from_nearer(logs: Sequence[float]) -> list[float]:
    """Return how far each is from its nearer neighbour, likewise: by medians, what swings to and fro is calm."""
    nearer = []
    for place, log in enumerate(logs):
        # The first of the distances is its own from itself.
        distances = sorted(abs(log - other) for other in _around(logs, place, 1))
        nearer.append(distances[:2][-1] / 0.945)
    return nearer


def _around(values: Sequence[T], place: int, reach: int) -> Sequence[T]:
    """Return as many values around that place as around any other, which are on one side at either end."""
    first = max(0, min(place - reach, len(values) - 2 * reach - 1))
    return values[first : first + 2 * reach + 1]


def _moderated(squares: Sequence[float | None]) -> tuple[float, float]:
    """Return a standard error and its degrees of freedom, given the squares of sizes that are known."""
    known = [square for square in squares if square is not None]
    freedom = PUBLISHED.freedom + len(known)
    return math.sqrt((PUBLISHED.freedom * PUBLISHED.deviation**2 + sum(known)) / freedom), freedom
