"""Synchronous SGD and local SGD, with a copy of the weights on every rank.

Synchronous SGD adds the gradients of all ranks after every step, and each rank makes the same step.  In local SGD every
rank makes steps alone, and the weights are averaged every few steps (Stich, ICLR 2019).

The synchronous strategies add gradients by the MPI library, around a ring (Patarasuk & Yuan, 2009), or on rank 0 (the
synchronous half of the parameter server of Li et al., OSDI 2014).
"""

import time
from functools import partial
from typing import Any

import numpy as np

from collbench.commands.step.strategies import Strategy
from collbench.commands.step.strategies.trainer import Training


class Synchronous(Training):
    """Training that adds the gradients of all ranks after every step, by *implementation*."""

    def __init__(self, implementation: str, *place: Any) -> None:
        super().__init__(*place)
        self._add = self.adder(implementation)
        self._rate = np.float32(self.job.rate / self.ranks)

    def go(self, until: int) -> float:
        """*Collective*: make steps until each rank has made `until`."""
        for step in range(self.steps, until):
            self.gradient(self.weights, step, self.sent)
            self._add()
            self.weights -= self._rate * self.received
            self.keep(self.weights, step * self.ranks, (step + 1) * self.ranks)
        return time.perf_counter()


class LocalSgd(Training):
    """Training that averages the weights after every `job.every` steps, and after the last one."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self._add = self.adder("ring-flags")
        self._change = np.empty_like(self.weights)
        self._rate, self._share = np.float32(self.job.rate), np.float32(1 / self.ranks)
        self._averaged = 0  # steps in the shared weights

    def go(self, until: int) -> float:
        """*Collective*: make steps until each rank has made `until`."""
        while self.steps < until:
            self.gradient(self.weights, self.steps, self._change)
            self.weights -= self._rate * self._change
            # The last average may come early, so that the shared weights include the last steps.
            if self.steps % self.job.every == 0 or self.steps == self.job.steps:
                self.sent[:] = self.weights
                self._add()
                self.weights[:] = self._share * self.received
                self.keep(self.weights, self._averaged * self.ranks, self.steps * self.ranks)
                self._averaged = self.steps
        return time.perf_counter()


STRATEGIES = (
    Strategy("library", partial(Synchronous, "mpi"), order=0, uses=("mpi",)),
    Strategy("ring", partial(Synchronous, "ring-flags"), order=1, uses=("ring-flags",)),
    Strategy("parameter-server", partial(Synchronous, "parameter-server"), order=2, uses=("parameter-server",)),
    Strategy("local-sgd", LocalSgd, order=3, uses=("ring-flags",)),
)
