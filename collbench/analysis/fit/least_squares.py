"""Least squares with coefficients that are not negative, of relative residuals, many curves at once."""

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
    fitted, weights = seconds, np.ones_like(seconds)
    for _ in range(_ROUNDS):
        coefficients = _nonnegative(terms / fitted[:, :, None], 1 + np.log(seconds / fitted), np.sqrt(weights))
        fitted = np.maximum((terms @ coefficients[:, :, None])[:, :, 0], 0.1 * seconds)
        off = np.abs(np.log(seconds / fitted))
        width = np.maximum(1.4826 * np.median(off, axis=1, keepdims=True), 1e-9)
        weights = np.minimum(1, _HUBER * width / np.maximum(off, 1e-300))
    return coefficients


def _nonnegative(columns: Floats, target: Floats, weights: Floats) -> Floats:
    """For each curve the x >= 0 that makes the squares of `weights * (columns @ x - target)` least."""
    from scipy.optimize import nnls  # takes a while to load

    scale = np.linalg.norm(columns, axis=1)  # or nnls takes bytes, which are many, for all that there is
    problems = zip(columns / scale[:, None, :] * weights[:, :, None], target * weights, strict=True)
    answer: Floats = np.array([nnls(matrix, right)[0] for matrix, right in problems]) / scale
    return answer
