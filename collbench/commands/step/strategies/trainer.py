"""A rank's training, and the check of the weights for all strategies.

Every strategy subtracts each gradient once, times the rate over the number of ranks.  At the end all ranks must
therefore hold the same weights: the initial ones minus all gradients.  Strategies in which all ranks step together are
also compared with plain SGD in one process.

The network has two layers: y = softsign(x W + b) V + c with softsign(h) = h / (1 + |h|).  The loss is half the squared
error.  All functions take any float type: ranks train in float32, and the check uses float64.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.algorithms import implementations
from collbench.cases import Case
from collbench.commands.step.work import SgdJob, job_of
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import buffers, view
from collbench.results.facts import WeightMismatch

POINTS = 50  # of a loss curve, at most
_HEARTBEAT = 0.5  # seconds between two signs of life

Weights = NDArray[np.float32]
HELD_OUT = 1024  # held-out samples, on which the loss is computed
_NOISE = 0.3  # standard deviation of the noise on training outputs
_TEACHER_UNITS = 4  # few, so that a few hundred samples determine the teacher
_TEACHER_GAIN = 3.0  # ratio of its outputs to those of an untrained network
_WEIGHTS, _TEACHER, _HELD_OUT, _SAMPLES, _ORDER = range(5)  # random seeds by purpose

Floats = NDArray[np.floating[Any]]
Samples = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Inputs and the target outputs, a row for each sample."""


class Snapshot(NamedTuple):
    """The shared weights after an update; a version is the number of batches of all ranks in them."""

    version: int
    moment: float  # seconds on its machine's clock; seconds of training after its turn
    weights: Weights


class Training(ABC):
    """The training of this process's one rank by a strategy, in turns of some steps."""

    copied = True  # whether every rank has a copy of the shared weights; else all ranks share one

    def __init__(self, case: Case, platform: Platform, timeout: float, alive: Callable[[], None]) -> None:
        (self.rank,) = platform.local
        self.case, self.platform, self.timeout = case, platform, timeout
        self.job = job_of(case)
        self.ranks = case.ranks
        self.sent, self.received = (
            view(address, self.job.nbytes).view(np.float32) for address in buffers(platform.memory, case, self.rank)
        )
        self.operations: list[Prepared] = []
        self.computed: list[float] = []  # seconds of every gradient in the weights
        self.gradients = np.zeros(self.job.weights)  # the sum of this rank's gradients
        self.seconds = 0.0  # of training so far
        self.spoils: list[bool] = []  # by turn, whether this rank was off its core
        self.snapshots: list[Snapshot] = []
        self.age = 0  # updates between reading weights and changing them, summed over this rank's steps
        self.weights = first_weights(self.job).copy()
        self._spare = np.empty(self.job.weights, np.float32)
        self._alive, self._last_sign = alive, 0.0

    @abstractmethod
    def go(self, until: int) -> float:
        """*Collective*: train until a mean of `until` steps per rank; return the end time."""

    @property
    def steps(self) -> int:
        """Steps of this rank so far."""
        return len(self.computed)

    def adder(self, name: str) -> Callable[[], None]:
        """Return a function that all-reduces `sent` into `received` by an implementation; it may raise Unsupported."""
        implementation, case = implementations()[name], replace(self.case, work=None)
        implementation.refuse(case)
        prepared = implementation.prepare(case, self.platform)
        self.operations.append(prepared)
        return partial(prepared.launch, 1)

    def gradient(self, weights: Weights, step: int, result: Weights) -> None:
        """Compute the gradient of a step of this rank; a slow rank repeats the work and discards it."""
        begun = time.perf_counter()
        inputs, targets = batch(self.job, self.rank, step)
        more = dict(self.job.slow).get(self.rank, 1.0) - 1
        while more > 0:
            rows = max(1, round(min(1.0, more) * self.job.batch))
            gradient(self.job, weights, inputs[:rows], targets[:rows], self._spare)
            more -= 1
        gradient(self.job, weights, inputs, targets, result)
        ended = time.perf_counter()
        self.computed.append(ended - begun)
        self.gradients += result
        if ended - self._last_sign > _HEARTBEAT:
            self._last_sign = ended
            self._alive()

    def withdraw(self, result: Weights) -> None:
        """Remove the last gradient, which was too late for the weights."""
        self.computed.pop()
        self.gradients -= result

    def keep(self, weights: Weights, before: int, version: int) -> None:
        """Keep the current shared weights if an update from *before* to *version* is due for the loss curve."""
        total = self.job.steps * self.ranks
        if before * POINTS // total < version * POINTS // total:
            self.snapshots.append(Snapshot(version, time.perf_counter(), weights.copy()))

    def digest(self) -> bytes:
        """Return a digest of this rank's copy of the shared weights, b"" without a copy."""
        return blake2b(self.weights.data, digest_size=16).digest() if self.copied else b""


