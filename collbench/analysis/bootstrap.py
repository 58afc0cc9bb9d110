"""Errors of ratios of medians, from successive samples.

The ratio of two successive runs has two errors:

* The sampling error, by a block bootstrap of the samples of both runs, with the same draws every time.  Successive
  samples are correlated, so whole blocks are resampled (H. Künsch, 1989, with disjoint blocks).  A block has at least
  the cube root of the number of samples, and exceeds their autocorrelation time if enough blocks remain.
* The machine's drift from minute to minute, which no sample shows.  It makes ratios of neighbouring sizes scatter more
  than their own errors explain (`scatter`).  A shift of all sizes in a whole run looks like a true change.

An interleaved run has paired rounds: drift common to a round cancels in its ratio.  Means of a log have no samples;
their error comes from the ratios of neighbouring sizes (`of_means`).
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
Sizes = tuple[float, float]  # a scatter, and the number of sizes that it is estimated from
Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

DRAWS = 1000
FEWEST = 5  # samples that an estimate needs
_BLOCKS = (7, 100)  # fewest blocks (if there are enough samples) and most blocks
_LEVELS = 401  # order statistics among which a resampled median is sought; more would not improve it
_REMEMBERED = 2.0  # length of a block in autocorrelation times
_SEED = 20250
_FARTHEST = 300.0  # largest logarithm of an interval's end, within the range of floating point
_UNTHREADED = 200_000  # multiplications of a product; OpenBLAS starts threads beyond 262,144


def log_medians(samples: Floats, stream: int) -> tuple[Floats, int]:
    """Return logarithms of DRAWS medians of resampled samples, independent by `stream`, and the number of blocks."""
    count = len(samples)
    order = np.argsort(samples, kind="stable")
    ordered = samples[order]
    blocks = block_count(samples)
    levels = np.unique(np.linspace(0, count - 1, min(count, _LEVELS)).round().astype(int))
    logs = np.log(ordered[levels])
    # Count the samples of each block up to each level.
    member = np.zeros((len(levels), blocks), np.float32)
    np.add.at(member, (np.searchsorted(levels, np.arange(count)), (np.arange(count) * blocks // count)[order]), 1)
    below = member.cumsum(axis=0)

    # In each resample, find the first levels with half of the samples, and with more than half, at or below them.
    # Small products keep BLAS on one thread: threads cost more than they save, and hundreds of times more on a busy
    # machine.
    drawn = _drawn(blocks, stream)
    least, most = [], []
    for part in np.array_split(drawn, math.ceil(below.size * DRAWS / _UNTHREADED), axis=1):
        counts = below @ part
        half = counts[-1] / 2
        least.append((counts < half).sum(axis=0))
        most.append((counts <= half).sum(axis=0))
    middles = (logs[np.concatenate(least)] + logs[np.concatenate(most)]) / 2

    # Resamples of few blocks have too small a variance; correct it.
    centre = math.log(np.median(ordered))
    return centre + (middles - centre) * math.sqrt(blocks / (blocks - 1)), blocks


def block_count(samples: Floats) -> int:
    """Return the number of blocks for the samples."""
    count = len(samples)
    length = max(count ** (1 / 3), _REMEMBERED * memory(samples))
    fewest, most = _BLOCKS
    return int(min(max(count / length, fewest), most, count))


def memory(samples: Floats) -> float:
    """Return the autocorrelation time of the sign around the median, in samples, up to a correlation of 0.05."""
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
    """Return the count of each block in each resample, shape (blocks, DRAWS)."""
    generator = np.random.default_rng((_SEED, blocks, stream))
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS)
    return np.ascontiguousarray(drawn.T, np.float32)


_QUANTILE = 0.75  # of all rows, so that a few much rougher rows do not count for the others
_FAR = 4.0  # factor on the usual variance that one row of a hundred with few rounds exceeds by chance


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of a ratio NEW/BASE with its errors."""

    log: float
    below: float  # standard error to lower values
    above: float  # standard error to higher values
    freedom: float  # degrees of freedom
    shared: float = 0.0  # part of the error that all sizes of a curve may have in common
    scatter: Sizes = (0.0, 0)  # between the runs: of all sizes, or of nearby sizes if larger
    near: Sizes = (0.0, 0)  # between the runs: of nearby sizes only
    moved: float = 0.0  # largest change of the machine by its barriers, as a logarithm
    outlier: bool = False  # whether it is too far from its neighbours, or too uncertain, to count with them

    @property
    def error(self) -> float:
        """Mean of both standard errors."""
        return (self.below + self.above) / 2

    def estimate(self, confidence: float, scatter: float = 0.0, places: float = 0) -> Estimate:
        """Return the ratio with its interval; the degrees of freedom are by F. E. Satterthwaite (1946)."""
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
    """Return the spread between starts or rounds of each row.

    A row of `logs` has its curve, and the logarithms of its starts or rounds in one or two runs.  As in `Pool`, nearby
    sizes of a curve share their spread.  Rows that are much rougher than most, and than `usual`, count alone.
    """
    apart = [_apart(runs) for _, runs in logs]
    spreads: dict[int, Spread] = {}
    for rows in by_key(range(len(logs)), lambda row: logs[row][0]).values():
        typical = max(usual.deviation**2 / _FAR, median(apart[row][0] / max(1, apart[row][1]) for row in rows))
        calm = [row for row in rows if _calm(*apart[row], typical)]
        for row in rows:
            squares, freedom = usual.freedom * usual.deviation**2, usual.freedom
            # Calm sizes share their spread, with less weight for farther ones; a rough one counts alone.
            for other in calm if row in calm else [row]:
                weight = FADING ** abs(rows.index(other) - rows.index(row))
                squares, freedom = squares + weight * apart[other][0], freedom + weight * apart[other][1]
            spreads[row] = Spread(math.sqrt(squares / max(1, freedom)), max(1, freedom))
    return [spreads[row] for row in range(len(logs))]


