"""By how much one row is faster than another, and whether that is more than chance: told apart, or not."""

import math
from dataclasses import dataclass

from collbench.measurement import Measurement, Prediction, Reported
from collbench.observed import Timed
from collbench.units import format_size

STRETCH = 1.5
"""Times the 95 % interval.  A summary compares hundreds of pairs, and of pairs without any difference one in two
hundred has intervals that just miss each other, more where samples that follow each other are alike.  Stretched so,
one in thirty thousand has, of independent samples."""

LEAST = 1.05
"""Times as fast: less comes with where memory happens to lie, and is another in the next run.  One and the same code
under two names, in one run, was 3 % apart with intervals that were (`make noisy`, 1 of 140 pairs)."""
ASSUMED = 0.1  # half an interval over the figure, where another tool printed one figure and no interval
HELD_UP = 3.5e-3
"""Seconds.  A sample of several operations is made to last a fraction of a millisecond, or 3 ms on a GPU.  One that
lasts longer was held up, by a rank that had no core until the scheduler's next tick: every 4 ms, or 10."""
AROUND = 1e-6
"""Seconds of a sample in which ranks meet and read the clock.  That is nothing of the many operations that a sample is
made of, and most of a single one whose number was found on a busy machine."""


@dataclass(frozen=True)
class Advantage:
    """One row against another of the same case: how many times as fast it is, and between which two ratios."""

    nbytes: int
    ratio: float  # the other's time over its own: above 1 is faster
    low: float
    high: float
    expected: bool = False  # by a model: the likelier one is told, and where bands overlap

    @classmethod
    def of(cls, own: Timed, other: Timed) -> "Advantage":
        """Of two rows with times above 0, in the same unit."""
        held = max(_around(own, other), _held_up(own), _held_up(other))
        (fast, slow), (least, most) = _without(held, own), _without(held, other)
        expected = isinstance(own, Prediction) or isinstance(other, Prediction)
        high = most / fast if fast else math.inf
        return cls(own.case.nbytes, other.typical / own.typical, least / slow, high, expected)

    @property
    def apart(self) -> bool:
        """Whether the intervals leave room between them, and the difference is worth a word."""
        return not self.level and (self.low > 1 or self.high < 1)

    @property
    def level(self) -> bool:
        """Whether the difference is too small to be worth a word, however sure it is."""
        return 1 / LEAST < self.ratio < LEAST

    @property
    def sign(self) -> int:
        """1 faster, -1 slower, 0 not told apart; of what is expected the likelier one."""
        if not self.apart and (self.level or not self.expected):
            return 0
        return 1 if self.ratio > 1 else -1

    def __str__(self) -> str:
        """`3.5x at 8 B`, with as many digits as its interval leaves."""
        return f"{self.times} at {format_size(self.nbytes)}"

    @property
    def times(self) -> str:
        """`3.5x`, `120x`: never with an exponent."""
        return f"{float(f'{self.ratio:.{self._digits()}g}'):g}x"

    def _digits(self) -> int:
        if self.expected or not (self.low > 0 and math.isfinite(self.high)):
            return 2
        return 2 if math.sqrt(self.high / self.low) < 1.3 else 1


def span(row: Timed) -> tuple[float, float]:
    """Seconds between which a row's figure is taken to lie; (0, inf) where nobody can tell."""
    if isinstance(row, Reported) and not row.samples:
        return row.typical / (1 + ASSUMED), row.typical * (1 + ASSUMED)
    low, high = row.band
    if not (math.isfinite(high) and 0 < low <= row.typical <= high):
        return 0.0, math.inf
    if isinstance(row, Prediction):
        return low, high
    return row.typical * (low / row.typical) ** STRETCH, row.typical * (high / row.typical) ** STRETCH


def _around(own: Timed, other: Timed) -> float:
    """Seconds of a sample that are no operation's; those of as many operations have the same share of it."""
    alike = isinstance(own, Measurement) and isinstance(other, Measurement) and own.launches == other.launches
    return 0.0 if alike else AROUND


def _held_up(row: Timed) -> float:
    """Seconds for which a sample of that row may have been held up, typically; 0 where nothing speaks for it."""
    if not isinstance(row, Measurement) or row.launches == 1:
        return 0.0
    lasted = row.typical * _parts(row)
    return lasted if lasted > HELD_UP else 0.0


def _parts(row: Measurement) -> int:
    """What a sample is made of, of which a time is one: operations, or messages of these."""
    return row.launches * row.case.collective.parts


def _without(held: float, row: Timed) -> tuple[float, float]:
    """The row's span if every sample was held up for as long.

    Rows of a case are sampled in turn, so what held up one held up the other.  Of 256 operations each seems to take 256
    times less of it than a single one does, though both are the same.
    """
    low, high = span(row)
    return (max(0.0, low - held / _parts(row)), high) if isinstance(row, Measurement) else (low, high)
