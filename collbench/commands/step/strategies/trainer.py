"""A rank's part in a training run, and the check of the weights that all strategies must pass.

Every strategy subtracts each gradient once, times the rate over the number of ranks.  So in the end all ranks must hold
equal weights: the first ones less all gradients.  Where all ranks make one step together, it is also known on which
weights a gradient is computed: there strategies are held against plain SGD in one process.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.algorithms import implementations
from collbench.cases import Case
from collbench.commands.step.strategies.network import batch, first_weights, gradient
from collbench.commands.step.work import SgdJob, job_of
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import buffers, view
from collbench.results.facts import WeightMismatch

POINTS = 50  # of a loss curve, at most
_HEARTBEAT = 0.5  # seconds between two signs of life

Weights = NDArray[np.float32]


class Kept(NamedTuple):
    """The shared weights after an update; a version is the number of batches that went into them, of all ranks."""

    version: int
    moment: float  # seconds on its machine's clock; of training, once its turn is over
    weights: Weights


class Training(ABC):
    """What the one rank that this process holds trains with, by a strategy, for some steps whenever its turn comes."""

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
        self.closing = ExitStack()  # what a strategy has to give back
        self.computed: list[float] = []  # seconds of every gradient that went into the weights
        self.gradients = np.zeros(self.job.weights)  # the sum of those of this rank
        self.seconds = 0.0  # of training so far
        self.spoils: list[bool] = []  # by turn, whether this rank was off its core
        self.kept: list[Kept] = []
        self.age = 0  # updates between reading weights and changing them, the sum over this rank's steps
        self.weights = first_weights(self.job).copy()
        self._spare = np.empty(self.job.weights, np.float32)
        self._alive, self._last_sign = alive, 0.0

    @abstractmethod
    def go(self, until: int) -> float:
        """*Collective*: train until the ranks together have made so many steps each; return when the turn was over."""

    @property
    def steps(self) -> int:
        """Steps of this rank so far."""
        return len(self.computed)

    def adder(self, name: str) -> Callable[[], None]:
        """Return a function that adds all ranks' `sent` into everyone's `received`, by that implementation.

        Raises:
            Unsupported: The implementation cannot do it here.

        """
        implementation, case = implementations()[name], replace(self.case, work=None)
        implementation.refuse(case)
        prepared = implementation.prepare(case, self.platform)
        self.operations.append(prepared)
        return partial(prepared.launch, 1)

    def gradient(self, weights: Weights, step: int, result: Weights) -> None:
        """Compute the gradient of a step of this rank; a slow rank computes it several times over, to no avail."""
        begun = time.perf_counter()
        inputs, targets = batch(self.job, self.rank, step)
        more = self.job.slowness(self.rank) - 1
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
        """Forget the last gradient, which came too late to go into the weights."""
        self.computed.pop()
        self.gradients -= result

    def keep(self, weights: Weights, before: int, version: int) -> None:
        """Keep the shared weights as they are now if they are due for the loss curve, after an update of a version."""
        total = self.job.steps * self.ranks
        if before * POINTS // total < version * POINTS // total:
            self.kept.append(Kept(version, time.perf_counter(), weights.copy()))

    def digest(self) -> bytes:
        """Return a digest of this rank's copy of the shared weights; of no copy, nothing."""
        return blake2b(self.weights.data, digest_size=16).digest() if self.copied else b""


# The check of the weights.

TOLERANCE = 1e-4
"""How far weights may be from what they must be, over the largest change: float32 stays far below."""

ROUNDING = 2.0**-24
"""The same over the largest weight, for each batch: half a unit in the last place of float32."""


def plain_sgd(job: SgdJob, ranks: int) -> NDArray[np.float64]:
    """Return the weights after all steps of synchronous SGD with the batches of so many ranks, in one process."""
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
    kept: Sequence[Kept],
    steps: Sequence[int],
    digests: Sequence[bytes],
    expected: NDArray[np.float64],
) -> WeightMismatch | None:
    """Return what is wrong with the weights in the end.

    Args:
        job: The training job.
        kept: The weights that were kept, the last ones last.
        steps: The steps of every rank.
        digests: Digests of the weights that every rank holds.
        expected: What the weights must be.

    """
    version, wanted = kept[-1].version if kept else 0, job.steps * len(steps)
    if not version == sum(steps) == wanted:
        words = f"{version} batches in the weights, and {sum(steps)} made, instead of {wanted}"
        return WeightMismatch(0, str(version), 0, "", words, 0.0, 0)
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            return WeightMismatch(rank, str(version), 0, "", "other weights than rank 0 has", 0.0, 0)
    weights = kept[-1].weights
    largest_change, largest = np.abs(expected - first_weights(job)).max(), np.abs(expected).max()
    bound = TOLERANCE * float(largest_change) + ROUNDING * version * float(largest)
    wrong = ~(np.abs(weights - expected) <= bound)  # so that NaN is wrong
    if not wrong.any():
        return None
    index = int(np.argmax(wrong))
    got, right = f"{float(weights[index]):.8g}", f"{float(expected[index]):.8g}"
    return WeightMismatch(0, str(version), index, got, right, bound, int(wrong.sum()))
