"""The part of a platform that says what ranks did when (roles.Logging), for ranks that are streams of GPUs.

Logs of traced kernels go by %globaltimer, a clock for tools of which PTX promises nothing between two GPUs: theirs are
milliseconds apart and drift.  So it is held against the host's clock, GPU by GPU.
"""

import copy
from collections.abc import Mapping
from typing import Self

import numpy as np

from collbench.datatypes import DATATYPES, NONE, Array
from collbench.platforms import tracelog
from collbench.platforms.gpu.cuda import Cuda, Queue
from collbench.platforms.gpu.device_clocks import closest
from collbench.platforms.gpu.launch import KernelCache, Launcher
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.gpu.placement import Placement
from collbench.platforms.gpu.timing import Stopwatch
from collbench.platforms.layout import WINDOW_HEAD, Layout, Region
from collbench.platforms.products import Moment


class GpuLogging:
    """Logs lie in the windows of their ranks; moments are events."""

    layout: Layout
    _cuda: Cuda
    _places: Placement
    _queues: dict[int, Queue]
    _memory: RankMemory
    _kernels: KernelCache
    _launcher: Launcher
    _stopwatch: Stopwatch
    _options: tuple[str, ...]

    def traced(self) -> Self:
        """Itself, but for an option of the compiler."""
        other = copy.copy(self)
        other._options = (tracelog.TRACED,)
        return other

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """Nothing to be added on one GPU; those of several are held against the host's, to some microseconds."""
        alike = [tuple(self._places.on(device)) for device in self._places.devices]
        return {ranks: self._log_clock(ranks[0]) if len(self._places.gpus) > 1 else 0.0 for ranks in alike}

    def _log_clock(self, rank: int) -> float:
        """Seconds that a device's clock is behind the host's; where it is told there is no log, before and after."""
        place, queue = self._logs(rank), self._queues[rank]
        kernel = self._kernels.get("clock.cu", "tell_clock", DATATYPES["float"], NONE)
        launch, told = self._launcher.bind_one(kernel, rank, 1, np.uint64(place)), np.zeros(1, np.uint64)

        def look() -> None:
            launch()
            queue.enter().synchronize()

        at, nanoseconds, _ = closest(look, lambda seen: queue.fetch(place, told)[0])
        self._clear(place, told.nbytes)
        return at - 1e-9 * float(nanoseconds)

    def _clear(self, place: int, nbytes: int) -> None:
        self._cuda.runtime.memset(place, 0, nbytes)
        self._cuda.runtime.deviceSynchronize()

    def _logs(self, rank: int) -> int:
        return self._memory.address(Region.WINDOW, rank) + WINDOW_HEAD + self.layout.fifos[tracelog.FIFO]

    def take_logs(self, rank: int) -> Array:
        """From the rank's device."""
        place = self._logs(rank)
        taken = self._queues[rank].fetch(place, np.zeros(tracelog.NBYTES // tracelog.LOG.itemsize, tracelog.LOG))
        self._clear(place, tracelog.NBYTES)
        return taken

    def set_clocks(self) -> float:
        """Before and after a series: a device's clock gains or loses microseconds on the host's in a second."""
        return self._stopwatch.clocks.set(self._queues.values())

    def moment(self, rank: int) -> Moment:
        """An event on the rank's stream; clocks of devices are set by the host's, to a few microseconds."""
        return self._stopwatch.clocks.moment(self._queues[rank])
