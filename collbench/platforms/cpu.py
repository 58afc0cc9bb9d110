"""Ranks as MPI processes of one machine, whose memory is one shared window that all of them load and store.

Nothing here needs a GPU or an installed MPI: the `mpich` wheel brings the library, and kernels are compiled as C++.
Under an outside launcher ranks may be on several nodes; then only the library can carry anything out.
"""

import ctypes
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from collbench.cases import Case, Sweep
from collbench.cost import cpus
from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import CaseFailed, PlatformError, Unsupported
from collbench.measurement import Mismatch
from collbench.note import Note
from collbench.platforms import (
    LINE,
    MAX_RANKS,
    WINDOW_HEAD,
    WORLD,
    Moment,
    Prepared,
    Region,
    buffers,
    checking,
    kernels,
    tracelog,
    view,
)
from collbench.platforms.processes import Processes
from collbench.units import format_size

LAST = 128 * 2**20  # bytes: the largest message of a default sweep
STARTUP = 60.0  # seconds for ranks to get ready: kernels are compiled once for each machine
SHARED_MEMORY = "/dev/shm"  # where MPI puts a shared window on Linux

_YIELDS = {"yield": 1, "busy": 0}
_RARELY = 256  # tries, a few microseconds: not noticed with a core to itself, saved by it when something else runs
_SPINS = 2**33  # tries before a wait gives up: minutes, since the supervisor's clock is the one that should ring


