"""The clock of a rank on a CPU: every rank starts behind a barrier and reads its own clock, and the slowest counts."""

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from collbench.cases import Case
from collbench.errors import TimedOut
from collbench.platforms import compiler
from collbench.platforms.cpu import memory as traffic
from collbench.platforms.cpu import mpi
from collbench.platforms.cpu.check import singly
from collbench.platforms.cpu.memory import CpuMemory
from collbench.platforms.interface import Clock, Prepared
from collbench.platforms.layout import MAX_RANKS, buffers
from collbench.platforms.mpi_processes import MpiProcesses
from collbench.platforms.processes import Team
from collbench.platforms.products import Moment
from collbench.platforms.scheduling import RunQueue, SchedulingWatch

_SCHEDULED = np.dtype([("off_core", np.float64), ("switches", np.uint64), ("cores", np.uint64, 2)])
"""`struct Scheduled` of kernels/host/library.cpp."""


class CpuClock(Clock):
    """Times operations by the clock of each rank; the slowest rank counts."""

    region = 200e-6  # a clock's reading and a barrier take less than a microsecond

    def __init__(self, team: Team, memory: CpuMemory, cache: int | None) -> None:
        self._team, self._memory, self._cache = team, memory, cache
        self._seconds = np.zeros(2)  # and the share of them off its core
        self.scheduled = SchedulingWatch()
        self._scheduled = np.zeros(1, _SCHEDULED)
        with team.agreeing():
            barrier, self.meet = _barrier(team, memory)
            self._barrier = mpi.call_records([barrier] if barrier else [])
            self._held = barrier
            self._timed = compiler.host_function(mpi.LIBRARY_FILE, "timed")
        self._timed.restype = ctypes.c_double
        self._timed.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p
        self.limits = traffic.limits(team)

    def time(self, prepared: Prepared, launches: int) -> float:
        """Return seconds between two readings of each rank's own clock, after a common start; the slowest counts."""
        mine = self._seconds
        loop = prepared.loop or prepared.launch
        if isinstance(loop, compiler.Loop):
            mine[:] = self._time_loop(loop, launches)
        else:
            self.meet()
            with RunQueue() as waited:
                prepared.launch(launches)
            self.scheduled.look()
            mine[:] = waited.seconds, waited.off_core
        if prepared.refuse:
            prepared.refuse()

        # A rank that gave up says so by its time: no other exchange is needed, and all raise the same.
        if self._memory.gave_up():
            mine[0] = np.inf
        slowest = self._team.slowest(mine)
        if np.isinf(slowest[0]):
            raise TimedOut("a rank waited in vain for another's flag")
        if not self._memory.crowded:  # else waiting for a core is what is measured
            self.scheduled.off_core = float(slowest[1])
        return float(slowest[0]) / launches

    def _time_loop(self, loop: compiler.Loop, launches: int) -> tuple[float, float]:
        """Return seconds of a loop in C of one block, and the share of them in which this rank had no core.

        The barrier before it is called from C too, so that the ranks start within the time of a barrier.
        """
        assert len(self._barrier), "nothing runs where ranks can neither share memory nor use MPI"
        barrier, scheduled = self._barrier.ctypes.data, self._scheduled.ctypes.data
        seconds = float(self._timed(barrier, mpi.address(loop.func), loop.args[0], launches, scheduled))
        (record,) = self._scheduled
        self.scheduled.switches += int(record["switches"])
        self.scheduled.cores.update(map(int, record["cores"]))
        return seconds, float(record["off_core"]) / seconds

    def moment(self, rank: int) -> Moment:
        """Return the time now, since everything before is done; processes of one machine share this clock."""
        return time.perf_counter()

    def singly(self, prepared: Prepared) -> Prepared | None:
        """Return a loop in C that calls the operation again and again; None if C cannot call it."""
        loop = None if self._memory.crowded else singly(prepared.loop or prepared.launch)
        return Prepared(loop) if loop else None

    def barrier(self) -> Prepared | None:
        """Return a barrier by the package's own flags, whichever kernels are on trial: it measures the machine."""
        if not self._memory.by_flags:
            return None
        kernel, world = _hand_over(self._memory)
        return Prepared(kernel.bind(*world))

    def floor(self, case: Case) -> Sequence[Prepared]:
        """Return ways to read and write as much as the case must; none if caches may hold it, or it is misaligned."""
        if self._memory.nodes > 1 or case.unalign or not traffic.beyond(case, self._cache):
            return ()
        kernel = compiler.host_kernel(traffic.KERNELS, "traffic")
        shares = traffic.copies(case, *buffers(self._memory, case, self._memory.rank))
        return [Prepared(kernel.bind(*share)) for share in shares]


def _barrier(team: Team, memory: CpuMemory) -> tuple[mpi.Call | None, Callable[[], object]]:
    """Return a barrier as a call from C and as a function: MPI's, or by flags in the window where MPI started no ranks.

    There is no call where ranks can neither share memory nor use MPI.
    """
    if isinstance(team, MpiProcesses):
        from mpi4py import MPI

        return mpi.mpi_call("MPI_Barrier", (MPI._handleof(team.comm),)), team.comm.Barrier
    if memory.nodes > 1 or memory.ranks > MAX_RANKS:
        return None, team.meet
    kernel, world = _hand_over(memory)
    return mpi.kernel_call(kernel, *world), partial(kernel.bind(*world), 1)


def _hand_over(memory: CpuMemory) -> tuple[compiler.HostKernel, tuple[Any, ...]]:
    """Return the package's kernel in which each rank hands a flag to the next, and its arguments for no data."""
    kernel = compiler.host_kernel(str(compiler.own_folder() / traffic.KERNELS), "hand_over")
    return kernel, (memory.world(memory.ranks), np.uint64(0))
