"""The part of a platform that computes in steps (roles.Computing), for ranks that are streams of GPUs."""

import copy
from contextlib import AbstractContextManager
from typing import Self

import numpy as np

from collbench.errors import CaseFailed, PlatformError
from collbench.platforms.gpu.cuda import Cuda, Queue
from collbench.platforms.gpu.cures import why
from collbench.platforms.gpu.launch import Launcher
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.gpu.placement import Placement
from collbench.platforms.gpu.products import GpuProducts
from collbench.platforms.gpu.timing import Stopwatch
from collbench.platforms.layout import Region
from collbench.platforms.processes import Team


class GpuComputing:
    """The ranks of a device run a kernel together, on the stream of the first: the others' streams wait for it."""

    team: Team
    _cuda: Cuda
    _places: Placement
    _queues: dict[int, Queue]
    _memory: RankMemory
    _launcher: Launcher
    _stopwatch: Stopwatch
    _products: dict[int, GpuProducts]  # by size; the last one that was asked for

    queued = True

    def products(self, size: int) -> GpuProducts:
        """Of this process's ranks; PlatformError, with what to install, where there is no room or no cuBLAS.

        The same ones for the same size: another round of measurements neither makes them again nor takes more memory.
        """
        if size not in self._products:
            self._products.clear()
            failures = self._cuda.cupy.cuda.compiler.CompileException, RuntimeError, ImportError, MemoryError, OSError
            try:
                made = GpuProducts(self._cuda, self.team, self._queues, self._stopwatch.clocks.moment, size)
            except failures as error:
                raise PlatformError(f"matrices of {size} x {size} cannot be multiplied: {why(error)}") from error
            self._stopwatch.besides = made.queues
            self._products[size] = made
        return self._products[size]

    def shifted(self, offset: int) -> Self:
        """Itself, but for the memory that kernels and libraries are told of."""
        other = copy.copy(self)
        other._memory = self._memory.shifted(offset)
        other._launcher = self._launcher.at(other._memory)
        return other

    def gather_queues(self) -> None:
        """All streams of a device are waited for by all."""
        for device in self._places.devices:
            queues = [self._queues[rank] for rank in self._places.on(device) if rank in self._queues]
            marks = [(queue, queue.mark()) for queue in queues if len(queues) > 1]
            for queue in queues:
                for other, mark in marks:
                    if other is not queue:
                        queue.enter().wait_event(mark)

    def spread_queues(self) -> None:
        """The same: an operation may stand on one stream of a device or on all."""
        self.gather_queues()

    def stepping(self) -> AbstractContextManager[None]:
        """After some failures every call of CUDA says so, whichever comes first."""
        return self._cuda.failing_as(CaseFailed, "while a step was carried out")

    def refuse_given_up(self) -> None:
        """A kernel that gives up leaves a one in the first word of its rank's window."""
        for rank, queue in self._queues.items():
            if queue.fetch(self._memory.address(Region.WINDOW, rank), np.zeros(1, np.uint32))[0]:
                raise CaseFailed(f"a rank waited in vain for another's flag (rank {rank})")