# The check of the weights.

TOLERANCE = 1e-4
"""Allowed error of weights over the largest change; float32 stays far below."""

ROUNDING = 2.0**-24
"""Allowed error per batch over the largest weight: half a unit in the last place of float32."""


def plain_sgd(job: SgdJob, ranks: int) -> NDArray[np.float64]:
    """Return the weights after all steps of synchronous SGD on `ranks` ranks, computed in one process."""
    weights, result = first_weights(job).astype(np.float64), np.empty(job.weights)
    for step in range(job.steps):
        change = np.zeros(job.weights)
        for rank in range(ranks):
            inputs, targets = batch(job, rank, step)
            gradient(job, weights, inputs.astype(np.float64), targets.astype(np.float64), result)
            change += result
        weights -= job.rate / ranks * change
    return weights


def check_weights(
    job: SgdJob,
    snapshots: Sequence[Snapshot],
    steps: Sequence[int],
    digests: Sequence[bytes],
    expected: NDArray[np.float64],
) -> WeightMismatch | None:
    """Return the error in the final weights, or None.

    *snapshots* are in order of versions; *steps* and *digests* are by rank; *expected* are the correct weights.
    """
    version, expected_steps = snapshots[-1].version if snapshots else 0, job.steps * len(steps)
    if not version == sum(steps) == expected_steps:
        words = f"{version} batches in the weights and {sum(steps)} computed, instead of {expected_steps}"
        return WeightMismatch(0, str(version), 0, "", words, 0.0, 0)
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            return WeightMismatch(rank, str(version), 0, "", "weights differ from those of rank 0", 0.0, 0)
    weights = snapshots[-1].weights
    largest_change, largest = np.abs(expected - first_weights(job)).max(), np.abs(expected).max()
    bound = TOLERANCE * float(largest_change) + ROUNDING * version * float(largest)
    wrong = ~(np.abs(weights - expected) <= bound)  # so that NaN is wrong
    if not wrong.any():
        return None
    index = int(np.argmax(wrong))
    got, right = f"{float(weights[index]):.8g}", f"{float(expected[index]):.8g}"
    return WeightMismatch(0, str(version), index, got, right, bound, int(wrong.sum()))


def layers(job: SgdJob, weights: Floats) -> list[Floats]:
    """Return views of flat weights, or of a flat gradient: W, b, V, c."""
    views, start = [], 0
    for shape in job.shapes:
        end = start + int(np.prod(shape))
        views.append(weights[start:end].reshape(shape))
        start = end
    return views


def outputs(job: SgdJob, weights: Floats, inputs: Floats) -> Floats:
    """Return the outputs of the network, one row per sample."""
    first, first_offset, second, second_offset = layers(job, weights)
    hidden = inputs @ first + first_offset
    answers: Floats = (hidden / (1 + np.abs(hidden))) @ second + second_offset
    return answers


def loss(job: SgdJob, weights: Floats, inputs: Floats, targets: Floats) -> float:
    """Return half the squared error, averaged over samples."""
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
    """Return the initial weights of all ranks for the job's seed, read-only."""
    weights = _random_weights(job, np.random.default_rng((_WEIGHTS, job.seed)), 1.0)
    weights.flags.writeable = False
    return weights


@lru_cache(maxsize=1)
def held_out(job: SgdJob) -> Samples:
    """Return the held-out samples, without noise."""
    inputs = np.random.default_rng(_HELD_OUT).normal(size=(HELD_OUT, job.inputs)).astype(np.float32)
    return inputs, _teach(job, inputs).astype(np.float32)


def samples_of(job: SgdJob, rank: int) -> Samples:
    """Return the samples of a rank, the same for every seed of the job."""
    draws = np.random.default_rng((_SAMPLES, rank))
    inputs = draws.normal(size=(job.samples, job.inputs)).astype(np.float32)
    answers = _teach(job, inputs)
    return inputs, (answers + _NOISE * draws.normal(size=answers.shape)).astype(np.float32)


def _teach(job: SgdJob, inputs: Floats) -> Floats:
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
    """Return a rank's batch in a step: its samples in the order of the job's seed, cyclically."""
    inputs, targets = _in_order(job, rank)
    start = step * job.batch % job.samples
    rows = slice(start, start + job.batch)
    return inputs[rows], targets[rows]


@lru_cache(maxsize=256)
def _in_order(job: SgdJob, rank: int) -> Samples:
    """Return the samples of a rank in the order of the job's seed, twice in a row."""
    order = np.random.default_rng((_ORDER, job.seed, rank)).permutation(job.samples)
    inputs, targets = samples_of(job, rank)
    return np.concatenate([inputs[order], inputs[order]]), np.concatenate([targets[order], targets[order]])
