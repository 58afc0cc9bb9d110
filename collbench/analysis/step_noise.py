"""The noise of step times: correlation, period, percentiles far out, and what the slowest of more ranks would take.

A daemon that wakes a hundred times in a second makes steps long at equal distances in time; other noise has a spectrum
without lines, though it may well rise towards low frequencies.  So a line is compared with its neighbours, not with all
of the spectrum, and how high a line may be by chance is found by shuffling the steps.
"""

from dataclasses import dataclass

import numpy as np

from collbench.analysis.bootstrap import autocorrelation_time, block_count
from collbench.analysis.scaling import Estimate
from collbench.analysis.stragglers import Floats, StepArrays, split

PERCENTS = (50.0, 99.0, 99.9)
FEWEST = 64  # steps of a series in which a period is looked for
_SHUFFLES = 200
_PERIOD_ERROR = 0.01  # probability of a period where there is none
_LEAST_PERIODS = 4.0  # in a series
_LEAST_STEPS = 3.0  # in a period
_MOST_LINES = 1500  # of a spectrum
_LONGEST, _MOST_PARTS = 1024, 16  # steps of a spectrum, and how many spectra are added up
_AROUND = 20  # lines on either side that a line is compared with
_MOST_PARTIALS = 9  # of a line that the highest one may be
_TERMS = 3  # of the autoregressive fit that takes memory out of the steps
_CLIPPED = 6.0  # standard deviations from the median, beyond which a step is clipped
_TAIL_ERROR = 0.05  # of the interval of a percentile
_UNCORRELATED = 0.05  # a correlation that counts as none
_CHANCE = 2.0  # events that follow each other as closely as others by chance
_DRAWS = 400  # of blocks of samples, for the interval of an expected maximum
_ENOUGH = 3.0  # times as many samples as ranks: with fewer the largest sample decides
_LEVELS = 400  # of all samples in order, and as many again towards the largest
_PERIOD_SEED, _MAXIMUM_SEED = 20252, 20251


def autocorrelation(steps: StepArrays, lags: int) -> list[float]:
    """Return the autocorrelation of step times from lag 0 to *lags*, over all series; NaN where they do not vary."""
    parts = [_clipped(steps.seconds[series]) for series in steps.slices]
    power = sum(float(part @ part) for part in parts)
    if not power:
        return [float("nan")] * (lags + 1)
    found = []
    for lag in range(lags + 1):
        found.append(sum(float(part[: len(part) - lag] @ part[lag:]) for part in parts) / power)
    return found


def _clipped(seconds: Floats) -> Floats:
    """Return seconds less their median, with outliers clipped so that no single step decides, and then centred."""
    apart = seconds - np.median(seconds)
    spread = 1.4826 * np.median(np.abs(apart)) or float(apart.std())
    clipped = np.clip(apart, -_CLIPPED * spread, _CLIPPED * spread)
    centred: Floats = clipped - clipped.mean()
    return centred


# The period.


@dataclass(frozen=True)
class Period:
    """A line of the spectrum that shuffled steps do not have."""

    seconds: float
    strength: float  # over its neighbours
    chance: float  # what the highest line of shuffled steps stays below, but for _PERIOD_ERROR


def period(steps: StepArrays) -> Period | None:
    """Return the longest period that is surely there; None if none is, or the series are too short to have one."""
    usable = _usable(steps)
    if not usable:
        return None
    # Evenly apart, from a few periods in a series to a few steps in a period.
    shortest = min(float(steps.seconds[part].sum()) for part in usable)
    first, last = _LEAST_PERIODS / shortest, 1 / (_LEAST_STEPS * steps.median)
    count = int(min(_MOST_LINES, max(0.0, (last - first) * 2 * shortest)))
    if count < 2 * _AROUND:
        return None
    frequencies = np.linspace(first, last, count)
    generator = np.random.default_rng(_PERIOD_SEED)
    spectra = np.sum([_spectra(steps, part, frequencies, generator) for part in usable], axis=0)
    lines = _over_neighbours(spectra.T)
    chance = float(np.quantile(lines[1:].max(axis=1), 1 - _PERIOD_ERROR))
    if lines[0].max() <= chance:
        return None
    best = int(lines[0].argmax())
    frequency = float(frequencies[best]) / _multiple(frequencies, lines[0], chance)
    return Period(1 / frequency, float(lines[0][best]), chance)


