"""What strategies train: a network of two layers with its gradient written out, and the samples that it learns from.

y = softsign(x W + b) V + c with softsign(h) = h / (1 + |h|); the loss is half the squared error.  All functions take
any float type of NumPy: ranks train in float32, the check computes in float64.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.commands.step.work import SgdJob

HELD_OUT = 1024  # samples that no rank learns from: the loss is that on these
_NOISE = 0.3  # standard deviation of what is added to every output that is learnt from
_TEACHER_UNITS = 4  # few, so that a few hundred samples tell what the teacher is
_TEACHER_GAIN = 3.0  # how much larger its outputs are than a fresh network's
_WEIGHTS, _TEACHER, _HELD_OUT, _SAMPLES, _ORDER = range(5)  # seeds of what random numbers are drawn for

Floats = NDArray[np.floating[Any]]
Samples = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Inputs and the target outputs, a row for each sample."""


def layers(job: SgdJob, weights: Floats) -> list[Floats]:
    """Return views of flat weights, or of a flat gradient: W, b, V, c."""
    views, start = [], 0
    for shape in job.shapes:
        end = start + int(np.prod(shape))
        views.append(weights[start:end].reshape(shape))
        start = end
    return views


def outputs(job: SgdJob, weights: Floats, inputs: Floats) -> Floats:
    """Return the outputs of the network, a row for each sample."""
    first, first_offset, second, second_offset = layers(job, weights)
    hidden = inputs @ first + first_offset
    answers: Floats = (hidden / (1 + np.abs(hidden))) @ second + second_offset
    return answers


def loss(job: SgdJob, weights: Floats, inputs: Floats, targets: Floats) -> float:
    """Return half the squared error, the mean over samples."""
    return float(0.5 * np.mean(np.sum((outputs(job, weights, inputs) - targets) ** 2, axis=1)))


def gradient(job: SgdJob, weights: Floats, inputs: Floats, targets: Floats, result: Floats) -> None:
    """Write into *result* the gradient of the loss, flat as the weights are."""
    first, first_offset, second, second_offset = layers(job, weights)
    to_first, to_first_offset, to_second, to_second_offset = layers(job, result)
    # softsign(h) = h / (1 + |h|) has the derivative 1 / (1 + |h|)**2: one division serves both ways.
    hidden = inputs @ first + first_offset
    inverse = 1 / (1 + np.abs(hidden))
    active = hidden * inverse
    error = (active @ second + second_offset - targets) * weights.dtype.type(1 / len(inputs))
    back = (error @ second.T) * (inverse * inverse)
    np.matmul(inputs.T, back, out=to_first)
    np.sum(back, axis=0, out=to_first_offset)
    np.matmul(active.T, error, out=to_second)
    np.sum(error, axis=0, out=to_second_offset)


@lru_cache(maxsize=64)
def first_weights(job: SgdJob) -> NDArray[np.float32]:
    """Return the weights that all ranks begin with; they depend on the job's seed.  Copy them before training."""
    weights = _random_weights(job, np.random.default_rng((_WEIGHTS, job.seed)), 1.0)
    weights.flags.writeable = False
    return weights


@lru_cache(maxsize=1)
def held_out(job: SgdJob) -> Samples:
    """Return the samples that no rank learns from, without noise."""
    inputs = np.random.default_rng(_HELD_OUT).normal(size=(HELD_OUT, job.inputs)).astype(np.float32)
    return inputs, _teach(job, inputs).astype(np.float32)


def samples_of(job: SgdJob, rank: int) -> Samples:
    """Return the samples of a rank, the same for every seed of the job."""
    draws = np.random.default_rng((_SAMPLES, rank))
    inputs = draws.normal(size=(job.samples, job.inputs)).astype(np.float32)
    answers = _teach(job, inputs)
    return inputs, (answers + _NOISE * draws.normal(size=answers.shape)).astype(np.float32)


def _teach(job: SgdJob, inputs: Floats) -> Floats:
    """Return what the teacher, a small network, makes of inputs."""
    draws, teacher = np.random.default_rng(_TEACHER), replace(job, hidden=_TEACHER_UNITS)
    weights = _random_weights(teacher, draws, _TEACHER_GAIN)
    layers(teacher, weights)[1][:] = draws.normal(size=_TEACHER_UNITS) / 2
    return outputs(teacher, weights, inputs)


def _random_weights(job: SgdJob, draws: np.random.Generator, gain: float) -> NDArray[np.float32]:
    weights = np.zeros(job.weights, np.float32)
    first, _, second, _ = layers(job, weights)
    first[:] = draws.normal(size=first.shape) / np.sqrt(job.inputs)
    second[:] = gain * draws.normal(size=second.shape) / np.sqrt(job.hidden)
    return weights


def batch(job: SgdJob, rank: int, step: int) -> Samples:
    """Return what a rank learns from in a step: its samples in the order of the job's seed, again and again."""
    inputs, targets = _in_order(job, rank)
    start = step * job.batch % job.samples
    rows = slice(start, start + job.batch)
    return inputs[rows], targets[rows]


@lru_cache(maxsize=256)
def _in_order(job: SgdJob, rank: int) -> Samples:
    """Return the samples of a rank in the order of the job's seed, and once more behind."""
    order = np.random.default_rng((_ORDER, job.seed, rank)).permutation(job.samples)
    inputs, targets = samples_of(job, rank)
    return np.concatenate([inputs[order], inputs[order]]), np.concatenate([targets[order], targets[order]])
