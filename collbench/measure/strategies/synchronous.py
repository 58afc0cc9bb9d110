"""Synchronous SGD: after every step the gradients of all ranks are added, and each rank makes the same step.

The strategies differ in how gradients are added: by the MPI library, round a ring (Patarasuk & Yuan, 2009), by rank 0
(the synchronous half of the parameter server of Li et al., OSDI 2014), or in groups and then between the groups.
"""

import time
from collections.abc import Callable

import numpy as np

from collbench.measure.strategies import Strategy
from collbench.measure.strategies.trainer import CopiedTraining, Trainer, Training


class Synchronous(CopiedTraining):
    """Training whose gradients are added by a function after every step."""

    def __init__(self, trainer: Trainer, add: Callable[[], None]) -> None:
        super().__init__(trainer, trainer.job.steps)
        self._add = add
        self._rate = np.float32(trainer.job.rate / trainer.ranks)

    def go(self, until: int) -> float:
        """*Collective*: make steps until each rank has made so many."""
        for step in range(len(self._history), until):
            self._trainer.gradient(self._weights, step, self._trainer.sent)
            self._add()
            self._weights -= self._rate * self._trainer.received
            self._keep(step + 1)
        return time.perf_counter()


def _by(implementation: str) -> Callable[[Trainer], Training]:
    return lambda trainer: Synchronous(trainer, trainer.adder(implementation))


def _hierarchical(trainer: Trainer) -> Training:
    """Add by MPI's communicators: one for each group, one for all first ranks, one for the rest that stays unused."""
    world = trainer.platform.comm
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
    Strategy("library", "gradients added by the MPI library after every step", _by("mpi"), order=0, uses=("mpi",)),
    Strategy(
        "ring",
        "gradients added round a ring (ring-flags) after every step",
        _by("ring-flags"),
        order=1,
        uses=("ring-flags",),
    ),
    Strategy(
        "parameter-server",
        "gradients added by rank 0 after every step",
        _by("parameter-server"),
        order=2,
        uses=("parameter-server",),
    ),
    Strategy(
        "hierarchical", "gradients added in groups, then between the groups, after every step", _hierarchical, order=3
    ),
)
