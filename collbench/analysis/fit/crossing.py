"""Where two fitted curves cross, and how sure that is."""

import math
from dataclasses import dataclass

import numpy as np

from collbench.analysis.fit.curve import CONFIDENCE, CurveFit, around, interval
from collbench.analysis.fit.least_squares import Floats

_GRID = 512  # places at which two curves are compared; between neighbours of a 30-octave sweep lies 4 %


@dataclass(frozen=True)
class Crossing:
    """A size in bytes where the faster of two curves changes, and its interval."""

    nbytes: float
    low: float
    high: float
    sure: bool  # whether all but a few replicates have it; else the interval is all that both were measured at


def crossings(first: CurveFit, second: CurveFit, confidence: float = CONFIDENCE, seed: int = 0) -> list[Crossing]:
    """Where two curves cross within what both were measured at, by size.

    Replicates of a curve are as far off there as sizes that are left out are, so what the form cannot follow counts.
    """
    low, high = max(first.sizes[0], second.sizes[0]), min(first.sizes[-1], second.sizes[-1])
    if low >= high:
        return []
    places = np.geomspace(low, high, _GRID)
    random = np.random.default_rng(seed)
    gaps = _there(first, places, random) - _there(second, places, random)
    crossed = []
    for sign in (1, -1):
        replicates = [_rises(places, sign * gap) for gap in gaps]
        for root in _rises(places, sign * (first.predict(places) - second.predict(places))):
            near = [min(roots, key=lambda size: abs(math.log(size / root))) for roots in replicates if roots]
            sure = len(near) > confidence * len(replicates)
            ends = interval(np.array(near), confidence) if sure else (float(low), float(high))
            crossed.append(Crossing(root, *around(root, ends), sure))
    return sorted(crossed, key=lambda crossing: crossing.nbytes)


def _there(curve: CurveFit, places: Floats, random: np.random.Generator) -> Floats:
    """Replicates of a curve, each as far off as some size that was left out."""
    off = random.choice(curve.left_out, size=(len(curve.draws), 1))
    seconds: Floats = np.exp(off) * curve.replicates(places)
    return seconds


def _rises(places: Floats, gap: Floats) -> list[float]:
    """Where a difference becomes positive: straight lines between the places; zeros say nothing of the sign."""
    places, gap = places[gap != 0], gap[gap != 0]
    at = np.flatnonzero((gap[:-1] < 0) & (gap[1:] > 0))
    share = gap[at] / (gap[at] - gap[at + 1])
    return [float(size) for size in places[at] + share * (places[at + 1] - places[at])]
