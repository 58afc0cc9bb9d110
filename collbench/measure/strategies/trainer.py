"""A rank's part in a training run: its batches, its buffers, the other ranks, and the history of the weights."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import blake2b

import numpy as np

from collbench.algorithms import implementations
from collbench.cases import Case, Job
from collbench.measure.strategies.network import batch, first_weights, gradient
from collbench.measure.strategies.updates import Update, Weights
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import buffers, view

_HEARTBEAT = 0.5  # seconds between two signs of life


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
