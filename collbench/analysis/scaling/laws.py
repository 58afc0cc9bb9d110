"""Laws of scaling, one record a law, and their fit to a curve: what stays serial, what ranks contend for, coherence.

m is the number of ranks over the fewest of the curve, E the efficiency.  Every law is linear in its parameters once it
is written as 1 / E - 1 = f(m) or 1 - E = f(m), so it is fitted by least squares of relative residuals, none negative.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.rounds import Estimate
from collbench.analysis.scaling.points import Curve
from collbench.stats import median_interval, percentile

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """One way in which efficiency may fall with the number of ranks."""

    name: str
    parameters: tuple[str, ...]
    columns: Callable[[Floats], Floats]  # of m: shape (points, parameters)
    inverse: bool  # whether they add up to 1 / E - 1; else to 1 - E
    source: str

    def efficiency(self, values: Sequence[float], ranks: Floats) -> Floats:
        """Of so many times the fewest ranks."""
        total: Floats = self.columns(ranks) @ np.asarray(values, np.float64)
        return 1 / (1 + total) if self.inverse else 1 - total


LAWS = (
    Law(
        "Amdahl",
        ("serial share",),
        lambda m: (m - 1)[:, None],
        True,
        "G. Amdahl, 1967: a share of the work does not get faster",
    ),
    Law(
        "Gustafson",
        ("serial share",),
        lambda m: ((m - 1) / m)[:, None],
        False,
        "J. Gustafson, 1988: a share of a step's time does not grow with the work",
    ),
    Law(
        "USL",
        ("contention", "coherence"),
        lambda m: np.stack([m - 1, m * (m - 1)], axis=1),
        True,
        "N. Gunther, 1993: ranks wait for what they share, and talk to all others",
    ),
)


@dataclass(frozen=True)
class Fitted:
    """A law brought to a curve."""

    law: Law
    values: tuple[Estimate, ...]  # of its parameters
    residual: float | None  # root mean square of what is left, relative, for each degree of freedom; None without any

    def efficiency(self, ranks: float) -> float:
        """Of so many times the fewest ranks."""
        return float(self.law.efficiency([one.value for one in self.values], np.array([ranks]))[0])


def fits(curve: Curve) -> list[Fitted]:
    """Every law with no more parameters than the curve has points beside its first."""
    return [_fitted(law, curve) for law in LAWS if len(law.parameters) <= len(curve.more)]


def best(fitted: Sequence[Fitted]) -> Fitted | None:
    """The law that leaves the least, of those that leave anything to look at."""
    judged = [one for one in fitted if one.residual is not None]
    return min(judged, key=lambda one: one.residual or 0.0, default=None)


def _fitted(law: Law, curve: Curve) -> Fitted:
    ranks = np.array([curve.relative(point) for point in curve.more])
    efficiency = np.array([point.efficiency.value for point in curve.more])
    values = _least_squares(law, ranks, efficiency)
    freedom = len(ranks) - len(law.parameters)
    left = law.efficiency(values, ranks) / efficiency - 1
    residual = float(np.sqrt(np.sum(left**2) / freedom)) if freedom else None
    return Fitted(law, tuple(map(Estimate, values, *_bounds(law, curve, ranks))), residual)


def _bounds(law: Law, curve: Curve, ranks: Floats) -> tuple[list[float], list[float]]:
    """Intervals of the parameters: from a fit to every round, or of predictions to both ends of their bands."""
    rounds = min(len(point.rounds) for point in curve.more)
    if rounds:
        tries = [[point.rounds[number] for point in curve.more] for number in range(rounds)]
        every = [_least_squares(law, ranks, np.array(one)) for one in tries]
        intervals = [median_interval(own) for own in zip(*every, strict=True)]
        return [low for low, _ in intervals], [high for _, high in intervals]
    ends = [[getattr(point.efficiency, end) for point in curve.more] for end in ("low", "high")]
    both = [_least_squares(law, ranks, np.array(one)) for one in ends]
    columns = list(zip(*both, strict=True))
    return [percentile(own, 0) for own in columns], [percentile(own, 100) for own in columns]


def _least_squares(law: Law, ranks: Floats, efficiency: Floats) -> list[float]:
    from scipy.optimize import nnls

    if law.inverse:  # E (1 + f) = 1
        matrix, target = efficiency[:, None] * law.columns(ranks), 1 - efficiency
    else:  # (1 - f) / E = 1
        matrix, target = law.columns(ranks) / efficiency[:, None], (1 - efficiency) / efficiency
    return [float(value) for value in nnls(matrix, np.maximum(target, 0.0))[0]]
