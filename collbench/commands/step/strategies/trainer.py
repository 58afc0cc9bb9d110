"""A rank's part in a training run, and the check of every update of the shared weights after it.

An update subtracts what one or several steps of its ranks change, from shared weights that they read; divided by the
number of all ranks.  So gradients of plain SGD and the own steps of local SGD are checked alike: they are computed anew
in float64, and the weights must be the same within TOLERANCE.  Weights of every update are stored, so an error does not
grow from update to update.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collbench.algorithms import implementations
from collbench.cases import Case, Job
from collbench.commands.step.strategies.network import batch, first_weights, gradient
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import buffers, view
from collbench.results.facts import WeightMismatch

_HEARTBEAT = 0.5  # seconds between two signs of life


Weights = NDArray[np.float32]


class Update(NamedTuple):
    """A change of the shared weights; a version is the number of batches that went into them, of all ranks."""

    version: int
    moment: float  # seconds on its machine's clock; of training, once its turn is over
    weights: Weights  # after it
    ranks: Sequence[int]  # whose steps it is made of
    first: int  # of the steps that each of them made, one after the other
    steps: int
    read: int  # the version that these steps began with

    @property
    def before(self) -> int:
        """The version that it changed."""
        return self.version - self.steps * len(self.ranks)


class Training(ABC):
    """What the one rank that this process holds trains with, by a strategy, for some steps whenever its turn comes."""

    copied = True  # whether every rank has a copy of the shared weights, and lists all updates; else each lists its own

    def __init__(self, case: Case, platform: Platform, timeout: float, alive: Callable[[], None]) -> None:
        assert case.job
        (self.rank,) = platform.local
        self.case, self.platform, self.timeout = case, platform, timeout
        self.job: Job = case.job
        self.ranks = case.ranks
        self.sent, self.received = (
            view(address, self.job.nbytes).view(np.float32) for address in buffers(platform.memory, case, self.rank)
        )
        self.operations: list[Prepared] = []
        self.closing = ExitStack()  # what a strategy has to give back
        self.computed: list[float] = []  # seconds of every gradient that went into the weights
        self.seconds = 0.0  # of training so far
        self.spoils: list[bool] = []  # by turn, whether this rank was off its core
        self.updates: list[Update] = []
        self.weights = first_weights(self.job).copy()
        self._rows = np.zeros((self.job.steps * (1 if self.copied else self.ranks), self.job.weights), np.float32)
        self._rows.fill(0)  # so that keeping weights is one copy, into memory that was touched before
        self._spare = np.empty(self.job.weights, np.float32)
        self._alive, self._last_sign = alive, 0.0

    @abstractmethod
    def go(self, until: int) -> float:
        """*Collective*: train until the ranks together have made so many steps each; return when the turn was over."""

    def adder(self, name: str) -> Callable[[], None]:
        """Return a function that adds all ranks' `sent` into everyone's `received`, by that implementation.

        Raises:
            Unsupported: The implementation cannot do it here.

        """
        implementation, case = implementations()[name], replace(self.case, job=None)
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
        if ended - self._last_sign > _HEARTBEAT:
            self._last_sign = ended
            self._alive()

    def keep(self, weights: Weights, ranks: Sequence[int], first: int, steps: int, read: int, version: int) -> None:
        """Keep the shared weights as they are now, after an update."""
        row = self._rows[len(self.updates)]
        row[:] = weights
        self.updates.append(Update(version, time.perf_counter(), row, ranks, first, steps, read))

    def digests(self) -> list[bytes]:
        """Return digests of this rank's copy of the shared weights after every update; none if there is one copy."""
        return [blake2b(update.weights.data, digest_size=16).digest() for update in self.updates if self.copied]


# The check of all updates.

TOLERANCE = 1e-4
"""How far weights may be from those computed anew, over the largest change of the update: float32 stays far below."""

ROUNDING = 2.0**-22
"""The same over the largest weight, for each step: float32 rounds a weight by a quarter of that at most."""


def check_update(job: Job, ranks: int, update: Update, versions: Mapping[int, Weights]) -> WeightMismatch | None:
    """Return what is wrong with an update, computed anew from the weights of the versions that it names."""
    if update.read not in versions:
        return _odd(update, f"a gradient of weights {update.read}, which nobody has")
    change = np.zeros(job.weights)
    for rank in update.ranks:
        change += _change(job, rank, update, versions[update.read]) / ranks
    expected = versions[update.before] - change
    bound = TOLERANCE * float(np.abs(change).max()) + ROUNDING * (1 + update.steps) * float(np.abs(expected).max())
    wrong = ~(np.abs(update.weights - expected) <= bound)  # so that NaN is wrong
    if not wrong.any():
        return None
    index = int(np.argmax(wrong))
    found_text, expected_text = f"{float(update.weights[index]):.8g}", f"{float(expected[index]):.8g}"
    maker = update.ranks[0]
    return WeightMismatch(maker, str(update.version), index, found_text, expected_text, bound, int(wrong.sum()))


def _change(job: Job, rank: int, update: Update, weights: Weights) -> NDArray[np.float64]:
    """Return what the steps of a rank subtract from the weights, in float64."""
    own, result = weights.astype(np.float64), np.empty(job.weights)
    for step in range(update.first, update.first + update.steps):
        inputs, targets = batch(job, rank, step)
        gradient(job, own, inputs.astype(np.float64), targets.astype(np.float64), result)
        own -= job.rate * result
    change: NDArray[np.float64] = weights - own
    return change


def check_order(job: Job, ranks: int, updates: Sequence[Update], lag: int) -> WeightMismatch | None:
    """Return what is wrong with the order of all updates: a batch missing or twice, or computed on weights too old.

    Args:
        job: The training job.
        ranks: How many ranks train.
        updates: All updates of the shared weights, in order.
        lag: How many steps of another rank may be missing in the weights that a step was computed on.

    """
    made = [0] * ranks  # steps of every rank in the weights
    least_made = {0: 0}  # by version: the fewest steps of a rank in it
    version = 0
    for update in updates:
        first = update.first
        for rank in update.ranks:
            if first != made[rank]:
                return _odd(update, f"step {first + 1} of rank {rank} after {made[rank]} steps of it")
            if update.read not in least_made or least_made[update.read] < first - lag:
                return _odd(update, f"step {first + 1} of rank {rank} on weights that are too old")
            made[rank] += update.steps
        if update.version != sum(made):
            return _odd(update, f"an update of weights {version}")
        version = update.version
        least_made[version] = min(made)
    if version != job.steps * ranks:
        return WeightMismatch(0, str(version), 0, "", f"{version} batches instead of {job.steps * ranks}", 0.0, 0)
    return None


def check_copies(updates: Sequence[Update], copies: Sequence[Sequence[bytes]]) -> WeightMismatch | None:
    """Return the first update after which a rank holds other weights than rank 0; *copies* are digests by rank.

    A strategy whose ranks share one copy of the weights has no digests.
    """
    for rank, digests in enumerate(copies):
        if len(digests) != len(copies[0]):
            words = f"{len(digests)} updates instead of {len(copies[0])}"
            return WeightMismatch(rank, str(len(digests)), 0, "", words, 0.0, 0)
        for update, digest, expected in zip(updates, digests, copies[0], strict=False):
            if digest != expected:
                return WeightMismatch(rank, str(update.version), 0, "", "other weights than rank 0 has", 0.0, 0)
    return None


def _odd(update: Update, words: str) -> WeightMismatch:
    return WeightMismatch(0, str(update.version), 0, "", words, 0.0, 0)
