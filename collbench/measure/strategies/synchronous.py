"""Every rank has a copy of the weights, which all change at once: synchronous SGD and local SGD.

In synchronous SGD the gradients of all ranks are added after every step, and each rank makes the same step.  In local
SGD every rank makes steps alone, and all weights are averaged after so many of them (Stich, ICLR 2019).

The synchronous strategies differ in how gradients are added: by the MPI library, round a ring (Patarasuk & Yuan, 2009),
by rank 0 (the synchronous half of the parameter server of Li et al., OSDI 2014), or in groups and then between them.
"""

import time
from collections.abc import Callable

import numpy as np

from collbench.algorithms.mpi import communicator
from collbench.measure.strategies import Strategy
from collbench.measure.strategies.trainer import Trainer, Training


class Synchronous(Training):
    """Training whose gradients are added by a function after every step."""

    def __init__(self, trainer: Trainer, add: Callable[[], None]) -> None:
        super().__init__(trainer, trainer.job.steps)
        self._add = add
        self._rate = np.float32(trainer.job.rate / trainer.ranks)

    def go(self, until: int) -> float:
        """*Collective*: make steps until each rank has made so many."""
        ranks = range(self._trainer.ranks)
        for step in range(len(self.updates), until):
            self._trainer.gradient(self._weights, step, self._trainer.sent)
            self._add()
            self._weights -= self._rate * self._trainer.received
            self.keep(self._weights, ranks, step, 1, step * len(ranks), (step + 1) * len(ranks))
        return time.perf_counter()


class LocalSgd(Training):
    """Training whose weights are averaged after every `job.every` steps, and after the last one."""

    def __init__(self, trainer: Trainer) -> None:
        job = trainer.job
        super().__init__(trainer, -(-job.steps // job.every))
        self._add = trainer.adder("ring-flags")
        self._change = trainer.first_weights()
        self._rate, self._share = np.float32(job.rate), np.float32(1 / trainer.ranks)
        self._made = 0  # steps

    def go(self, until: int) -> float:
        """*Collective*: make steps until each rank has made so many."""
        trainer, job = self._trainer, self._trainer.job
        while self._made < until:
            trainer.gradient(self._weights, self._made, self._change)
            self._weights -= self._rate * self._change
            self._made += 1
            if self._made % job.every == 0 or self._made == job.steps:
                trainer.sent[:] = self._weights
                self._add()
                self._weights[:] = self._share * trainer.received
                ranks, first = range(trainer.ranks), len(self.updates) * job.every
                read, version = first * len(ranks), self._made * len(ranks)
                self.keep(self._weights, ranks, first, self._made - first, read, version)
        return time.perf_counter()


def _by(implementation: str) -> Callable[[Trainer], Training]:
    return lambda trainer: Synchronous(trainer, trainer.adder(implementation))


def _hierarchical(trainer: Trainer) -> Training:
    """Add by MPI's communicators: one for each group, one for all first ranks, one for the rest that stays unused."""
    world = communicator(trainer.platform)
    group = world.Split(trainer.rank // trainer.job.group, trainer.rank)
    trainer.closing.callback(group.Free)
    first = group.Get_rank() == 0
    leaders = world.Split(0 if first else 1, trainer.rank)
    trainer.closing.callback(leaders.Free)
    of_group = np.empty(trainer.job.weights, np.float32)

    def add() -> None:
        group.Reduce(trainer.sent, of_group)
        if first:
            leaders.Allreduce(of_group, trainer.received)
        group.Bcast(trainer.received)

    return Synchronous(trainer, add)


STRATEGIES = (
    Strategy("library", _by("mpi"), order=0, uses=("mpi",)),
    Strategy("ring", _by("ring-flags"), order=1, uses=("ring-flags",)),
    Strategy("parameter-server", _by("parameter-server"), order=2, uses=("parameter-server",)),
    Strategy("hierarchical", _hierarchical, order=3),
    Strategy("local-sgd", LocalSgd, order=4, uses=("ring-flags",)),
)
