"""Matrix products on GPUs: CuPy's, by cuBLAS, each rank's on its own stream."""

from collections.abc import Mapping
from typing import Any

from collbench.flaws import Miscomputed
from collbench.platforms.gpu.cuda import Cuda, Queue
from collbench.platforms.processes import Team
from collbench.platforms.products import Chain


class _Matrices:
    """Those of one rank, on its device."""

    def __init__(self, cupy: Any, queue: Queue, chain: Chain) -> None:
        self._cupy, self._queue, self._chain = cupy, queue, chain
        with queue.enter():
            self._factor, self._start = cupy.asarray(chain.factor), cupy.asarray(chain.start)
            self._last, self._next = cupy.empty_like(self._start), cupy.empty_like(self._start)
        self.reset()

    def enqueue(self, count: int) -> None:
        with self._queue.enter():
            for _ in range(count):
                self._cupy.matmul(self._factor, self._last, out=self._next)
                self._last, self._next = self._next, self._last
        self._made += count

    def reset(self) -> None:
        with self._queue.enter():
            self._last[...] = self._start
            self._next.fill(float("nan"))
        self._made = 0

    def flaw(self) -> Miscomputed | None:
        with self._queue.enter():
            got = self._cupy.asnumpy(self._last)
        return self._chain.flaw(self._made, got)


class GpuProducts:
    """The matrices of this process's ranks."""

    def __init__(self, cuda: Cuda, team: Team, queues: Mapping[int, Queue], size: int) -> None:
        self._team = team
        self._of = {rank: _Matrices(cuda.cupy, queue, Chain(size, rank)) for rank, queue in queues.items()}

    def enqueue(self, rank: int, count: int) -> None:
        """On the rank's stream."""
        self._of[rank].enqueue(count)

    def reset(self) -> None:
        """On every rank's stream."""
        for matrices in self._of.values():
            matrices.reset()

    def check(self) -> Miscomputed | None:
        """The lowest rank with a wrong element speaks."""
        own = next(filter(None, (matrices.flaw() for matrices in self._of.values())), None)
        return next(filter(None, self._team.exchange(own)), None)
