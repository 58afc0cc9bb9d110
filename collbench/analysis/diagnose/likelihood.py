"""How likely measured times are, if a machine is as supposed: the model's errors, as they go together."""

from collections.abc import Sequence

import numpy as np

from collbench.model.doubt import Doubt, settled
from collbench.model.equation import Floats

FREEDOM = 4
"""Of Student's distribution: machines are sometimes much further off than a normal distribution has it."""
ANYTHING = 1.5
"""Standard deviation of what something unknown may do to times, as a logarithm, much alike at neighbouring sizes."""
OCTAVES = 12.0
"""Over which its correlation falls by e."""


def of(logs: Floats, doubt: Doubt) -> float:
    """Logarithm of the likelihood of logarithms of measured over supposed times, but for a constant.

    Student's distribution of many variables (Kotz and Nadarajah, Multivariate t Distributions, 2004, 1.1).
    """
    off = settled(logs) - doubt.mean
    _, size = np.linalg.slogdet(doubt.covariance)
    far = off @ np.linalg.solve(doubt.covariance, off)
    return float(-(size + (FREEDOM + len(off)) * np.log1p(far / FREEDOM)) / 2)


def anything(doubt: Doubt, sizes: Sequence[int]) -> Doubt:
    """Where something makes times longer or shorter of which nobody thought."""
    octaves = np.log2(np.maximum(sizes, 1))
    together = np.exp(-np.abs(octaves[:, None] - octaves) / OCTAVES)
    return Doubt(doubt.mean, doubt.covariance + ANYTHING**2 * together)


def noisy(doubt: Doubt, scatter: float) -> Doubt:
    """Where times scatter by themselves too, with such a standard deviation; medians of five by half of it."""
    return Doubt(doubt.mean, doubt.covariance + (scatter / 2) ** 2 * np.eye(len(doubt.mean)))
