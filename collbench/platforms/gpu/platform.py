"""The GPU platform, through CuPy; several ranks may share a GPU.

Without a launcher one process holds all ranks, and rank r uses device r modulo the number of devices. The ranks of a
device run a hand-written kernel as one cooperative grid, since only that guarantees that blocks which wait for each
other all run. Under an outside launcher each process holds one rank. Three objects differ between these cases:
`Team` (agreement), `Placement` (devices of ranks) and `RankMemory` (addresses).

Traced kernels log times of %globaltimer. On different GPUs it is milliseconds apart and drifts, so it is compared
with the host's clock for each GPU.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Self

import numpy as np

from collbench.cases import Sweep
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS, Array
from collbench.errors import CaseFailed, PlatformError, Unsupported
from collbench.platforms import checking, compiler, tracelog
from collbench.platforms.checking import WITH_DELAYS, lost
from collbench.platforms.cost import of_product
from collbench.platforms.gpu import discover, nccl
from collbench.platforms.gpu.checker import GpuChecker
from collbench.platforms.gpu.cuda import FIRST, USUAL, Cuda, Stream, load_cupy, why
from collbench.platforms.gpu.discover import bind_near, place_ranks
from collbench.platforms.gpu.launch import GpuLauncher, KernelCache
from collbench.platforms.gpu.memory import RankMemory, SwitchedRankMemory
from collbench.platforms.gpu.nccl.communicators import Communicators
from collbench.platforms.gpu.nccl.paths import PathMemory
from collbench.platforms.gpu.probe import STARTUP
from collbench.platforms.gpu.timing import GpuClock, StartGate, closest
from collbench.platforms.interface import Chain, Compute, FastPath, Moment, Platform, Products
from collbench.platforms.layout import WINDOW_HEAD, MemoryLayout, Region
from collbench.platforms.processes import Alone, Team
from collbench.results import Note
from collbench.results.facts import GemmMismatch
from collbench.runfile.schema import TopologyPart

_SHARE = 0.8  # of --timeout: NCCL is reported as hung before the supervisor's timeout ends


class GpuLogs:
    """Logs of traced kernels, in the windows of their ranks."""

    def __init__(self, launcher: GpuLauncher) -> None:
        self._launcher, self._cuda, self._places = launcher, launcher.cuda, launcher.places
        self._memory, self._streams = launcher.memory, launcher.streams

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """Return the offset of each GPU's log clock from the host's, to some microseconds; 0 for a single GPU."""
        alike = [tuple(self._places.on(device)) for device in self._places.devices]
        return {ranks: self._log_clock(ranks[0]) if len(self._places.gpus) > 1 else 0.0 for ranks in alike}

    def take_logs(self, rank: int) -> Array:
        """Return and clear the logs of a rank's blocks."""
        place = self._place(rank)
        taken = self._streams[rank].fetch(place, np.zeros(tracelog.NBYTES // tracelog.LOG.itemsize, tracelog.LOG))
        self._clear(place, tracelog.NBYTES)
        return taken

    def _log_clock(self, rank: int) -> float:
        """Return seconds that a device's clock is behind the host's; a kernel writes the clock into the log."""
        place, rank_stream = self._place(rank), self._streams[rank]
        kernel = self._launcher.kernels.get("clock.cu", "tell_clock", DATATYPES["float"], NONE)
        launch, clock = self._launcher.bind_one(kernel, rank, 1, np.uint64(place)), np.zeros(1, np.uint64)

        def look() -> None:
            launch()
            rank_stream.enter().synchronize()

        at, nanoseconds, _ = closest(look, lambda seen: rank_stream.fetch(place, clock)[0])
        self._clear(place, clock.nbytes)
        return at - 1e-9 * float(nanoseconds)

    def _clear(self, place: int, nbytes: int) -> None:
        self._cuda.runtime.memset(place, 0, nbytes)
        self._cuda.runtime.deviceSynchronize()

    def _place(self, rank: int) -> int:
        return self._memory.address(Region.WINDOW, rank) + WINDOW_HEAD + self._memory.layout.fifos[tracelog.FIFO]


class _Matrices:
    """The matrices of one rank, on its device."""

    def __init__(self, launcher: GpuLauncher, chain: Chain, begin: Callable[[str], None]) -> None:
        begin(f"making matrices of rank {chain.rank}")
        self._cupy, self._chain, self._launcher = launcher.cuda.cupy, chain, launcher
        self.collectives = launcher.streams[chain.rank]
        self.computing = Stream(launcher.cuda, self.collectives.device, USUAL)
        self._compare = launcher.kernel(compiler.JUDGE, "compare_product", DATATYPES["float"], REDUCTIONS["sum"])
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)  # cuBLAS takes them by address
        with self.computing.enter():
            self._factor, self._start = self._cupy.asarray(chain.factor), self._cupy.asarray(chain.start)
            self._last, self._next = self._cupy.empty_like(self._start), self._cupy.empty_like(self._start)
        self.reset()
        begin(f"loading cuBLAS, rank {chain.rank}")
        with self.computing.enter():
            self._cupy.cuda.get_cublas_handle()

        # The first product loads the kernel, for which CUDA may wait until all others are done.
        begin(f"first product of rank {chain.rank}")
        self.enqueue(1)
        self.computing.enter().synchronize()

    def enqueue(self, count: int) -> None:
        """Enqueue `count` products."""
        # Calls cuBLAS itself: CuPy's matmul costs the host several times as much, and cannot be captured in a graph.
        # cuBLAS stores columns, so what it multiplies are transposes, in the other order.
        size, factor = self._chain.size, self._factor.data.ptr
        scale = self._one.ctypes.data, self._zero.ctypes.data
        with self.computing.enter():
            handle, sgemm = self._cupy.cuda.get_cublas_handle(), self._cupy.cuda.cublas.sgemm
            for _ in range(count):
                last, result = self._last.data.ptr, self._next.data.ptr
                sgemm(handle, 0, 0, size, size, size, scale[0], last, size, factor, size, scale[1], result, size)
                self._last, self._next = self._next, self._last
        self._made += count

    def reset(self) -> None:
        with self.computing.enter():
            self._last[...] = self._start
            self._next.fill(float("nan"))
        self._made = 0

    def failure(self) -> GemmMismatch | None:
        """Return the first wrong element, or None."""
        # Compared on the device: the host would take a tenth of a second. Only a wrong matrix is copied.
        size = self._chain.size
        with self.computing.enter() as stream:
            rows = self._cupy.asarray(self._chain.rows(self._made))
            verdict = self._cupy.asarray(checking.CLEAN.reshape(1).view(np.uint64))
            matrices = (np.uint64(array.data.ptr) for array in (self._last, self._start, rows))
            arguments = *matrices, np.uint32(size), np.uint64(verdict.data.ptr)
            self._launcher.bind_one(self._compare, self._chain.rank, size**2, *arguments, on=self.computing)()
            seen, wrong, *_ = self._cupy.asnumpy(verdict, stream=stream).tolist()
            checking.refuse_unseen(seen, size**2)
            return self._chain.failure(self._made, self._cupy.asnumpy(self._last, stream=stream)) if wrong else None


class GpuProducts(Products):
    """The matrices of this process's ranks."""

    def __init__(self, launcher: GpuLauncher, size: int, begin: Callable[[str], None]) -> None:
        self._cuda, self._team, self._moment = launcher.cuda, launcher.team, launcher.clock.clocks.moment
        self._of = {rank: _Matrices(launcher, Chain(size, rank), begin) for rank in launcher.streams}

    @property
    def streams(self) -> list[Stream]:
        """The computing streams."""
        return [matrices.computing for matrices in self._of.values()]

    def enqueue(self, rank: int, count: int) -> None:
        """On the rank's computing stream."""
        self._of[rank].enqueue(count)

    def moment(self, rank: int) -> Moment:
        """Return an event on the computing stream."""
        return self._moment(self._of[rank].computing)

    def hand_over(self, rank: int) -> None:
        """Make the stream of the collectives wait for an event of the computing stream."""
        matrices = self._of[rank]
        matrices.collectives.enter().wait_event(matrices.computing.mark())

    def take_over(self, rank: int) -> None:
        """Make the computing stream wait for an event of the collectives' stream."""
        matrices = self._of[rank]
        mark = matrices.collectives.mark()
        matrices.computing.enter().wait_event(mark)

    def reset(self) -> None:
        """Reset the products on every rank's stream."""
        for matrices in self._of.values():
            matrices.reset()

    def check(self) -> GemmMismatch | None:
        """Return the wrong element of the lowest rank that has one, or None."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while ranks computed"):
            failure = next(filter(None, (matrices.failure() for matrices in self._of.values())), None)
            return next(filter(None, self._team.exchange(failure)), None)


class GpuCompute(Compute):
    """The ranks of a device run a kernel together, on the stream of the first: the others' streams wait for it."""

    queued = True

    def __init__(self, launcher: GpuLauncher) -> None:
        self._launcher, self._cuda, self._clock = launcher, launcher.cuda, launcher.clock
        self._products: dict[int, GpuProducts] = {}  # by size; the last one that was asked for

    def products(self, size: int, begin: Callable[[str], None] = lambda phase: None) -> GpuProducts:
        """Return matrices of this process's ranks; PlatformError, with the fix, without memory or cuBLAS.

        Calls with the same size return the same matrices, so further rounds need no more memory.
        """
        if size not in self._products:
            self._products.clear()
            failures = self._cuda.cupy.cuda.compiler.CompileException, RuntimeError, ImportError, MemoryError, OSError
            try:
                made = GpuProducts(self._launcher, size, begin)
            except failures as error:
                raise PlatformError(f"matrices of {size} x {size} cannot be multiplied: {why(error)}") from error
            self._clock.besides = made.streams
            self._products[size] = made
        return self._products[size]

    def join_streams(self) -> None:
        """Make every stream of a device wait for all its others."""
        self._launcher.join_streams()

    def stepping(self) -> AbstractContextManager[None]:
        """Return a context that turns CUDA's errors into CaseFailed; after a sticky error every call raises."""
        return self._cuda.failing_as(CaseFailed, "while a step was carried out")

    def refuse_given_up(self) -> None:
        """Raise CaseFailed if a kernel of a local rank waited in vain."""
        self._clock.refuse_given_up()


class GpuPlatform(Platform):
    """The ranks of the run that this process holds, and where all others are; made inside `team.agreeing()`."""

    name = "gpu"
    memory: RankMemory
    launcher: GpuLauncher
    clock: GpuClock

    def __init__(self, cuda: Cuda, sweep: Sweep, layout: MemoryLayout, team: Team) -> None:
        self._cuda, self.team, self.layout = cuda, team, layout
        with cuda.failing_as(PlatformError, "the GPUs could not be set up"):
            self._places = places = place_ranks(cuda, team, sweep.ranks)

            # Bound first: pages and threads stay on the node of their first use.
            if places.processes > 1 and sweep.bind == "core":
                bind_near(team, places)
            nccl.apply(nccl.environment(places, sweep.sampling.graph))
            self.memory = memory = RankMemory(cuda, team, places, layout)

            # In training steps, collectives have priority over concurrent computing.
            priority = FIRST if any(sweep.works) else USUAL
            self.streams = streams = {rank: Stream(cuda, places.device[rank], priority) for rank in places.local}
            kernels = KernelCache(cuda, places)
            gate = kernels.get("gate.cu", "gate", DATATYPES["float"], NONE).functions[0]
            self._gate = StartGate(cuda, gate, places.devices[0])
            self._probed = discover.probe_peers(cuda, places.devices)
        self.clock = GpuClock(cuda, team, streams, self._gate, memory, sweep.sampling.graph)
        self.launcher = GpuLauncher(team, memory, kernels, self._probed, self.clock)
        self.checker = GpuChecker(self.launcher)
        self.logs = GpuLogs(self.launcher)
        self.compute = GpuCompute(self.launcher)
        # Among many processes, with no supervisor, NCCL may take longer.
        timeout = sweep.sampling.timeout
        self._timeout = _SHARE * timeout if isinstance(team, Alone) else max(STARTUP, timeout)
        self.comm = Communicators(self.launcher, self._timeout)
        self._comms = [self.comm]
        self._path_memory: PathMemory | None = None
        self._other_memory: dict[str, Self | str] = {}  # by path, or "switch"; the reason (str) if unsupported
        self.ranks, self.local, self.note = sweep.ranks, places.local, Note(shared=places.shared)
        self.cache: int | None = min(place.cache for place in places.places) // places.most_sharing
        self.hardware = of_product(places.gpus[0].name, sweep.ranks, len(places.gpus))

    def with_delays(self, seconds: float) -> Self:
        """Return the same platform with kernels that delay themselves, by a time that depends on `seconds`."""
        return self.altered(self.memory, (WITH_DELAYS,), lost(seconds))

    def on_path(self, path: FastPath) -> Self:
        """*Collective*: return the same ranks with buffers registered with NCCL; Unsupported with its reason."""
        return self._with_memory(path.name, partial(self._open_path, path))

    def on_switch(self) -> Self:
        """*Collective*: return the same ranks with multicast memory (NVLS), for hand-written kernels alone."""
        return self._with_memory("switch", self._open_switch)

    def _with_memory(self, name: str, make: Callable[[], Self]) -> Self:
        """Return the same ranks with other memory, made when first asked for; a refusal is final."""
        if name not in self._other_memory:
            try:
                self._other_memory[name] = make()
            except Unsupported as reason:
                self._other_memory[name] = str(reason)
        opened = self._other_memory[name]
        if isinstance(opened, str):
            raise Unsupported(opened)
        return opened

    def _open_switch(self) -> Self:
        memory = SwitchedRankMemory(self._cuda, self.team, self._places, self.layout)
        self.clock.memories.append(memory)
        other = self.altered(memory)
        other.checker, other.logs = GpuChecker(other.launcher), GpuLogs(other.launcher)
        return other

    def _open_path(self, path: FastPath) -> Self:
        self.comm.refuse()
        if self._path_memory is None:
            self._path_memory = PathMemory(self._cuda, self.team, self.comm.functions, self._places, self.layout)
        other = self.altered(self._path_memory)
        other.checker, other.comm = GpuChecker(other.launcher), Communicators(self.launcher, self._timeout, path)
        self._comms.append(other.comm)
        try:
            other.comm.register(self._path_memory)
        except Unsupported:
            other.comm.end()  # unused buffers take no memory
            raise
        return other

    def topology(self) -> TopologyPart:
        """Return every rank's GPU and node, and what joins them."""
        with self.team.agreeing(), self._cuda.failing_as(PlatformError, "the GPUs could not be described"):
            return discover.of_run(self.team, self._places, self.memory.refusal, self._probed)

    def versions(self) -> dict[str, str]:
        """Return the versions of CuPy and what it found: the CUDA it was built with, and the newest the driver runs."""
        cuda, names = self._cuda, dict.fromkeys(place.name for place in self._places.gpus)
        versions = {"cupy": cuda.cupy.__version__, "gpu": ", ".join(names)}
        for name, number in (("cuda", cuda.runtime.runtimeGetVersion()), ("driver", cuda.runtime.driverGetVersion())):
            versions[name] = f"{number // 1000}.{number % 1000 // 10}"
        versions["nvrtc"] = ".".join(map(str, cuda.compiler_version()))
        return versions | ({"nccl": nccl.in_words(cuda.nccl.get_version())} if cuda.nccl.available else {})

    def waits(self) -> str:
        """Return in which call the ranks hang, and after how many launches."""
        return f"it hangs in {self.clock.doing}" if self.clock.doing else ""

    def close(self) -> bool:
        """Give everything back; after a failure CUDA refuses even that, and the process ends anyway."""
        with self.team.agreeing():
            if self.team.any_of(any(comm.hung for comm in self._comms)):
                return False  # each call of CUDA could wait for ever for what hangs
            healthy = False
            with suppress(*self._cuda.errors):
                self.clock.wait()
                self.clock.drop_graphs()
                healthy = True

            # ncclCommDestroy returns once all processes of a node call it: if one process cannot, none does.
            together = all(self.team.exchange(healthy))
            with suppress(CaseFailed), self._cuda.failing_as(CaseFailed, "while NCCL ended"):
                if together:
                    for comm in self._comms:
                        comm.destroy()
                    if self._path_memory:
                        self._path_memory.close()
                self._gate.free()
            for memory in self.clock.memories:
                memory.close()
        return True


def open_platform(sweep: Sweep, layout: MemoryLayout, team: Team) -> Platform:
    """Open all ranks on the GPUs of this machine; under an outside launcher, this process's rank on one of them."""
    with team.agreeing():
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
            raise PlatformError(
                "with CUDA_LAUNCH_BLOCKING a rank would wait for ever for one not yet launched: unset it"
            )
        return GpuPlatform(Cuda(load_cupy()), sweep, layout, team)
