"""The CPU platform: ranks are processes that share one memory window.

This platform needs neither a GPU nor an installed MPI: the `mpich` wheel has the library, and kernels are compiled as
C++. Across several nodes only the collectives of the MPI library can run. Every rank fills and checks its own
buffers. The stress check is one call into C, which makes this rank's calls within nanoseconds of each other.
"""

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.cases import PACK, Case, Sweep
from collbench.datatypes import DATATYPES, NONE, Array, Datatype, Reduction, Wire
from collbench.errors import TimedOut, Unsupported
from collbench.platforms import checking, compiler, tracelog
from collbench.platforms.checking import StressPlan
from collbench.platforms.cost import cpus
from collbench.platforms.cpu import memory as traffic
from collbench.platforms.cpu import mpi
from collbench.platforms.cpu.memory import CpuMemory
from collbench.platforms.interface import Chain, Clock, Compute, Launcher, Moment, Platform, Prepared, Products
from collbench.platforms.layout import GUARD, GUARDED, MAX_RANKS, WINDOW_HEAD, MemoryLayout, Region, buffers, view
from collbench.platforms.mpi_processes import MpiProcesses
from collbench.platforms.processes import Alone, RunQueue, SchedulingWatch, Team
from collbench.results import Note
from collbench.results.facts import CheckFailure, GemmMismatch, Mismatch, Overrun
from collbench.runfile.schema import TopologyPart
from collbench.topology.discover_cpu import discover

_COPIES = 2**20  # bytes of results that are stored until they are compared
_LIST = np.dtype([("first", np.uint64), ("count", np.uint64)])  # `Probe::Stretch` of kernels/check.cu

_ADDRESSES = "operation arguments send receive send_blocks pieces piece_count stalls places copies verdicts"
_CHECK = np.dtype(
    [(name, np.uint64) for name in _ADDRESSES.split()]
    + [("probe", checking.PROBE), ("how", checking.RECIPE), ("wire", checking.WIRE)]
    + [(name, np.uint32) for name in ("rank", "calls", "capacity", "ulps", "in_place", "bounded")]
)
"""`struct Stress` of kernels/check.cu."""

_OPERATION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)

_UNROLLED = (2, 4, 8)  # ranks that direct.cu is compiled for; for others its loops over the ranks stay loops
_SCHEDULED = np.dtype([("off_core", np.float64), ("switches", np.uint64), ("cores", np.uint64, 2)])
"""`struct Scheduled` of kernels/host/library.cpp."""


class _Operation:
    """An operation as C calls it: the kernel's own launch function, or a callback where Python makes the launches."""

    def __init__(self, launch: Callable[[int], Any]) -> None:
        self.failure: BaseException | None = None
        self._launch = launch
        function: Any = launch.func if isinstance(launch, compiler.Loop) else _OPERATION(self._from_c)
        self._held = function
        self.address = ctypes.cast(function, ctypes.c_void_p).value
        self.arguments = ctypes.addressof(launch.args[0]) if isinstance(launch, compiler.Loop) else 0

    def _from_c(self, arguments: int, blocks: int, threads: int, launches: int) -> None:
        # C knows no exceptions: the first is stored, and raised once C has come back.
        if self.failure is None:
            try:
                self._launch(launches)
            except BaseException as failure:
                self.failure = failure


def singly(launch: Callable[[int], Any]) -> compiler.Loop | None:
    """Return a C loop that repeats the operation, called like the operation's own loop; None if C cannot call it."""
    if not isinstance(launch, compiler.Loop):
        return None
    operation = _Operation(launch)
    what: Any = (ctypes.c_void_p * 2)(operation.address, operation.arguments)
    what.held = operation
    repeat = compiler.host_function(compiler.JUDGE, "repeat", compiler.defines(DATATYPES["float"], NONE))
    return compiler.Loop(repeat, what, 1, 1)


