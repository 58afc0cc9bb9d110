"""What a rank on a CPU computes in training steps: NumPy's matrix products, by its BLAS, with one thread a rank."""

import time
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from collbench.errors import CaseFailed
from collbench.platforms.cpu.memory import CpuMemory
from collbench.platforms.processes import Team
from collbench.platforms.products import Chain, Moment
from collbench.results.facts import GemmMismatch


class CpuProducts:
    """The matrices of this process's rank."""

    def __init__(self, team: Team, rank: int, size: int) -> None:
        import threadpoolctl  # only steps need it

        threadpoolctl.threadpool_limits(1, "blas")  # ranks of an outside launcher have what its user set, or nothing
        self._team, self._chain = team, Chain(size, rank)
        self._factor = self._chain.factor
        self._last, self._next = np.empty((2, size, size), np.float32)
        self.reset()

    def enqueue(self, rank: int, count: int) -> None:
        """Multiply now: a CPU has no queue."""
        factor, last, result = self._factor, self._last, self._next
        for _ in range(count):
            np.matmul(factor, last, out=result)
            last, result = result, last
        self._last, self._next = last, result
        self._made += count

    def moment(self, rank: int) -> Moment:
        """Return the time now, since all products are made."""
        return time.perf_counter()

    def hand_over(self, rank: int) -> None:
        """Do nothing: no product is left to wait for."""

    def take_over(self, rank: int) -> None:
        """Do nothing: no collective is left to wait for."""

    def reset(self) -> None:
        """Start the chain anew."""
        self._last[:] = self._chain.start
        self._next[:] = np.nan
        self._made = 0

    def check(self) -> GemmMismatch | None:
        """Return the wrong element of the lowest rank that has any."""
        with self._team.agreeing():
            own = self._chain.failure(self._made, self._last)
        return next(filter(None, self._team.exchange(own)), None)


class CpuCompute:
    """Everything enqueued is done at once, so nothing has to be ordered."""

    queued = False

    def __init__(self, team: Team, memory: CpuMemory) -> None:
        self._team, self._memory = team, memory

    def products(self, size: int) -> CpuProducts:
        """Return the matrices of this process's rank."""
        return CpuProducts(self._team, self._team.rank, size)

    def join_streams(self) -> None:
        """Do nothing: there are no streams."""

    def fork_streams(self) -> None:
        """Do nothing: there are no streams."""

    def stepping(self) -> AbstractContextManager[None]:
        """Return a context that translates nothing."""
        return nullcontext()

    def refuse_given_up(self) -> None:
        """Raise CaseFailed if a kernel of this rank waited in vain."""
        if self._memory.gave_up():
            raise CaseFailed("a rank waited in vain for another's flag")
