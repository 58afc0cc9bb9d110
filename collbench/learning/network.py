"""A network of two layers with its gradient written out, in operations that IEEE 754 rounds correctly.

y = softsign(x W + b) V + c with softsign(h) = h / (1 + |h|), and half the squared error as loss: no operation but
addition, multiplication and division, so that rounding.py can bound every error.  In any float type of NumPy.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Job

Floats = NDArray[np.floating[Any]]


def parts(job: Job, weights: Floats) -> list[Floats]:
    """Views of the flat weights, or of a flat gradient, by layer."""
    ends = np.cumsum([int(np.prod(shape)) for shape in job.shapes])
    return [
        weights[end - int(np.prod(shape)) : end].reshape(shape) for shape, end in zip(job.shapes, ends, strict=True)
    ]


def outputs(job: Job, weights: Floats, inputs: Floats) -> Floats:
    """What the network makes of inputs, a row for each."""
    first, offset, second, last = parts(job, weights)
    before = inputs @ first + offset
    answers: Floats = (before / (1 + np.abs(before))) @ second + last
    return answers


def loss(job: Job, weights: Floats, inputs: Floats, wanted: Floats) -> float:
    """Half the squared error, the mean over samples."""
    return float(0.5 * np.mean(np.sum((outputs(job, weights, inputs) - wanted) ** 2, axis=1)))


def gradient(job: Job, weights: Floats, inputs: Floats, wanted: Floats, result: Floats) -> None:
    """Write into `result` the gradient of the loss, flat as the weights are."""
    first, offset, second, last = parts(job, weights)
    to_first, to_offset, to_second, to_last = parts(job, result)
    before = inputs @ first + offset
    inverse = 1 / (1 + np.abs(before))
    between = before * inverse
    error = (between @ second + last - wanted) * weights.dtype.type(1 / len(inputs))
    back = (error @ second.T) * (inverse * inverse)
    np.matmul(inputs.T, back, out=to_first)
    np.sum(back, axis=0, out=to_offset)
    np.matmul(between.T, error, out=to_second)
    np.sum(error, axis=0, out=to_last)