def _calm(squares: float, freedom: int, typical: float) -> bool:
    """Return whether repeats have about the typical spread; a single distance may be twice as large by chance."""
    return squares <= typical * math.pow(_FAR, 1 + 1 / max(1, freedom)) * freedom


def _apart(runs: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the sum of squared distances of each run's logarithms from their mean, and the degrees of freedom."""
    several = [run for run in runs if len(run) > 1]
    return sum((len(run) - 1) * variance(run) for run in several), sum(len(run) - 1 for run in several)


def between_repeats(log: float, repeats: Sequence[int], spread: Spread) -> LogRatio:
    """Return a ratio with the error by the repeats of both rows; one repeat has the spread of the other row."""
    error = math.hypot(*map(spread.error, repeats)) if max(repeats) > 1 else 0.0
    return LogRatio(log, error, error, spread.freedom)


@dataclass(frozen=True)
class Paired:
    """Rounds of an interleaved run: the logarithms of their ratios."""

    logs: tuple[float, ...]
    within: float  # variance of the centre by samples
    freedom: int
    starts: int = 1  # starts of each arm's ranks, which measured the rounds in turn

    @property
    def between(self) -> float:
        """Variance of the centre by the median distance between two rounds, which outliers hardly change."""
        distances = [abs(first - second) for first, second in combinations(self.logs, 2)]
        return (median(distances) / 0.954) ** 2 / len(self.logs)

    @property
    def centre(self) -> float:
        """The median of the means of any two rounds (J. Hodges and E. Lehmann, 1963), robust to spoiled rounds."""
        return median(fmean(pair) for pair in combinations_with_replacement(self.logs, 2))


def paired(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], starts: int = 1) -> Paired:
    """Pair the samples of two halves by round; both have the same number of rounds, at least two."""
    logs = [math.log(median(after) / median(before)) for before, after in zip(base, new, strict=True)]
    (before, blocks_before), (after, blocks_after) = _variance(base, 0), _variance(new, 1)
    return Paired(tuple(logs), before + after, blocks_before + blocks_after - 2, min(starts, len(logs)))


def _variance(rounds: Sequence[Sequence[float]], stream: int) -> tuple[float, int]:
    """Return the variance of the centre of rounds by their samples, and the number of blocks.

    One round has too few samples to be resampled, so the samples of all rounds are, each over its round's median.
    """
    alone = np.concatenate([np.asarray(samples) / median(samples) for samples in rounds])
    drawn, blocks = log_medians(alone, stream)
    low, high = _ends(drawn)
    return ((high - low) / 3.92) ** 2 * len(alone) / max(1, len(alone) - len(rounds)), blocks


