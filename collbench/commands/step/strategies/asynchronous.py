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

from collbench.commands.step.strategies import Strategy
from collbench.commands.step.strategies.trainer import Training
from collbench.errors import CaseFailed
from collbench.platforms.cpu import window
from collbench.platforms.layout import LINE, MAX_RANKS, WINDOW_HEAD, Region, view

NAME = "asynchronous"
_COUNTS = LINE + 2 * MAX_RANKS * 8  # bytes: the total, then the steps that each rank has begun and made
_HEAD = window.NBYTES + _COUNTS  # bytes before the weights


class Asynchronous(Training):
    """Training in which every rank subtracts its gradients from weights that all share."""

    copied = False

    def __init__(self, *place: Any) -> None:
        """*Collective*: store the first weights; no rank has begun."""
        super().__init__(*place)
        self._last = 0  # batches after which no rank begins or changes anything
        after_flags = WINDOW_HEAD + self.platform.layout.fifos[NAME]
        start = -(-(self.platform.memory.address(Region.WINDOW, 0) + after_flags) // LINE) * LINE
        self._monitor = window.Monitor(start)
        counts = view(start + window.NBYTES, _COUNTS).view(np.int64)
        self._total = counts[:1]
        self._begun, self._made = counts[LINE // 8 :].reshape(2, MAX_RANKS)[:, : self.ranks]
        self._shared = view(start + _HEAD, self.job.nbytes).view(np.float32)
        self._gradient, self._change = np.empty_like(self.weights), np.empty_like(self.weights)
        self._rate = np.float32(self.job.rate / self.ranks)
        self.platform.team.meet()
        if self.rank == 0:
            self._monitor.prepare()
            self._total[:], self._begun[:], self._made[:] = 0, 0, 0
            self._shared[:] = self.weights
        self.platform.team.meet()

    def go(self, until: int) -> float:
        """*Collective*: train until the ranks have made `until` steps each on average; late gradients don't count."""
        ended = time.perf_counter()
        self._last = until * self.ranks
        while (read := self._read(step := self.steps)) is not None:
            self.gradient(self.weights, step, self._gradient)
            np.multiply(self._gradient, self._rate, out=self._change)
            if not self._subtract(step, read):
                self.withdraw(self._gradient)  # too late: it is computed again when training goes on
                break
            ended = time.perf_counter()
        return ended

    def _read(self, step: int) -> int | None:
        """Copy the weights for a step of this rank; return how many batches are in them, None if enough are."""
        with self._monitor.held():
            if not self._goes_on(lambda: bool(self._made.min() >= step - self.job.staleness)):
                return None
            self.weights[:] = self._shared
            self._begun[self.rank] = step + 1
            self._monitor.wake()
            return int(self._total[0])

    def _subtract(self, step: int, read: int) -> bool:
        """Subtract the change of the weights that were read, and keep the result; return whether it is not too late."""
        with self._monitor.held():
            if not self._goes_on(lambda: bool(self._begun.min() > step - self.job.staleness)):
                return False
            np.subtract(self._shared, self._change, out=self._shared)
            before = int(self._total[0])
            self._total += 1
            self.age += before - read
            self.keep(self._shared, before, before + 1)
            self._made[self.rank] = step + 1
            self._monitor.wake()
            return True

    def _goes_on(self, met: Callable[[], bool]) -> bool:
        """Wait, letting others in, until that is met; return False as soon as enough batches are in the weights."""
        if not self._monitor.until(lambda: bool(self._total[0] >= self._last) or met(), self.timeout):
            raise CaseFailed(f"rank {self.rank} waited {self.timeout:g} s in vain for the slowest rank")
        return bool(self._total[0] < self._last)


STRATEGIES = (
    Strategy(
        NAME,
        Asynchronous,
        order=4,
        window_nbytes=lambda job: LINE + _HEAD + -(-job.nbytes // LINE) * LINE,  # with room to start at a line
    ),
)
