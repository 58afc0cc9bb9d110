"""`local-sgd`: every rank makes steps alone, and all weights are averaged after so many of them (Stich, ICLR 2019)."""

import time

import numpy as np

from collbench.measure.strategies import Strategy
from collbench.measure.strategies.trainer import CopiedTraining, Trainer


class LocalSgd(CopiedTraining):
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
                self._keep(self._made)
        return time.perf_counter()


STRATEGIES = (
    Strategy(
        "local-sgd",
        "own steps, and weights averaged after every K of them (--every)",
        LocalSgd,
        order=4,
        uses=("ring-flags",),
    ),
)