def _ends(drawn: Floats) -> tuple[float, float]:
    ordered = np.sort(drawn).tolist()
    return percentile(ordered, 2.5), percentile(ordered, 97.5)


def with_starts(estimates: Sequence[LogRatio], rows: Sequence[Paired], curves: Sequence[object]) -> list[LogRatio]:
    """Return the estimates with the additional error between starts of the ranks.

    The arms of an interleaved run have separate ranks, so effects of their starts do not cancel in a ratio.  Rows of a
    curve are sorted by size.
    """
    # Starts took turns: every `starts`-th round belongs to the same start.
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

    A row has too few rounds for their variance.  All rows together give its ratio to the variance by samples; a row
    with a much larger variance keeps its own.
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
    """Return the 75 % quantile of the ratio of `between` over `within` for rounds that differ only by chance."""
    normal = np.random.default_rng(rounds).normal(size=(2000, rounds))
    distances = [np.abs(normal[:, first] - normal[:, second]) for first, second in combinations(range(rounds), 2)]
    return float(np.quantile((np.median(distances, axis=0) / 0.954) ** 2, _QUANTILE))


NEAR = 3  # sizes to either side; disturbances differ between small, large and cached messages

_PERCENT, _NORMAL, _CAREFUL = 75, 1.15, 1.0
"""Scatter is the 75 % quantile of the sizes, which leaves out the steps of a real change.  Normal scatter reaches 1.15
standard errors there.  A limit of 1.0 overstates scatter by a seventh, as a margin for few sizes; scatter near a size
uses 1.15, since one of many windows looks rough by chance."""


@dataclass(frozen=True)
class Scatter:
    """Scatter between two runs, as logarithms of ratios, each with the number of sizes behind it."""

    everywhere: Sizes = (0.0, 0)
    near: Mapping[int, Sizes] = field(default_factory=dict)  # by size

    def at(self, nbytes: int) -> Sizes:
        """Return the scatter near a size, or of all sizes if larger."""
        return max(self.everywhere, self.near.get(nbytes, self.everywhere))


def scatter(curves: Sequence[Sequence[tuple[int, LogRatio]]]) -> Scatter:
    """Return the scatter of ratios of neighbouring sizes beyond their errors.

    A curve is (nbytes, estimate) by size.  A size counts once: its implementations were sampled in turn, and the
    machine disturbed all of them.
    """
    distances = []
    for whole in curves:
        far = outliers([(nbytes, estimate.log) for nbytes, estimate in whole])
        curve = [point for point in whole if point[0] not in far]
        steps = _steps([estimate.log for _, estimate in curve])

        # Compare each ratio with the middle of its neighbours: a gradual change with size, or a step, is no scatter.
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
    """Return the scatter that, with the errors, explains the distances, and the number of sizes.

    A distance is (size, distance of its ratio from the middle of its neighbours, variance).  Distances are explained if
    three quarters of them are within `reach` standard errors.
    """
    if not distances:
        return 0.0, 0
    sizes, off, errors = map(np.array, zip(*distances, strict=True))
    places = len(set(sizes.tolist()))

    # The distance from the middle of two neighbours has 1.5 times the variance of one ratio.
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
"""Prior scatter of ratios of two logs of one machine, as a standard deviation of logarithms with degrees of freedom,
fitted to 139 published repeats (docs/analysis.md)."""
LEAST_STEP, FAR_STEP = math.log(1.15), 4.0
"""Smallest step of a sampled curve: as a logarithm, and over the median distance of neighbours, which one in 150
exceeds by chance."""
STANDS_OUT, FAR_OUT = math.log(1.5), 10.0
"""Smallest distance of an outlier from nearby sizes: as a logarithm, and over the usual distance.  One of 58 published
repeats of one node has an outlier (docs/analysis.md)."""
_SEVERAL = 8  # sizes of a curve
_REACH = 2  # sizes to either side for a ratio of means; a step of three sizes is then no outlier


