"""Matrix products on a CPU: NumPy's, by its BLAS, with one thread for a rank."""

import time

import numpy as np

from collbench.platforms.processes import Team
from collbench.platforms.products import Chain, Moment
from collbench.results import GemmMismatch


class CpuProducts:
    """The matrices of this process's rank."""

    def __init__(self, team: Team, rank: int, size: int) -> None:
        import threadpoolctl  # only whoever computes needs it

        threadpoolctl.threadpool_limits(1, "blas")  # ranks of an outside launcher have what its user set, or nothing
        self._team, self._chain = team, Chain(size, rank)
        self._factor = self._chain.factor
        self._last, self._next = np.empty((2, size, size), np.float32)
        self.reset()

    def enqueue(self, rank: int, count: int) -> None:
        """Made when it returns: a CPU has no queue."""
        factor, last, result = self._factor, self._last, self._next
        for _ in range(count):
            np.matmul(factor, last, out=result)
            last, result = result, last
        self._last, self._next = last, result
        self._made += count

    def moment(self, rank: int) -> Moment:
        """Now: all is made."""
        return time.perf_counter()

    def hand_over(self, rank: int) -> None:
        """Nothing is left to wait for."""

    def take_over(self, rank: int) -> None:
        """Nothing is left to wait for."""

    def reset(self) -> None:
        """The start where the chain begins, and nothing where the next result goes."""
        self._last[:] = self._chain.start
        self._next[:] = np.nan
        self._made = 0

    def check(self) -> GemmMismatch | None:
        """The lowest rank with a wrong element speaks."""
        with self._team.agreeing():
            own = self._chain.flaw(self._made, self._last)
        return next(filter(None, self._team.exchange(own)), None)
