"""What a rank trains with: its lessons, its memory, the other ranks, and a record of what becomes of the weights."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from collbench.algorithms import implementations
from collbench.cases import Case, Job
from collbench.learning.data import Data, lessons
from collbench.learning.network import gradient
from collbench.learning.trail import Weights
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import buffers, view

Held = tuple[float, Weights]
"""When weights were kept, and they."""

_SIGN_OF_LIFE = 0.5  # seconds between two


class Seat:
    """The place of the one rank that this process holds."""

    def __init__(self, case: Case, platform: Platform, patience: float, alive: Callable[[], None]) -> None:
        assert case.job
        (self.rank,) = platform.local
        self.case, self.platform, self.patience = case, platform, patience
        self.job: Job = case.job
        self.ranks = case.ranks
        self.sent, self.received = (
            view(address, self.job.nbytes).view(np.float32) for address in buffers(platform.memory, case, self.rank)
        )
        self.operations: list[Prepared] = []
        self.closing = ExitStack()
        self.begun: list[float] = []  # whenever training went on: seconds on this machine's clock
        self.spoils: list[bool] = []  # by turn, whether this rank was off its core
        self.computed: list[float] = []  # seconds of every gradient that went into the weights
        self._lessons = lessons(self.job, self.rank)
        self._spare = np.empty(self.job.weights, np.float32)
        self._alive, self._said = alive, 0.0

    def close(self) -> None:
        """*Collective*: give back what was made for it."""
        self.closing.close()

    def first(self) -> Weights:
        """The weights to begin with, to change."""
        return Data(self.job).first.copy()

    def adding(self, name: str) -> Callable[[], None]:
        """What adds the send buffers of all ranks into everyone's receive buffer, by that implementation.

        Unsupported if it cannot.
        """
        way, case = implementations()[name], replace(self.case, job=None)
        way.refuse(case)
        prepared = way.prepare(case, self.platform)
        self.operations.append(prepared)

        def add() -> None:
            prepared.launch(1)

        return add

    def learn(self, weights: Weights, step: int, result: Weights) -> None:
        """The gradient of a step of this rank; one that is slowed computes it again, or parts of it, for nothing."""
        begun = time.perf_counter()
        inputs, wanted = self._lessons.batch(step)
        more = self.job.slowness(self.rank) - 1
        while more > 0:
            rows = max(1, round(min(1.0, more) * self.job.batch))
            gradient(self.job, weights, inputs[:rows], wanted[:rows], self._spare)
            more -= 1
        gradient(self.job, weights, inputs, wanted, result)
        ended = time.perf_counter()
        self.computed.append(ended - begun)
        if ended - self._said > _SIGN_OF_LIFE:
            self._said = ended
            self._alive()

    def discard(self) -> None:
        """The last gradient came too late for the weights: the time that it took does not count."""
        self.computed.pop()

    def begin(self) -> None:
        """Training goes on."""
        self.begun.append(time.perf_counter())

    def memory(self, most: int) -> "Memory":
        """Room for the weights of so many updates."""
        return Memory(most, self.job.weights)


class Memory:
    """Weights as they were and when; keeping them takes a copy and no page that was never touched."""

    def __init__(self, most: int, weights: int) -> None:
        self._rows = np.zeros((most, weights), np.float32)
        self._rows.fill(0)
        self._moments: list[float] = []

    def keep(self, weights: Weights) -> None:
        """As they are now."""
        self._rows[len(self._moments)] = weights
        self._moments.append(time.perf_counter())

    def __getitem__(self, place: int) -> Held:
        return self._moments[place], self._rows[place]

    def __len__(self) -> int:
        return len(self._moments)
