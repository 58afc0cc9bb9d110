"""Ranks as MPI processes of one machine, whose memory is one shared window that all of them load and store.

Nothing here needs a GPU or an installed MPI: the `mpich` wheel brings the library, and kernels are compiled as C++.
Under an outside launcher ranks may be on several nodes; then only the library can carry anything out.
"""

import copy
import ctypes
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from collbench.cases import PACK, Case, Sweep
from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import CaseFailed, Unsupported
from collbench.platforms import kernels, tracelog
from collbench.platforms.cpu import calls, memory_traffic
from collbench.platforms.cpu.computing import CpuComputing
from collbench.platforms.cpu.hardware import cpus
from collbench.platforms.cpu.judge import Judge
from collbench.platforms.cpu.limits import limits
from collbench.platforms.cpu.window import Window
from collbench.platforms.layout import (
    MAX_RANKS,
    SHIFTED,
    WINDOW_HEAD,
    WORLD,
    Layout,
    Region,
    buffers,
    view,
)
from collbench.platforms.processes import Processes, Team
from collbench.platforms.products import Moment
from collbench.platforms.roles import Platform, Prepared
from collbench.platforms.scheduling import RunQueue, Watch
from collbench.results import Note
from collbench.topology.discover_cpu import discover

_YIELDS = {"yield": 1, "busy": 0}
_RARELY = 256  # tries, a few microseconds: not noticed with a core to itself, saved by it when something else runs
_UNROLLED = (2, 4, 8)  # ranks that direct.cu is compiled for; for others its loops over the ranks stay loops
_SPINS = 2**33  # tries before a wait gives up: minutes, since the supervisor's clock is the one that should ring