class CpuPlatform:
    """One rank of the run, as its own process sees it."""

    name = "cpu"
    region = 200e-6  # a clock's reading and a barrier take less than a microsecond

    def __init__(self, comm: Any, sweep: Sweep, need: Mapping[Region, int], fifos: Mapping[str, int]) -> None:
        from mpi4py import MPI

        self.comm = comm
        self._team = Processes(comm)
        self._fifos = fifos
        self.tracing = False
        self.ranks = comm.Get_size()
        self.rank = comm.Get_rank()
        self.local: Sequence[int] = (self.rank,)
        self._slowest = np.zeros(1), np.zeros(1)
        self._maximum = MPI.MAX
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._starts = dict(zip(need, np.cumsum([0, *need.values()]).tolist(), strict=False))
        self._sizes = dict(need)
        self._window = MPI.Win.Allocate_shared(sum(need.values()) + LINE, 1, comm=node)
        neighbours = node.allgather(self.rank)
        self._bases = {
            rank: -(-self._window.Shared_query(place)[0].address // LINE) * LINE
            for place, rank in enumerate(neighbours)
        }
        view(self.address(Region.WINDOW, self.rank), need[Region.WINDOW])[:] = 0
        self._cores = set().union(*node.allgather(os.sched_getaffinity(0)))
        crowded = node.Get_size() > len(self._cores)
        self.hardware = cpus(crowded)
        self.note = Note(oversubscribed=crowded, spin="" if sweep.spin == "auto" else sweep.spin)
        self._yield_after = _YIELDS.get(sweep.spin, 1 if crowded else _RARELY)
        self._nodes = len(set(comm.allgather(min(neighbours))))
        node.Barrier()

    def agreeing(self) -> AbstractContextManager[None]:
        """Run what is inside; if it fails on any process, raise the same error on all of them."""
        return self._team.agreeing()

    def address(self, region: Region, rank: int) -> int:
        """Where a region starts; Unsupported if that rank is on another node."""
        if rank not in self._bases:
            raise Unsupported(f"rank {rank} is on another node, whose memory cannot be loaded or stored")
        return int(self._bases[rank] + self._starts[region])

    def multicast(self, region: Region) -> int:
        """There is none."""
        raise Unsupported("CPUs have no switch between them")

    def fifo(self, implementation: str) -> int:
        """Where an implementation's own FIFO starts behind the flags."""
        return self._fifos[implementation]

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> kernels.HostKernel:
        """A kernel compiled as C++."""
        traced = (tracelog.TRACED,) if self.tracing else ()
        return kernels.host_kernel(file, entry, (*kernels.defines(dtype, redop), *traced, *options))

    def blocks(self, most: int) -> int:
        """A process is one block of one thread."""
        return 1

    def cache(self) -> None:
        """Ranks have caches of their own, and what else runs on a core is not known."""

    def bind(
        self, kernel: kernels.HostKernel, case: Case, blocks: int, threads: int, *arguments: Any
    ) -> Callable[[int], None]:
        """A process runs its own rank only, as one block of one thread."""
        return kernel.bind(self._world(case), *arguments)

    def _world(self, case: Case) -> Array:
        world = np.zeros((), WORLD)
        if case.ranks > MAX_RANKS:
            raise Unsupported(f"hand-written kernels take at most {MAX_RANKS} ranks")
        for rank in range(case.ranks):
            world["window"][rank] = self.address(Region.WINDOW, rank)
            world["send"][rank], world["receive"][rank] = buffers(self, case, rank)
        world["ranks"], world["first"], world["stride"], world["blocks"] = case.ranks, self.rank, 1, 1
        world["spins"], world["yield_after"] = _SPINS, self._yield_after
        world["trace"] = self._fifos.get(tracelog.FIFO, 0)
        return world

    def bind_one(self, kernel: kernels.HostKernel, rank: int, count: int, *arguments: Any) -> Callable[[], None]:
        """Runs at once: a CPU has no queue."""
        bound = kernel.bind(*arguments)
        return lambda: bound(1)

    def copy(self, rank: int, target: int, source: int, nbytes: int) -> None:
        """A memcpy, done when it returns."""
        ctypes.memmove(target, source, nbytes)

    def mark(self, rank: int) -> None:
        """Nothing to wait for: what this process enqueued is done, and no other's is in any token."""

    def after(self, rank: int, token: None) -> None:
        """It is."""

    def synchronize(self) -> None:
        """Everything a rank started is done when it arrives here; wait for the others."""
        self.comm.Barrier()

    def time(self, prepared: Prepared, launches: int) -> float:
        """Between two readings of each rank's own clock, after a common start."""
        mine, slowest = self._slowest
        self.comm.Barrier()
        start = time.perf_counter()
        prepared.launch(launches)
        mine[0] = time.perf_counter() - start
        if self._gave_up():
            mine[0] = np.inf
        self.comm.Allreduce(mine, slowest, self._maximum)
        if np.isinf(slowest[0]):
            raise CaseFailed("a rank waited in vain for another's flag")
        return float(slowest[0]) / launches

    def _gave_up(self) -> bool:
        return bool(ctypes.c_uint32.from_address(self.address(Region.WINDOW, self.rank)).value)

    def fill(self, case: Case, seed: int) -> None:
        """Each rank writes its own buffers."""
        send, _ = buffers(self, case, self.rank)
        if not case.in_place:
            home = self.address(Region.RECEIVE, self.rank)
            view(home, case.receive_count * case.dtype.itemsize)[:] = checking.POISON
        fill = self.kernel("check.cu", "fill", case.dtype, case.redop)
        how = checking.packed_recipe(case, seed)
        fill(np.uint64(send), np.uint64(case.send_count), how, np.uint32(self.rank), np.uint64(0))
        self.synchronize()

    def check(self, case: Case, seed: int) -> Mismatch | None:
        """Each rank checks its own result; the lowest rank with a mismatch speaks."""
        self.synchronize()
        mine = next((found for piece in case.pieces(self.rank) if (found := self._compare(case, seed, piece))), None)
        everyone: list[Mismatch | None] = self.comm.allgather(mine)
        return next((found for found in everyone if found), None)

    def _compare(self, case: Case, seed: int, piece: checking.Piece) -> Mismatch | None:
        size = case.dtype.itemsize
        got = buffers(self, case, self.rank)[1] + piece[0] * size
        found = checking.CLEAN.copy()
        compare = self.kernel("check.cu", "compare", case.dtype, case.redop)
        compare(*checking.comparison(case, seed, piece, got, found.ctypes.data))
        if not found["wrong"]:
            return None
        where = int(found["wrong"]), int(found["first"])
        element = view(got + where[1] * size, size).copy().view(case.dtype.storage)
        return checking.describe(case, seed, self.rank, piece, where, element)

    def take_logs(self, rank: int) -> Array:
        """A process is one block."""
        place = view(self.address(Region.WINDOW, rank) + WINDOW_HEAD + self.fifo(tracelog.FIFO), tracelog.LOG.itemsize)
        taken = place.copy().view(tracelog.LOG)
        place[:] = 0
        return taken

    def moment(self, rank: int) -> Moment:
        """Now, since everything before is done; processes of one machine share this clock."""
        now = time.perf_counter()
        return lambda: now

    def gather(self, mine: list[Any]) -> list[Any]:
        """Through MPI."""
        return [each for part in self.comm.allgather(mine) for each in part]

    def topology(self) -> dict[str, Any]:
        """The sockets, cores and caches under the ranks."""
        from collbench.topology.discover_cpu import discover

        return discover(self.ranks, usable=self._cores).to_json() | {"nodes": self._nodes}

    def versions(self) -> dict[str, str]:
        """The MPI library, its binding and the compiler of the kernels."""
        from mpi4py import MPI, __version__

        library = MPI.Get_library_version().splitlines()[0].strip("\0 ")
        return {
            "mpi": " ".join(library.split()),
            "mpi4py": __version__,
            "compiler": kernels.compiler_version(),
        }

    def close(self) -> None:
        """Free the shared window, which every rank must agree to."""
        self._window.Free()


def open_platform(sweep: Sweep, need: Mapping[Region, int], fifos: Mapping[str, int]) -> CpuPlatform:
    """Make this process one of the ranks that mpiexec started."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.Get_size() != sweep.ranks:
        raise PlatformError(f"world size {comm.Get_size()} although {sweep.ranks} ranks were asked for")
    return CpuPlatform(comm, sweep, need, fifos)


def available() -> bool:
    """Every machine has a CPU."""
    return True


def refusal() -> str:
    """Nothing: no driver could refuse."""
    return ""


def missing() -> str:
    """Nothing: what it needs was installed with the package."""
    return ""


def broken() -> str:
    """Nothing: what does not work is said when the platform is opened, since there is no other to choose."""
    return ""


def default_ranks() -> int:
    """The same on every machine, so that default sweeps compare; the fewest that communicate."""
    return 2


def available_memory() -> int:
    """Bytes that shared windows may take on this machine."""
    free = shutil.disk_usage(SHARED_MEMORY).free
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            fields = dict(line.split(":") for line in lines)
        return min(free, int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError):
        return free


def refuse_too_large(need: Mapping[Region, int], ranks: int) -> None:
    """PlatformError if the windows of all ranks do not fit, before anything is started."""
    wanted, free = ranks * sum(need.values()), available_memory()
    if wanted > free:
        raise PlatformError(
            f"{ranks} ranks need {format_size(wanted)} of shared memory and {SHARED_MEMORY} has {format_size(free)}: "
            "lower -e or --ranks, or enlarge it (docker: --shm-size)"
        )