def of_means(curves: Sequence[Sequence[tuple[int, float]]], twins: Mapping[int, list[float]] | None = None) -> Scatter:
    """Return the scatter of ratios of two means.

    A curve is (nbytes, logarithm of the ratio) by size.  A size counts once, and outliers do not count.  PUBLISHED is
    the prior (a moderated variance: G. Smyth, 2004).  At the sizes of *twins*, its squared deviations count instead.
    """
    squares_at: dict[int, list[float]] = {nbytes: [] for curve in curves for nbytes, _ in curve}
    for curve in curves:
        far = outliers(curve)
        rest = [(nbytes, log) for nbytes, log in curve if nbytes not in far]
        logs = [log for _, log in rest]
        for (nbytes, _), *distances in zip(rest, _from_median(logs), _from_nearer(logs), strict=True):
            squares_at[nbytes].append(max(distances) ** 2)
    squares_at.update(twins or {})
    sizes = sorted(squares_at)

    # Two sizes are equally far from their middle, which may also be a change.
    squares = [fmean(squares_at[nbytes]) if squares_at[nbytes] and len(sizes) > 2 else None for nbytes in sizes]
    near = {nbytes: _moderated(_around(squares, place, NEAR)) for place, nbytes in enumerate(sizes)}
    return Scatter(_moderated(squares), near)


def outliers(curve: Sequence[tuple[int, float]]) -> set[int]:
    """Return the sizes that are too far from their neighbours to be scatter."""
    logs = [log for _, log in curve]
    off = _from_median(logs)
    distances = list(map(max, off, _from_nearer(logs)))
    # Up to a third of the sizes may be far off without raising the usual distance, unless there are few sizes.
    calm = [distance for distance in distances if distance <= STANDS_OUT]
    if len(distances) < _SEVERAL or 3 * len(calm) < 2 * len(distances):
        calm = distances
    usual = median(calm) / 0.6745  # the median of normal errors
    far = max(STANDS_OUT, FAR_OUT * usual)
    return {nbytes for (nbytes, _), distance in zip(curve, off, strict=True) if distance > far}


def _steps(logs: Sequence[float]) -> set[int]:
    """Return the places before a step: a change of all later sizes, much larger than neighbouring changes."""
    jumps = [abs(after - before) for before, after in pairwise(logs)]
    far = max(LEAST_STEP, FAR_STEP * median(jumps)) if jumps else 0.0
    nearby = [max(before, after) for before, after in zip([0.0, *jumps], [*jumps[1:], 0.0], strict=False)]
    return {place for place, jump in enumerate(jumps) if jump > max(far, 3 * nearby[place])}


def _from_median(logs: Sequence[float]) -> list[float]:
    """Return the distance of each value from the median around it, which outliers and steps do not change.

    The unit is the deviation of independent errors (by simulation, within 3 %).
    """
    # The median of an odd number of values is never between both sides of a step.
    reach = min(_REACH, max(1, (len(logs) - 2) // 2))
    around = [_around(logs, place, reach) for place, _ in enumerate(logs)]
    unit = math.sqrt(1 - 2 / 3 / (2 * reach + 1))
    return [abs(log - median(near)) / unit for log, near in zip(logs, around, strict=True)]


def _from_nearer(logs: Sequence[float]) -> list[float]:
    """Return the distance of each value from its nearer neighbour, in the same unit; unlike medians it shows swings."""
    nearer = []
    for place, log in enumerate(logs):
        # The first distance is that from itself.
        distances = sorted(abs(log - other) for other in _around(logs, place, 1))
        nearer.append(distances[:2][-1] / 0.945)
    return nearer


def _around(values: Sequence[T], place: int, reach: int) -> Sequence[T]:
    """Return 2 * reach + 1 values around a place; at the ends they are on one side."""
    first = max(0, min(place - reach, len(values) - 2 * reach - 1))
    return values[first : first + 2 * reach + 1]


def _moderated(squares: Sequence[float | None]) -> tuple[float, float]:
    """Return a standard error and its degrees of freedom from the known squares of sizes."""
    known = [square for square in squares if square is not None]
    freedom = PUBLISHED.freedom + len(known)
    return math.sqrt((PUBLISHED.freedom * PUBLISHED.deviation**2 + sum(known)) / freedom), freedom
