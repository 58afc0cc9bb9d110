"""Least squares with coefficients that are not negative, of relative residuals, many curves at once.

Arrays are (terms, sizes, curves) inside: the long axis last, along which NumPy is fast.
"""

from itertools import product

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_ROUNDS = 8  # of reweighting; the weights of clean data stop moving after three
_HUBER = 1.345  # standard deviations: 95 % as efficient as least squares on normal residuals (Huber, 1964)


def solve(terms: Floats, seconds: Floats) -> Floats:
    """Coefficients (curves, terms) of curves (curves, sizes); the terms are (curves or 1, sizes, terms).

    Iteratively reweighted Gauss-Newton steps on the logarithms of ratios: twice the time and half the time are as far
    off, and a residual beyond the usual counts less than its square.
    """
    columns, measured = np.ascontiguousarray(terms.transpose(2, 1, 0)), np.ascontiguousarray(seconds.T)
    fitted, off, weights = measured, np.zeros_like(measured), np.ones_like(measured)
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        coefficients = _nonnegative(columns * (root / fitted), (1 + off) * root)
        fitted = np.maximum(_product(columns, coefficients), 0.1 * measured)
        off = np.log(measured / fitted)
        far = np.abs(off)
        weights = np.minimum(1, _HUBER * np.maximum(1.4826 * _median(far), 1e-9) / np.maximum(far, 1e-300))
    return coefficients.T


def _median(values: Floats) -> Floats:
    """Over the first axis."""
    ordered, count = np.sort(values, axis=0), len(values)
    middle: Floats = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return middle


def _nonnegative(columns: Floats, target: Floats) -> Floats:
    """For each curve the x >= 0 that makes the squares of `columns @ x - target` least."""
    scale = np.sqrt((columns**2).sum(axis=1))  # sizes span six decades, and so do their columns
    upper, right = _triangular(columns / scale[:, None], target)
    answer = _plain(upper, right)
    (negative,) = np.nonzero((answer < 0).any(axis=0))
    if len(negative):
        answer[:, negative] = _bounded(upper[..., negative], right[:, negative])
    coefficients: Floats = answer / scale
    return coefficients


def _triangular(columns: Floats, target: Floats) -> tuple[Floats, Floats]:
    """The same problems with as many sizes as terms: R and Q' target of Q R = columns (modified Gram-Schmidt).

    The target is one more column, which makes the answer as exact as by reflections (A. Björck, 1967).  A column of
    zeros is a term that is not used.
    """
    count = len(columns)
    left = np.concatenate([columns, target[None]])
    upper = np.zeros((count + 1, count, target.shape[1]))
    for place in range(count):
        length = np.sqrt((left[place] ** 2).sum(axis=0))
        upper[place, place] = np.where(length > 0, length, 1)
        left[place] /= upper[place, place]
        upper[place + 1 :, place] = (left[place + 1 :] * left[place]).sum(axis=1)
        left[place + 1 :] -= upper[place + 1 :, place, None] * left[place]
    return upper[:count], upper[count]


def _plain(upper: Floats, right: Floats) -> Floats:
    """The answer of triangular problems, from the last term to the first."""
    answer = np.zeros_like(right)
    for place in reversed(range(len(right))):
        known = (upper[place + 1 :, place] * answer[place + 1 :]).sum(axis=0)
        answer[place] = (right[place] - known) / upper[place, place]
    return answer


def _bounded(upper: Floats, right: Floats) -> Floats:
    """The same with no term negative: those that would be are left out, until none is.

    That is the answer if none of those left out would lessen the squares; else all choices of terms are tried.
    """
    used = np.ones(right.shape, bool)
    answer = np.full_like(right, -1)
    while (answer < 0).any():
        answer = _plain(*_triangular(upper * used[:, None], right))
        used &= answer > 0
    slopes = (upper * (right - _product(upper, answer))).sum(axis=1)
    (wanted,) = np.nonzero((~used & (slopes > 1e-12)).any(axis=0))
    if len(wanted):
        answer[:, wanted] = _best(upper[..., wanted], right[:, wanted])
    return answer


def _best(upper: Floats, right: Floats) -> Floats:
    """The same, by every choice of terms for every curve."""
    count, curves = right.shape
    choices = np.array(list(product((0.0, 1.0), repeat=count)))
    every, target = np.tile(upper, len(choices)), np.tile(right, len(choices))
    answers = _plain(*_triangular(every * np.repeat(choices, curves, axis=0).T[:, None], target))
    squares = ((_product(every, answers) - target) ** 2).sum(axis=0)
    squares[(answers < 0).any(axis=0)] = np.inf  # no terms at all have an answer that may be
    best = squares.reshape(len(choices), curves).argmin(axis=0)
    return answers.reshape(count, len(choices), curves)[:, best, np.arange(curves)]


def _product(columns: Floats, coefficients: Floats) -> Floats:
    fitted: Floats = (columns * coefficients[:, None]).sum(axis=0)
    return fitted
