"""Least squares with coefficients that are not negative, of relative residuals, many curves at once.

Arrays are (terms, sizes, curves) inside: the long axis last, along which NumPy is fast.
"""

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
        weights = np.minimum(1, _HUBER * np.maximum(1.4826 * np.median(far, axis=0), 1e-9) / np.maximum(far, 1e-300))
    return coefficients.T


def _nonnegative(columns: Floats, target: Floats) -> Floats:
    """For each curve the x >= 0 that makes the squares of `columns @ x - target` least.

    Most curves want no negative x, and those are solved together; SciPy's nnls answers for the others, one by one.
    """
    scale = np.sqrt((columns**2).sum(axis=1))  # sizes span six decades, and so do their columns
    whole = np.concatenate([columns / scale[:, None], target[None]]).T  # (curves, sizes, terms and target)
    reduced = np.asarray(np.linalg.qr(whole, mode="r"))
    upper, right = reduced[:, : len(columns), :-1], reduced[:, : len(columns), -1]
    answer = np.linalg.solve(upper, right[..., None])[..., 0]
    for curve in np.nonzero((answer < 0).any(axis=1))[0]:
        from scipy.optimize import nnls  # takes a while to load

        answer[curve] = nnls(upper[curve], right[curve])[0]
    coefficients: Floats = answer.T / scale
    return coefficients


def _product(columns: Floats, coefficients: Floats) -> Floats:
    fitted: Floats = (columns * coefficients[:, None]).sum(axis=0)
    return fitted