def _stress_rank(memory: CpuMemory, case: Case, prepared: Prepared, plan: StressPlan) -> Mismatch | None:
    """Make this rank's calls of a case, one after the other, and return what is wrong on this rank."""
    rank, wire = memory.rank, prepared.wire
    operation = _Operation(prepared.loop or prepared.launch)
    where = checking.probe(case, wire)
    pieces = np.array([(first, sent, source, 0) for first, source, sent in case.pieces(rank)], checking.PIECE)
    places = np.zeros(checking.stretches(where), _LIST)

    # Results are copied aside between calls and compared when the room is full: comparing takes longer than a call.
    room = max(1, len(pieces)) * len(places) * int(where["length"]) * case.dtype.itemsize
    capacity = min(plan.calls, max(1, _COPIES // room))
    arrays: dict[str, NDArray[Any]] = {
        "pieces": pieces,
        "stalls": plan.stalls(rank, case.ranks),
        "places": places,
        "copies": np.zeros(capacity * room, np.uint8),
        "verdicts": np.full(len(pieces), checking.CLEAN, checking.VERDICT),
    }

    # The arrays must live until C has come back, since it gets their addresses alone.
    check = np.zeros((), _CHECK)
    for name, array in arrays.items():
        check[name] = array.ctypes.data
    check["operation"], check["arguments"] = operation.address, operation.arguments
    check["send"], check["receive"] = buffers(memory, case, rank)
    check["send_blocks"], check["piece_count"] = case.send_count // case.block, len(pieces)
    check["probe"], check["how"] = where, checking.packed(case.recipe(plan.seed, wire))
    check["wire"], check["bounded"] = checking.packed_wire(wire), bool(wire)
    check["rank"], check["calls"], check["capacity"], check["in_place"] = rank, plan.calls, capacity, case.in_place
    check["ulps"] = case.redop.ulps(case.dtype)
    run = compiler.host_function(compiler.JUDGE, "stress", compiler.defines(case.dtype, case.redop))
    run(ctypes.c_void_p(check.ctypes.data))
    if operation.failure:
        raise operation.failure
    return checking.first_mismatch(case, plan, rank, arrays["verdicts"], with_bits=True, wire=wire)


class CpuChecker:
    """Every rank fills and checks its own buffers; the lowest rank with a failure names it."""

    def __init__(self, team: Team, memory: CpuMemory, launcher: Launcher) -> None:
        self._team, self._memory, self._launcher = team, memory, launcher
        self._rank = team.rank

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """Write this rank's buffers and their guards."""
        send, _ = buffers(self._memory, case, self._rank)
        count = max(case.receive_count, case.send_count * case.in_place)
        home = self._memory.address(Region.RECEIVE, self._rank) + case.misalignment
        ctypes.memset(home, checking.POISON, count * case.dtype.itemsize)
        for guard in self._memory.layout.guards(case):
            ctypes.memset(self._memory.address(guard.region, self._rank) + guard.start, GUARDED, GUARD)
        fill = self._launcher.kernel(compiler.JUDGE, "fill", case.dtype, case.redop)
        recipe = checking.packed(case.recipe(seed, wire))
        fill(np.uint64(send), np.uint64(case.send_count), recipe, np.uint32(self._rank), np.uint64(0))
        self._launcher.synchronize()

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> CheckFailure | None:
        """Compare this rank's result, and agree with the others."""
        self._launcher.synchronize()
        with self._team.agreeing():
            compared = [self._compare(case, seed, piece, wire) for piece in case.pieces(self._rank)]
            mismatch = next((mismatch for mismatch, _ in compared if mismatch), None)
            digest = sum(digest for _, digest in compared)
        mismatches, digests = zip(*self._team.exchange((mismatch, digest)), strict=True)
        return checking.agreed(mismatches, dict(enumerate(digests)))

    def stress(self, case: Case, prepared: Prepared, plan: StressPlan) -> Mismatch | None:
        """Make this rank's calls and judge them, and agree with the others."""
        self._launcher.synchronize()
        with self._team.agreeing():
            mismatch = _stress_rank(self._memory, case, prepared, plan)
            if self._memory.gave_up():
                raise TimedOut("a rank waited in vain for another's flag")
        return next(filter(None, self._team.exchange(mismatch)), None)

    def overrun(self, case: Case) -> Overrun | None:
        """Look at the guards of this rank's buffers, and agree with the others."""
        self._launcher.synchronize()
        overrun = None
        for guard in self._memory.layout.guards(case):
            held = ctypes.string_at(self._memory.address(guard.region, self._rank) + guard.start, GUARD)
            overrun = overrun or guard.overrun(self._rank, held)
        return next(filter(None, self._team.exchange(overrun)), None)

    def _compare(self, case: Case, seed: int, piece: checking.Piece, wire: Wire | None) -> tuple[Mismatch | None, int]:
        """Return the first mismatch of a piece, and the digest of a piece with inexact results."""
        size = case.dtype.itemsize
        got = buffers(self._memory, case, self._rank)[1] + piece[0] * size
        verdict = checking.CLEAN.copy()
        compare = self._launcher.kernel(compiler.JUDGE, checking.entry("compare", wire), case.dtype, case.redop)
        compare(*checking.comparison(case, seed, piece, got, verdict.ctypes.data, wire))
        checking.refuse_unseen(int(verdict["seen"]), case.block)
        if not verdict["wrong"]:
            return None, int(verdict["digest"])
        where = int(verdict["wrong"]), int(verdict["first"])
        element = view(got + where[1] * size, size).copy().view(case.dtype.storage)
        return checking.describe(case, seed, self._rank, piece, where, element, wire=wire), 0


class CpuClock(Clock):
    """Times operations by the clock of each rank; the slowest rank counts."""

    region = 200e-6  # a clock's reading and a barrier take less than a microsecond

    def __init__(self, team: Team, memory: CpuMemory, cache: int | None) -> None:
        self._team, self._memory, self._cache = team, memory, cache
        self._seconds = np.zeros(2)  # seconds of this rank, and the share without a core
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

        # A rank that gave up reports an infinite time, so all ranks raise without another exchange.
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

    def time_each(self, prepared: Prepared, launches: int) -> dict[int, float]:
        """Return the seconds of the launches on this rank, without a barrier."""
        begun = time.perf_counter()
        prepared.launch(launches)
        return {self._team.rank: time.perf_counter() - begun}

    def moment(self, rank: int) -> Moment:
        """Return the current time: earlier calls have ended.  Processes of one machine share this clock."""
        return time.perf_counter()

    def singly(self, prepared: Prepared) -> Prepared | None:
        """Return a loop in C that calls the operation again and again; None if C cannot call it."""
        loop = None if self._memory.crowded else singly(prepared.loop or prepared.launch)
        return Prepared(loop) if loop else None

    def barrier(self) -> Prepared | None:
        """Return a barrier by the package's own flags, the same for all implementations: it measures the machine."""
        if not self._memory.by_flags:
            return None
        kernel, world = _hand_over(self._memory)
        return Prepared(kernel.bind(*world))

    def floor(self, case: Case) -> Sequence[Prepared]:
        """Return ways to read and write the bytes of the case; none if caches may hold it, or it is misaligned."""
        if self._memory.nodes > 1 or case.misalignment or not traffic.beyond(case, self._cache):
            return ()
        kernel = compiler.host_kernel(traffic.KERNELS, "traffic")
        shares = traffic.copies(case, *buffers(self._memory, case, self._memory.rank))
        return [Prepared(kernel.bind(*share)) for share in shares]


def _barrier(team: Team, memory: CpuMemory) -> tuple[mpi.Call | None, Callable[[], object]]:
    """Return a barrier twice, for C and as a Python function: MPI's, or by flags if MPI started no ranks.

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


class CpuLauncher(Launcher):
    """Kernels compiled as C++: every call is done when it returns, and a process is one block of one thread."""

    memory: CpuMemory

    def __init__(self, team: Team, memory: CpuMemory, clock: CpuClock) -> None:
        self._team, self.memory, self._clock = team, memory, clock

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> compiler.HostKernel:
        """Return a kernel compiled as C++."""
        ranks = self.memory.ranks
        unrolled = (f"-DRANKS={ranks}",) if file == "direct.cu" and ranks in _UNROLLED else ()
        return compiler.host_kernel(file, entry, (*compiler.defines(dtype, redop), *unrolled, *self.options, *options))

    def blocks(self, most: int) -> int:
        """Return 1: a process is one block."""
        return 1

    def bind(
        self, kernel: compiler.HostKernel, case: Case, blocks: int, threads: int, *arguments: Any
    ) -> Callable[[int], None]:
        """Return launches for this process's own rank only."""
        world = self.memory.world(case.ranks)
        for rank in range(case.ranks):
            world["send"][rank], world["receive"][rank] = buffers(self.memory, case, rank)
        world["streamed"], world["trace"] = self.streamed, self.memory.layout.fifos.get(tracelog.FIFO, 0)
        return kernel.bind(world, *arguments)

    def bind_one(self, kernel: compiler.HostKernel, rank: int, count: int, *arguments: Any) -> Callable[[], None]:
        """Return one launch."""
        return partial(kernel.bind(*arguments), 1)

    def refuse_apart(self) -> None:
        """Raise Unsupported for ranks on several nodes."""
        if self.memory.nodes > 1:
            raise Unsupported("ranks of several nodes cannot copy into each other's memory")

    def copy(self, rank: int, target: int, source: int, nbytes: int) -> None:
        """Copy with memmove."""
        ctypes.memmove(target, source, nbytes)

    def store(self, rank: int, address: int, data: Array) -> None:
        """Copy an array to an address."""
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def fetch(self, rank: int, address: int, nbytes: int) -> Array:
        """Return a copy of the bytes at an address."""
        return view(address, nbytes).copy()

    def synchronize(self) -> None:
        """Wait for the other ranks; everything that this rank started is done."""
        self._clock.meet()

    @cached_property
    def streamed(self) -> int:
        """*Collective*, measured once: the packs from which kernels write another rank's piece past the caches."""
        memory, pieces = self.memory, []
        most = memory.layout.sizes[Region.RECEIVE] // max(2, memory.ranks)

        # Ranks that share a core, or a single rank, measure nothing.
        if memory.by_flags:
            pieces = [piece for piece in traffic.PIECES if piece <= most]

        # A page lies near the rank that touches it first, which must be its owner.
        view(memory.address(Region.RECEIVE, memory.rank), 2 * max(pieces, default=0))[:] = 0
        self._team.meet()
        return traffic.streamed_from({piece: self._hand_over(piece) for piece in pieces}, PACK)

    def _hand_over(self, piece: int) -> tuple[float, float]:
        """Return seconds to hand over `piece` bytes, with ordinary stores and with stores past the caches."""
        with self._team.agreeing():
            kernel = compiler.host_kernel(traffic.KERNELS, "hand_over")
        world = self.memory.world(self.memory.ranks)
        for rank in range(self.memory.ranks):
            world["receive"][rank] = self.memory.address(Region.RECEIVE, rank)
        ways = []
        for streamed in (traffic.NEVER, traffic.ALWAYS):
            world["streamed"] = streamed
            ways.append(Prepared(kernel.bind(world.copy(), np.uint64(piece // traffic.LINE))))

        # The first reading meets cold caches; of the others the least counts, since what disturbs only adds.
        least = [math.inf, math.inf]
        for reading in range(4):
            for index, way in enumerate(ways):
                seconds = self._clock.time(way, max(2, 2**20 // piece))
                if reading:
                    least[index] = min(least[index], seconds)
        return least[0], least[1]


class CpuLogs:
    """Logs of traced kernels, in each rank's window."""

    def __init__(self, memory: CpuMemory, local: Sequence[int]) -> None:
        self._memory, self._local = memory, local

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """Return an offset of 0: logs and moments use the same clock."""
        return {tuple(self._local): 0.0}

    def take_logs(self, rank: int) -> Array:
        """Return and clear the one log of a rank: a process is one block."""
        start = self._memory.address(Region.WINDOW, rank) + WINDOW_HEAD + self._memory.layout.fifos[tracelog.FIFO]
        log = view(start, tracelog.LOG.itemsize)
        taken = log.copy().view(tracelog.LOG)
        log[:] = 0
        return taken


class CpuProducts(Products):
    """The matrices of this process's rank: NumPy's products, by its BLAS, with one thread a rank."""

    def __init__(self, team: Team, rank: int, size: int) -> None:
        import threadpoolctl  # only steps need it

        # Under an outside launcher BLAS would use OMP_NUM_THREADS or all cores in every rank.
        threadpoolctl.threadpool_limits(1, "blas")
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

    def reset(self) -> None:
        """Start the chain anew."""
        self._last[:] = self._chain.start
        self._next[:] = np.nan
        self._made = 0

    def check(self) -> GemmMismatch | None:
        """Return the wrong element of the lowest rank that has any."""
        with self._team.agreeing():
            failure = self._chain.failure(self._made, self._last)
        return next(filter(None, self._team.exchange(failure)), None)


class CpuCompute(Compute):
    """Everything enqueued is done at once, so nothing has to be ordered."""

    queued = False

    def __init__(self, team: Team, memory: CpuMemory) -> None:
        self._team, self._memory = team, memory

    def products(self, size: int, begin: Callable[[str], None] = lambda phase: None) -> CpuProducts:
        """Return the matrices of this process's rank."""
        return CpuProducts(self._team, self._team.rank, size)

    def refuse_given_up(self) -> None:
        """Raise TimedOut if a kernel of this rank waited in vain."""
        if self._memory.gave_up():
            raise TimedOut("a rank waited in vain for another's flag")


class CpuPlatform(Platform):
    """One rank of the run, as its own process sees it."""

    name = "cpu"
    cache: int | None = None  # unknown: other programs may use a core's cache
    memory: CpuMemory
    clock: CpuClock
    launcher: CpuLauncher

    def __init__(self, sweep: Sweep, layout: MemoryLayout, team: Team) -> None:
        self.local: Sequence[int] = team.local(sweep.ranks)
        self.comm, self.ranks, self.layout = team.comm, team.size, layout
        self.team: Team = team
        # One machine may have the memory, or a compiler, where another has not.
        with team.agreeing():
            self.memory = memory = CpuMemory(team, layout, sweep.spin)
        view(memory.address(Region.WINDOW, team.rank), layout.sizes[Region.WINDOW])[:] = 0
        self._topology = discover(self.ranks, usable=memory.window.cores)
        caches = self._topology.host.caches if self._topology.host else ()
        last_caches = caches[-1].nbytes * caches[-1].instances if caches else None
        self.clock = CpuClock(team, memory, last_caches)
        self.launcher = CpuLauncher(team, memory, self.clock)
        self.checker = CpuChecker(team, memory, self.launcher)
        self.logs = CpuLogs(memory, self.local)
        self.compute = CpuCompute(team, memory)
        self.hardware = cpus(memory.crowded)
        self.note = Note(oversubscribed=memory.crowded, spin="" if sweep.spin == "auto" else sweep.spin)

        # Every window is zeroed before anyone's kernel writes into it.
        team.meet()

    def topology(self) -> TopologyPart:
        """Return the sockets, cores and caches under the ranks."""
        streamed = self.launcher.streamed
        return TopologyPart.of(self._topology, self.memory.nodes, streamed * PACK if streamed != traffic.NEVER else 0)

    def versions(self) -> dict[str, str]:
        """Return the versions of the MPI library, its binding and the compiler of the kernels."""
        versions = {"compiler": compiler.compiler_version()}
        if self.comm:
            from mpi4py import MPI, __version__

            library = MPI.Get_library_version().splitlines()[0].strip("\0 ")
            versions = {"mpi": " ".join(library.split()), "mpi4py": __version__, **versions}
        return versions

    def waits(self) -> str:
        """Return which rank's kernel waits for which."""
        return self.memory.waits()

    def close(self) -> bool:
        """Unmap the window, once nobody's kernels use it."""
        self.team.meet()
        self.memory.window.close()
        return True


def open_platform(sweep: Sweep, layout: MemoryLayout, team: Team) -> Platform:
    """Make this process one of the ranks that a launcher started."""
    assert not isinstance(team, Alone), "a rank is a process"
    return CpuPlatform(sweep, layout, team)