class CpuPlatform(CpuComputing, Judge):
    """One rank of the run, as its own process sees it."""

    name = "cpu"
    region = 200e-6  # a clock's reading and a barrier take less than a microsecond
    cache: int | None = None  # ranks have caches of their own, and what else runs on a core is not known

    def __init__(self, sweep: Sweep, layout: Layout, team: Processes) -> None:
        self.local: Sequence[int] = team.local(sweep.ranks)
        self.comm, self.ranks, self.rank = team.comm, team.size, team.rank
        self.team: Team = team
        self.layout = layout
        self._options: tuple[str, ...] = ()  # of every kernel
        # Seconds, and the share of them off its core: of this rank, and the largest over all ranks.
        self._seconds = np.zeros(2), np.zeros(2)
        self.scheduled = Watch()
        with team.agreeing():  # one machine may have the memory, or a compiler, where another has not
            self._window = Window(team.comm, layout.nbytes)
            self._clock = calls.Clock(_meeting(team.comm))
        self._bases, self._cores = self._window.bases, self._window.cores
        self._nodes = len(set(team.exchange(min(self._bases))))
        view(self.address(Region.WINDOW, self.rank), layout.sizes[Region.WINDOW])[:] = 0
        self._topology = discover(self.ranks, usable=self._cores)
        self._cache = memory_traffic.caches(self._topology)
        crowded = len(self._bases) > len(self._cores)
        self.hardware = cpus(crowded)
        self.note = Note(oversubscribed=crowded, spin="" if sweep.spin == "auto" else sweep.spin)
        self.limits = limits(team)
        self._yield_after = _YIELDS.get(sweep.spin, 1 if crowded else _RARELY)
        team.meet()  # every window is zeroed before anyone's kernel writes into it

    def address(self, region: Region, rank: int) -> int:
        """Where a region starts; Unsupported if that rank is on another node."""
        if rank not in self._bases:
            raise Unsupported(f"rank {rank} is on another node, whose memory cannot be loaded or stored")
        shift = self._offset if region in SHIFTED else 0
        return int(self._bases[rank] + self.layout.starts[region] + shift)

    def multicast(self, region: Region) -> int:
        """There is none."""
        raise Unsupported("CPUs have no switch between them")

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> kernels.HostKernel:
        """A kernel compiled as C++."""
        known = (f"-DRANKS={self.ranks}",) if file == "direct.cu" and self.ranks in _UNROLLED else ()
        return kernels.host_kernel(file, entry, (*kernels.defines(dtype, redop), *known, *self._options, *options))

    def traced(self) -> Self:
        """Itself, but for an option of the compiler."""
        other = copy.copy(self)
        other._options = (tracelog.TRACED,)
        return other

    def blocks(self, most: int) -> int:
        """A process is one block of one thread."""
        return 1

    def bind(
        self, kernel: kernels.HostKernel, case: Case, blocks: int, threads: int, *arguments: Any
    ) -> Callable[[int], None]:
        """A process runs its own rank only, as one block of one thread."""
        return kernel.bind(self._world(case), *arguments)

    def _world(self, case: Case) -> Any:
        world = self._ranks_alone(case.ranks)
        for rank in range(case.ranks):
            world["send"][rank], world["receive"][rank] = buffers(self, case, rank)
        world["streamed"], world["trace"] = self.streamed, self.layout.fifos.get(tracelog.FIFO, 0)
        return world

    def _ranks_alone(self, ranks: int) -> Any:
        """A World without buffers."""
        world: Any = np.zeros((), WORLD)
        if ranks > MAX_RANKS:
            raise Unsupported(f"hand-written kernels take at most {MAX_RANKS} ranks")
        for rank in range(ranks):
            world["window"][rank] = self.address(Region.WINDOW, rank)
        world["ranks"], world["first"], world["stride"], world["blocks"] = ranks, self.rank, 1, 1
        world["spins"], world["yield_after"] = _SPINS, self._yield_after
        return world

    @cached_property
    def streamed(self) -> int:
        """*Collective*, once: packs from which on kernels store a piece for another rank past the caches, measured.

        Ranks that take turns on a core, or have nobody to hand anything to, measure nothing.
        """
        pieces = memory_traffic.pieces(self.layout.sizes[Region.RECEIVE] // max(2, self.ranks))
        if self.ranks == 1 or self.ranks > MAX_RANKS or self._nodes > 1 or self.note.oversubscribed:
            pieces = ()
        view(self.address(Region.RECEIVE, self.rank), 2 * max(pieces, default=0))[:] = 0  # first by its owner
        self.team.meet()
        return memory_traffic.streamed_from({piece: self._handed_over(piece) for piece in pieces}, PACK)

    def _handed_over(self, piece: int) -> tuple[float, float]:
        """Seconds to hand over so many bytes, with ordinary stores and with those past the caches."""
        with self.team.agreeing():
            kernel = kernels.host_kernel(memory_traffic.KERNELS, "hand_over")
        world = self._ranks_alone(self.ranks)
        for rank in range(self.ranks):
            world["receive"][rank] = self.address(Region.RECEIVE, rank)
        lines = np.uint64(piece // memory_traffic.LINE)
        world["streamed"] = memory_traffic.NEVER
        ordinary = Prepared(kernel.bind(world.copy(), lines))
        world["streamed"] = memory_traffic.ALWAYS
        streamed = Prepared(kernel.bind(world.copy(), lines))
        return memory_traffic.in_turn(self, (ordinary, streamed), max(2, 2**20 // piece))

    def barrier(self) -> Prepared | None:
        """A barrier by the package's own flags, whatever kernels are on trial: it tells of the machine, not of them."""
        if self.ranks == 1 or self.ranks > MAX_RANKS or self._nodes > 1 or self.note.oversubscribed:
            return None
        kernel = kernels.host_kernel(str(kernels.own_folder() / memory_traffic.KERNELS), "hand_over")
        return Prepared(kernel.bind(self._ranks_alone(self.ranks), np.uint64(0)))

    def floor(self, case: Case) -> Sequence[Prepared]:
        """Ways to read and write as much as the case must and no more; none where caches may hold its buffers."""
        if self._nodes > 1 or not memory_traffic.beyond(case, self._cache):
            return ()
        kernel = kernels.host_kernel(memory_traffic.KERNELS, "traffic")
        shares = memory_traffic.ways(case, *buffers(self, case, self.rank))
        return [Prepared(kernel.bind(*share)) for share in shares]

    def bind_one(self, kernel: kernels.HostKernel, rank: int, count: int, *arguments: Any) -> Callable[[], None]:
        """Runs at once: a CPU has no queue."""
        return partial(kernel.bind(*arguments), 1)

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
        """Between two readings of each rank's own clock, after a common start; the slowest counts."""
        from mpi4py import MPI

        mine, slowest = self._seconds
        loop = prepared.loop or prepared.launch
        if isinstance(loop, kernels.Loop):
            mine[0] = self._clock.seconds(loop, launches)
            mine[1] = self._clock.off_core(self.scheduled) / mine[0]
        else:
            mine[0], mine[1] = self._of_python(prepared.launch, launches)
        if prepared.refuse:
            prepared.refuse()
        if self.gave_up():
            mine[0] = np.inf
        self.comm.Allreduce(mine, slowest, MPI.MAX)
        if np.isinf(slowest[0]):
            raise CaseFailed("a rank waited in vain for another's flag")
        if not self.note.oversubscribed:  # else waiting for a core is what is measured
            self.scheduled.off_core = float(slowest[1])
        return float(slowest[0]) / launches

    def _of_python(self, launch: Callable[[int], None], launches: int) -> tuple[float, float]:
        """Seconds from a meeting on, and the share of them in which this rank had no core although it could run."""
        self.comm.Barrier()
        with RunQueue() as waited:
            launch(launches)
        self.scheduled.look()
        return waited.seconds, waited.off_core

    def gave_up(self) -> bool:
        """Whether a kernel of this rank waited in vain."""
        return bool(ctypes.c_uint32.from_address(self.address(Region.WINDOW, self.rank)).value)

    def take_logs(self, rank: int) -> Array:
        """A process is one block."""
        start = self.address(Region.WINDOW, rank) + WINDOW_HEAD + self.layout.fifos[tracelog.FIFO]
        place = view(start, tracelog.LOG.itemsize)
        taken = place.copy().view(tracelog.LOG)
        place[:] = 0
        return taken

    def moment(self, rank: int) -> Moment:
        """Now, since everything before is done; processes of one machine share this clock."""
        return time.perf_counter()

    def topology(self) -> dict[str, Any]:
        """The sockets, cores and caches under the ranks."""
        measured = {} if self.streamed == memory_traffic.NEVER else {"streamed_from": self.streamed * PACK}
        return self._topology.on_nodes(self._nodes) | measured

    def versions(self) -> dict[str, str]:
        """The MPI library, its binding and the compiler of the kernels."""
        from mpi4py import MPI, __version__

        library = MPI.Get_library_version().splitlines()[0].strip("\0 ")
        return {
            "mpi": " ".join(library.split()),
            "mpi4py": __version__,
            "compiler": kernels.compiler_version(),
        }

    def close(self) -> bool:
        """Unmap the window, once nobody's kernels use it."""
        self.comm.Barrier()
        self._window.close()
        return True


def _meeting(comm: Any) -> calls.Call:
    """A barrier, as the library makes it."""
    from mpi4py import MPI

    function = calls.symbol(MPI.__file__, "MPI_Barrier")
    assert function, "a library that mpi4py could load has all of MPI 1"
    return calls.Call(function, (MPI._handleof(comm),))


def open_platform(sweep: Sweep, layout: Layout, team: Team) -> Platform:
    """Make this process one of the ranks that mpiexec started."""
    assert isinstance(team, Processes), "mpiexec starts a process for each rank"
    return CpuPlatform(sweep, layout, team)
