"""`asynchronous`: every rank updates shared weights when ready, within a staleness bound.

Stale synchronous parallel (Ho et al., NIPS 2013) on a parameter server (Li et al., OSDI 2014).  The weights are in the
memory of rank 0, and all ranks of a machine load and store them under one lock.

Before its step c, a rank waits until all others have made step c - 1 - s.  Before it applies step c, it waits until all
others have begun step c - s.  With s = 0 all compute on the same weights, as in synchronous training.  The slowest
rank never waits, so progress is certain.  Waiting ranks sleep (platforms/cpu/window.py).
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
    """Training in which every rank subtracts its gradients from shared weights."""

    copied = False

    def __init__(self, *place: Any) -> None:
        """*Collective*: store the initial weights and reset the counts."""
        super().__init__(*place)
        self._last = 0  # batches at which the current turn ends
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
        """*Collective*: train for a mean of `until` steps per rank, without late gradients; return the end time."""
        ended = time.perf_counter()
        self._last = until * self.ranks
        while (read := self._read(step := self.steps)) is not None:
            self.gradient(self.weights, step, self._gradient)
            np.multiply(self._gradient, self._rate, out=self._change)
            if not self._subtract(step, read):
                self.withdraw(self._gradient)  # too late: the next turn computes it again
                break
            ended = time.perf_counter()
        return ended

    def _read(self, step: int) -> int | None:
        """Copy the weights for a step of this rank; return the number of batches in them, None at the end."""
        with self._monitor.held():
            if not self._goes_on(lambda: bool(self._made.min() >= step - self.job.staleness)):
                return None
            self.weights[:] = self._shared
            self._begun[self.rank] = step + 1
            self._monitor.wake()
            return int(self._total[0])

    def _subtract(self, step: int, read: int) -> bool:
        """Subtract the change of the weights that were read; return False if the turn has ended."""
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
        """Wait, with the lock released, until *met*; return False once enough batches are in the weights."""
        if not self._monitor.until(lambda: bool(self._total[0] >= self._last) or met(), self.timeout):
            raise CaseFailed(f"rank {self.rank} timed out after {self.timeout:g} s of waiting for the slowest rank")
        return bool(self._total[0] < self._last)


STRATEGIES = (
    Strategy(
        NAME,
        Asynchronous,
        order=4,
        window_nbytes=lambda job: LINE + _HEAD + -(-job.nbytes // LINE) * LINE,  # with room to start at a line
    ),
)