def _usable(steps: StepArrays) -> list[slice]:
    """Return parts of series, none so long that its spectrum would take long, and no more than enough."""
    parts: list[slice] = []
    for series in steps.slices:
        parts += [part for part in split(series, _LONGEST) if part.stop - part.start >= FEWEST]
    return parts[:: -(-len(parts) // _MOST_PARTS)] if parts else []


def _spectra(steps: StepArrays, part: slice, frequencies: Floats, generator: np.random.Generator) -> Floats:
    """Return the power by line of the steps as they were and of _SHUFFLES shuffles: shape (lines, 1 + _SHUFFLES)."""
    seconds = steps.seconds[part]
    values = _whitened(_clipped(seconds))
    columns = np.column_stack([values, *(generator.permutation(values) for _ in range(_SHUFFLES))])
    phases = 2 * np.pi * np.outer(frequencies, np.cumsum(seconds))
    power: Floats = (np.cos(phases) @ columns) ** 2 + (np.sin(phases) @ columns) ** 2
    return power


def _whitened(values: Floats) -> Floats:
    """Return what the last few values do not predict of each value: without memory the spectrum is level but for lines.

    An autoregressive fit by least squares; so few terms cannot follow a line, which lasts for many periods.
    """
    past = np.lib.stride_tricks.sliding_window_view(values, _TERMS)[:-1]
    weights, *_ = np.linalg.lstsq(past, values[_TERMS:], rcond=None)
    left: Floats = np.concatenate([np.zeros(_TERMS), values[_TERMS:] - past @ weights])
    return left


def _over_neighbours(spectra: Floats) -> Floats:
    """Return every line over the median of the lines around it, in every row."""
    padded = np.pad(spectra, ((0, 0), (_AROUND, _AROUND)), mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1, axis=1)
    lines: Floats = spectra / np.maximum(np.median(around, axis=2), 1e-300)
    return lines


def _multiple(frequencies: Floats, lines: Floats, chance: float) -> int:
    """Return which multiple of the lowest line the highest is: short bursts have many lines, all about as high."""
    best, width = float(frequencies[lines.argmax()]), float(frequencies[1] - frequencies[0])
    for multiple in range(_MOST_PARTIALS, 1, -1):
        near = np.abs(frequencies - best / multiple) <= width
        if near.any() and lines[near].max() > chance:
            return multiple
    return 1


# Percentiles.


def tail(samples: Floats, percent: float) -> Estimate | None:
    """Return a percentile with its 95 % interval.

    None where the interval would need samples beyond the largest (p99.9 needs 3,688).

    Distribution-free: the number of independent samples below a percentile is binomial (W. R. Thompson, 1936).  Long
    steps that come together are one event: they count as fewer, by how long being above the percentile lasts.
    """
    if not len(samples):
        return None
    value = float(np.quantile(samples, percent / 100))
    independent = int(len(samples) / event_length((samples > value).astype(float)))
    from scipy.special import bdtr  # imported here since it takes 0.1 s

    # Of the order statistics that hold the percentile between them: the probability of at most so many below.
    below = bdtr(np.arange(independent + 1), independent, percent / 100)
    first = int(np.searchsorted(below, _TAIL_ERROR / 2, side="right"))
    last = int(np.searchsorted(below, 1 - _TAIL_ERROR / 2)) + 1
    if not independent or first < 1 or last > independent:
        return None
    low, high = np.quantile(samples, (first / independent, last / independent))
    return Estimate(value, float(low), float(high))


def event_length(values: Floats) -> float:
    """Return for how many steps an event lasts (autocorrelation time), 1 if all are independent; *values*: 0 or 1."""
    least = max(_UNCORRELATED, _CHANCE / max(1.0, values.sum()))
    return autocorrelation_time(values - values.mean(), least)


# The slowest of more ranks.  No shape is assumed: if F is the share of samples up to a value, the largest of n draws is
# that value or less with the probability F**n, so its expectation is a sum over the samples in order.  Its interval is
# found by drawing whole blocks of samples again (H. Kuensch, 1989), since neighbours are alike.


@dataclass(frozen=True)
class ExpectedMaximum:
    """Seconds that the slowest of so many ranks is expected to take, with a 95 % interval."""

    ranks: int
    value: float
    low: float
    high: float
    at_least: bool  # the draws reach beyond the largest sample, so that it may be more


def expected_maximum(samples: Floats, ranks: int) -> ExpectedMaximum:
    """Return the expected maximum of *ranks* independent draws from the distribution of the samples.

    Args:
        samples: In the order in which they were taken, of shape (steps,), or (several, steps) for several ranks that
            are taken for alike.
        ranks: How many draws there are.

    """
    rows = np.atleast_2d(samples)
    blocks = max(2, min(block_count(row) for row in rows))
    block = np.tile(np.arange(rows.shape[1]) * blocks // rows.shape[1], len(rows))
    order = rows.ravel().argsort(kind="stable")
    # Up to which samples in order they are counted; the last level is all of them.
    near = len(order) - np.geomspace(1, len(order), _LEVELS).round().astype(int)
    levels = np.linspace(1, len(order), min(len(order), _LEVELS)).round().astype(int)
    ends = np.unique([*levels, *near[near > 0], len(order)])
    # How many samples up to each level every block has: shape (levels, blocks).
    counts = np.zeros((len(ends), blocks))
    np.add.at(counts, (np.searchsorted(ends, np.arange(len(order)), side="right"), block[order]), 1.0)
    counts = counts.cumsum(axis=0)
    values = np.add.reduceat(rows.ravel()[order], [0, *ends[:-1]]) / np.diff(ends, prepend=0)
    generator = np.random.default_rng((_MAXIMUM_SEED, blocks))
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=_DRAWS)
    low, high = np.quantile(_expectations(values, counts @ drawn.T.astype(float), ranks), [0.025, 0.975])
    value = float(_expectations(values, ends[:, None].astype(float), ranks)[0])
    beyond = ranks * _ENOUGH > len(order)
    return ExpectedMaximum(ranks, value, min(float(low), value), max(float(high), value), beyond)


def _expectations(values: Floats, reached: Floats, ranks: int) -> Floats:
    """Return the expected largest of *ranks* draws for each column of sample counts up to a level."""
    shares = (reached / reached[-1]) ** ranks
    expectations: Floats = values @ np.diff(shares, axis=0, prepend=0.0)
    return expectations
