"""How far two runs differ anyway: a machine is a little different from one minute to the next.

No sample of either run shows that.  It is seen in ratios of neighbouring sizes, which scatter more than their own
errors explain.  What shifts all sizes alike, and for the whole of a run, nobody can tell from a change of what is
measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collbench.analysis.compare.bootstrap import Floats
from collbench.analysis.compare.estimate import Estimate
from collbench.stats import percentile

NEAR = 3  # sizes to either side: small messages, large ones and what fits a cache are disturbed by different things

_PERCENT, _NORMAL, _CAREFUL = 75, 1.15, 1.0
"""Scatter is read off three quarters of the sizes, so that the steps of a real change are left out.  Those of normal
scatter reach 1.15 standard errors; asking for 1.0 overstates the scatter by a seventh, since it is known from few.
Near a size it is asked for 1.15: of so many windows one would look rough by chance."""


@dataclass(frozen=True)
class Scatter:
    """Between two runs, as logarithms of ratios, each with the number of sizes that it is known from."""

    everywhere: tuple[float, int] = (0.0, 0)
    near: dict[int, tuple[float, int]] = field(default_factory=dict)  # by size

    def at(self, nbytes: int) -> tuple[float, int]:
        """Of the sizes near that one, or of all where these are the rougher ones."""
        return max(self.everywhere, self.near.get(nbytes, self.everywhere))


@dataclass(frozen=True)
class _Distance:
    """Of a ratio from the middle of its neighbours, and the square of what that may be by their errors."""

    nbytes: int
    log: float
    error: float


def scatter(curves: Sequence[Sequence[tuple[int, Estimate]]]) -> Scatter:
    """How far ratios of neighbouring sizes scatter beyond their errors.

    A curve is (nbytes, estimate) by size; each is held against the middle of its neighbours, so a change that comes
    or goes with the size is no scatter.  Implementations of one size were sampled in turn, and what the machine did
    to one it did to all, so a size counts once.
    """
    distances = [distance for curve in curves for distance in _distances(curve)]
    sizes = sorted({nbytes for curve in curves for nbytes, _ in curve})
    near = {}
    for place, nbytes in enumerate(sizes):
        window = set(sizes[max(0, place - NEAR) : place + NEAR + 1])
        near[nbytes] = _known([distance for distance in distances if distance.nbytes in window], _NORMAL)
    return Scatter(_known(distances, _CAREFUL), near)


def _distances(curve: Sequence[tuple[int, Estimate]]) -> list[_Distance]:
    return [
        _Distance(
            nbytes,
            middle.log - (left.log + right.log) / 2,
            middle.error**2 + (left.error**2 + right.error**2) / 4,
        )
        for (_, left), (nbytes, middle), (_, right) in zip(curve, curve[1:], curve[2:], strict=False)
    ]


def _known(distances: Sequence[_Distance], reach: float) -> tuple[float, int]:
    if not distances:
        return 0.0, 0
    logs = np.array([abs(distance.log) for distance in distances])
    errors = np.array([distance.error for distance in distances])
    return _excess(logs, errors, reach), len({distance.nbytes for distance in distances})


def _excess(distances: Floats, errors: Floats, reach: float) -> float:
    """The scatter of each size that, with its errors, explains the distances; a distance has 1.5 times its square.

    Explained are they if three quarters stay within `reach` standard errors.
    """

    def too_little(square: float) -> bool:
        return percentile((distances / np.sqrt(np.maximum(errors + 1.5 * square, 1e-300))).tolist(), _PERCENT) > reach

    if not too_little(0.0):
        return 0.0
    low, high = 0.0, float(distances.max() ** 2)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if too_little(middle) else (low, middle)
    return math.sqrt(high)
