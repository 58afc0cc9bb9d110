"""What the times of steps remember, and whether they repeat: autocorrelation and period.

A daemon that wakes a hundred times in a second makes steps long at equal distances in time; other noise has a spectrum
without lines, though it may well rise towards low frequencies.  So a line is held against its neighbours, not against
all of the spectrum, and how high a line may be by chance is found by shuffling the steps.
"""

from dataclasses import dataclass

import numpy as np

from collbench.analysis.jitter.lateness import Floats, Steps, parts_of

SHUFFLES = 200
DOUBT = 0.01  # of a period where there is none
FEWEST = 64  # steps of a series in which a period is looked for
_LEAST_PERIODS = 4.0  # in a series, and steps in a period at least:
_LEAST_STEPS = 3.0
_MOST_LINES = 1500  # of a spectrum
_LONGEST, _MOST_PARTS = 1024, 16  # steps of a spectrum, and how many are added up
_AROUND = 20  # lines on either side that a line is held against
_MOST_PARTIALS = 9  # of a line that the highest one may be
_TERMS = 3  # steps of which it is known how much the next one is like them
_CLIPPED = 6.0  # standard deviations: what is farther from the median is no more of a sign
_SEED = 20252


@dataclass(frozen=True)
class Period:
    """A line of the spectrum that shuffled steps do not have."""

    seconds: float
    strength: float  # over its neighbours
    chance: float  # what the highest line of shuffled steps stays below, with 1 - DOUBT


def autocorrelation(steps: Steps, lags: int) -> list[float]:
    """Of the times of steps, from lag 0 on, the mean over series; NaN where they do not vary."""
    parts = [_clipped(steps.seconds[own]) for own in steps.slices]
    power = sum(float(part @ part) for part in parts)
    sums = [sum(float(part[: len(part) - lag] @ part[lag:]) for part in parts) for lag in range(lags + 1)]
    return [value / power if power else float("nan") for value in sums]


def period(steps: Steps) -> Period | None:
    """The longest period that is surely there; None if none is, or the series are too short to have one."""
    usable = _usable(steps)
    if not usable:
        return None
    frequencies = _frequencies(steps, usable)
    if len(frequencies) < 2 * _AROUND:
        return None
    generator = np.random.default_rng(_SEED)
    spectra = np.sum([_spectra(steps, own, frequencies, generator) for own in usable], axis=0)
    lines = _above_neighbours(spectra.T)
    chance = float(np.quantile(lines[1:].max(axis=1), 1 - DOUBT))
    if lines[0].max() <= chance:
        return None
    best = int(lines[0].argmax())
    frequency = float(frequencies[best]) / _part(frequencies, lines[0], chance)
    return Period(1 / frequency, float(lines[0][best]), chance)


def _usable(steps: Steps) -> list[slice]:
    """Parts of series, none so long that its spectrum would take long, nor more than enough."""
    parts = [part for own in steps.slices for part in parts_of(own, _LONGEST) if part.stop - part.start >= FEWEST]
    return parts[:: -(-len(parts) // _MOST_PARTS)] if parts else []


def _clipped(seconds: Floats) -> Floats:
    """Without its median, and with what strays clipped, so that no single step decides."""
    apart = seconds - np.median(seconds)
    spread = 1.4826 * np.median(np.abs(apart)) or float(apart.std())
    clipped = np.clip(apart, -_CLIPPED * spread, _CLIPPED * spread)
    centred: Floats = clipped - clipped.mean()
    return centred


def _whitened(values: Floats) -> Floats:
    """What the last few values do not tell of the next one: without a memory, the spectrum is level but for lines.

    An autoregressive fit by least squares; so few terms cannot follow a line, which lasts for many periods.
    """
    past = np.lib.stride_tricks.sliding_window_view(values, _TERMS)[:-1]
    told, *_ = np.linalg.lstsq(past, values[_TERMS:], rcond=None)
    left: Floats = np.concatenate([np.zeros(_TERMS), values[_TERMS:] - past @ told])
    return left


def _frequencies(steps: Steps, usable: list[slice]) -> Floats:
    """Of the lines, evenly apart: from a few periods in a series to a few steps in a period."""
    shortest = min(float(steps.seconds[own].sum()) for own in usable)
    first, last = _LEAST_PERIODS / shortest, 1 / (_LEAST_STEPS * steps.typical)
    count = int(min(_MOST_LINES, max(0.0, (last - first) * 2 * shortest)))
    return np.linspace(first, last, count) if count > 1 else np.zeros(0)


def _spectra(steps: Steps, own: slice, frequencies: Floats, generator: np.random.Generator) -> Floats:
    """Power by line, of the steps of a series as they were and shuffled so many times: (lines, 1 + SHUFFLES)."""
    seconds = steps.seconds[own]
    values = _whitened(_clipped(seconds))
    columns = np.column_stack([values, *(generator.permutation(values) for _ in range(SHUFFLES))])
    when = np.cumsum(seconds)
    phases = 2 * np.pi * np.outer(frequencies, when)
    power: Floats = (np.cos(phases) @ columns) ** 2 + (np.sin(phases) @ columns) ** 2
    return power


def _above_neighbours(spectra: Floats) -> Floats:
    """Every line over the median of those around it, in every row."""
    padded = np.pad(spectra, ((0, 0), (_AROUND, _AROUND)), mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1, axis=1)
    lines: Floats = spectra / np.maximum(np.median(around, axis=2), 1e-300)
    return lines


def _part(frequencies: Floats, lines: Floats, chance: float) -> int:
    """Which multiple of the lowest line the highest is: what comes in short bursts has many, all about as high."""
    best, width = float(frequencies[lines.argmax()]), float(frequencies[1] - frequencies[0])
    for part in range(_MOST_PARTIALS, 1, -1):
        near = np.abs(frequencies - best / part) <= width
        if near.any() and lines[near].max() > chance:
            return part
    return 1
