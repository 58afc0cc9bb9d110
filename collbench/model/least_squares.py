"""Least squares with coefficients that are not negative, of relative residuals, many curves at once."""

from itertools import combinations

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
        found = _nonnegative(terms / fitted[:, :, None], 1 + np.log(seconds / fitted), weights)
        fitted = np.maximum(
            np.einsum("cst,ct->cs", np.broadcast_to(terms, (len(found), *terms.shape[1:])), found), 0.1 * seconds
        )
        off = np.abs(np.log(seconds / fitted))
        width = np.maximum(1.4826 * np.median(off, axis=1, keepdims=True), 1e-9)
        weights = np.minimum(1, _HUBER * width / np.maximum(off, 1e-300))
    return found


def _nonnegative(columns: Floats, target: Floats, weights: Floats) -> Floats:
    """Weighted least squares of `columns @ x = target` with x >= 0: the best of all choices of columns."""
    scale = np.linalg.norm(columns, axis=1)
    columns = columns / scale[:, None, :]
    weighted = columns * weights[:, :, None]
    gram, right = np.swapaxes(weighted, 1, 2) @ columns, np.einsum("cst,cs->ct", weighted, target)
    best, least = np.zeros_like(right), np.full(len(right), np.inf)
    for kept in _subsets(columns.shape[2]):
        part = list(kept)
        ridge = 1e-12 * np.eye(len(part))  # two sizes next to each other must not make it singular
        trial = np.zeros_like(right)
        trial[:, part] = np.linalg.solve(gram[:, part][:, :, part] + ridge, right[:, part, None])[..., 0]
        loss = np.einsum("ct,ctu,cu->c", trial, gram, trial) - 2 * np.einsum("ct,ct->c", trial, right)
        better = (trial >= 0).all(axis=1) & (loss < least)
        best[better], least[better] = trial[better], loss[better]
    answer: Floats = best / scale
    return answer


def _subsets(count: int) -> list[tuple[int, ...]]:
    return [kept for length in range(1, count + 1) for kept in combinations(range(count), length)]
