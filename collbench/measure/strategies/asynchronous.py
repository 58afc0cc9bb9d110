"""`asynchronous`: weights that every rank reads and changes when ready, unless it is too far ahead of the slowest.

Stale synchronous parallel (Ho et al., NIPS 2013) on a parameter server (Li et al., OSDI 2014): the weights lie in the
memory of rank 0, which all ranks of a machine load and store under one lock.  A rank that is to begin its step c waits
until all others have made their step c - 1 - s, and one that is to hand its step c in until all others have begun their
step c - s; so with s = 0 all compute on the same weights, and the sum is that of synchronous training.  The slowest
rank never waits, so one rank can always go on.  Ranks that wait sleep (platforms/cpu/window.py).
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from collbench.errors import CaseFailed
from collbench.measure.strategies import Strategy
from collbench.measure.strategies.trainer import Training
from collbench.measure.strategies.updates import Weights
from collbench.platforms.cpu import window
from collbench.platforms.layout import LINE, MAX_RANKS, WINDOW_HEAD, Region, view

NAME = "asynchronous"
_COUNTS = LINE + 2 * MAX_RANKS * 8  # bytes: the total, then the steps that each rank has begun and made
_HEAD = window.NBYTES + _COUNTS  # bytes before the weights


class _Server:
    """The shared weights, and how far every rank is."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.last = 0  # batches after which no rank begins or changes anything
        after_flags = WINDOW_HEAD + training.platform.layout.fifos[NAME]
        start = -(-(training.platform.memory.address(Region.WINDOW, 0) + after_flags) // LINE) * LINE
        self._monitor = window.Monitor(start)
        counts = view(start + window.NBYTES, _COUNTS).view(np.int64)
        self._total = counts[:1]
        self._begun, self._made = counts[LINE // 8 :].reshape(2, MAX_RANKS)[:, : training.ranks]
        self._weights = view(start + _HEAD, training.job.nbytes).view(np.float32)

    def open(self) -> None:
        """*Collective*: store the first weights; no rank has begun."""
        self._training.platform.team.meet()
        if self._training.rank == 0:
            self._monitor.prepare()
            self._total[:], self._begun[:], self._made[:] = 0, 0, 0
            self._weights[:] = self._training.weights
        self._training.platform.team.meet()

    def read(self, step: int, weights: Weights) -> int | None:
        """Copy the weights for a step of this rank; return how many batches are in them, None if enough are."""
        with self._monitor.held():
            self._wait(lambda: bool(self._made.min() >= step - self._training.job.staleness))
            if self._over():
                return None
            weights[:] = self._weights
            self._begun[self._training.rank] = step + 1
            self._monitor.wake()
            return int(self._total[0])

    def change(self, step: int, read: int, change: Weights) -> bool:
        """Subtract a change of the weights that were read, and keep the result; return whether it is not too late."""
        with self._monitor.held():
            self._wait(lambda: bool(self._begun.min() > step - self._training.job.staleness))
            if self._over():
                return False
            np.subtract(self._weights, change, out=self._weights)
            self._total += 1
            self._training.keep(self._weights, (self._training.rank,), step, 1, read, int(self._total[0]))
            self._made[self._training.rank] = step + 1
            self._monitor.wake()
            return True

    def _over(self) -> bool:
        return bool(self._total[0] >= self.last)

    def _wait(self, met: Callable[[], bool]) -> None:
        timeout = self._training.timeout
        if not self._monitor.until(lambda: self._over() or met(), timeout):
            raise CaseFailed(f"rank {self._training.rank} waited {timeout:g} s in vain for the slowest rank")


class Asynchronous(Training):
    """Training in which every rank subtracts its gradients from the server's weights."""

    copied = False

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self._server, self._change = _Server(self), np.empty_like(self.weights)
        self._rate = np.float32(self.job.rate / self.ranks)
        self._server.open()

    def go(self, until: int) -> float:
        """*Collective*: train until the ranks together have made so many steps each; a late gradient does not count."""
        ended = time.perf_counter()
        self._server.last = until * self.ranks
        while (read := self._server.read(step := len(self.updates), self.weights)) is not None:
            self.gradient(self.weights, step, self._change)
            self._change *= self._rate
            if not self._server.change(step, read, self._change):
                self.computed.pop()  # too late: the gradient is computed again when training goes on
                break
            ended = self.updates[-1].moment
        return ended


STRATEGIES = (
    Strategy(
        NAME,
        Asynchronous,
        order=5,
        window_nbytes=lambda job: LINE + _HEAD + -(-job.nbytes // LINE) * LINE,  # with room to start at a line
        lag=lambda job: job.staleness,
    ),
)
