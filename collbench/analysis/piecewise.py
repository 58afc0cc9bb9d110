"""Curves that three numbers do not describe, in pieces of a + b*S (Hockney, 1994), and never falling with size.

A library changes its algorithm or protocol between sizes, and times jump there.  Where they jump down, no curve that
never falls can follow: the sizes around take their mean (isotonic regression).  Between two pieces time is straight.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def cuts(sizes: Floats, seconds: Floats) -> list[list[int]]:
    """Return the best cut into one piece, into two, and so on, each of two sizes or more, by dynamic programming.

    A cut is the places of ascending sizes where pieces begin, and the number of sizes; errors are logarithms of ratios.
    """
    count, place = len(sizes), np.arange(len(sizes))
    first, last = place[:, None, None], place[:, None]
    inside = (np.minimum(first, last) <= place) & (place <= np.maximum(first, last))
    latency, per_byte = _lines(sizes, _rising(seconds[None])[0], inside)
    off = np.abs(np.log(seconds / (latency[..., None] + per_byte[..., None] * sizes)))
    cost = np.full((count + 1, count + 1), np.inf)  # of a piece from a place up to another one
    cost[:-1, 1:] = np.where((last > first)[..., 0], (off * inside).sum(axis=-1), np.inf)
    best, begins, found = cost[0], [[0]] * (count + 1), []
    for _ in range(count // 2):
        found.append([*begins[-1], count])
        ways = best[:, None] + cost
        best, begins = ways.min(axis=0), [[*begins[before], int(before)] for before in ways.argmin(axis=0)]
    return found


def join(sizes: Floats, seconds: Floats, cut: list[int]) -> tuple[tuple[float, ...], Floats]:
    """Return bends, where pieces end and begin, and the coefficients of each of the curves (curves, sizes)."""
    place, ends = np.arange(len(sizes)), np.array([(low, high - 1) for low, high in pairwise(cut)])
    inside = (ends[:, :1] <= place) & (place <= ends[:, 1:])
    latency, per_byte = _lines(sizes, _rising(seconds), inside[:, None])
    there = latency[..., None] + per_byte[..., None] * sizes[ends][:, None]  # (pieces, curves, first and last)
    times = np.maximum.accumulate(there.transpose(1, 0, 2).reshape(len(seconds), -1), axis=1)
    changes = np.diff(np.diff(times) / np.diff(sizes[ends.ravel()]), axis=1, prepend=0)
    start = np.stack([latency[0], np.zeros(len(seconds))], axis=1)
    return tuple(sizes[ends.ravel()][1:-1].tolist()), np.concatenate([start, changes], axis=1)


def _rising(seconds: Floats) -> Floats:
    """Return the nearest times that never fall with size, by the squares of the logarithms of ratios."""
    from scipy.optimize import isotonic_regression  # takes a while to load

    return np.exp([isotonic_regression(curve).x for curve in np.log(seconds)])


def _lines(sizes: Floats, seconds: Floats, inside: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the a, b >= 0 of a + b*S with the least squares of relative errors over the sizes that are inside."""
    weights = inside / seconds**2
    one, size, square = ((weights * sizes**power).sum(axis=-1) for power in range(3))
    time, product = ((weights * seconds * sizes**power).sum(axis=-1) for power in range(2))
    determinant = np.maximum(one * square - size**2, 1e-12 * one * square)
    latency, per_byte = (time * square - product * size) / determinant, (product * one - time * size) / determinant
    flat, through_zero = per_byte * size <= 1e-9 * latency * one, latency <= 0  # but for rounding, not even that
    latency = np.where(flat, time / one, np.where(through_zero, 0, latency))
    return latency, np.where(flat, 0, np.where(through_zero, product / square, per_byte))
