"""By how much one row is faster than another, and whether that is more than chance: told apart, or not."""

import math
from dataclasses import dataclass

from collbench.results import Prediction, Reported, Timed
from collbench.units import format_size

STRETCH = 1.5
"""Times the 95 % interval.  A summary compares hundreds of pairs, and of pairs without any difference one in two
hundred has intervals that just miss each other, more where samples that follow each other are alike.  Stretched so,
one in thirty thousand has, of independent samples."""

LEAST = 1.05
"""Times as fast: less comes with where memory happens to lie, and is another in the next run.  One and the same code
under two names, in one run, was 3 % apart with intervals that were (`make noisy`, 1 of 140 pairs)."""
ASSUMED = 0.1  # half an interval over the figure, where another tool printed one figure and no interval


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
        (fast, slow), (least, most) = span(own), span(other)
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
