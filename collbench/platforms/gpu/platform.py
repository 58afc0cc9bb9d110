"""Ranks as GPUs, through CuPy; more ranks than GPUs share them.

Started alone, one process holds all ranks, and rank r lives on device r modulo their number.  The ranks of one device
run a hand-written kernel together, as one cooperative grid: the only arrangement in which CUDA promises that blocks
which wait for each other all get to run.  Under an outside launcher each process holds one rank.  What differs lies
in three objects: `Team` (how processes agree), `Placement` (which rank is where) and `RankMemory` (where memory is).

Logs of traced kernels go by %globaltimer, a clock for tools of which PTX promises nothing between two GPUs: theirs are
milliseconds apart and drift.  So it is held against the host's clock, GPU by GPU.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import numpy as np

from collbench.cases import Sweep
from collbench.datatypes import DATATYPES, NONE, Array
from collbench.errors import CaseFailed, PlatformError, Unsupported
from collbench.platforms import tracelog
from collbench.platforms.checking import WITH_DELAYS, lost
from collbench.platforms.cost import of_product
from collbench.platforms.gpu import discover, nccl
from collbench.platforms.gpu.check import GpuChecker
from collbench.platforms.gpu.compute import GpuCompute
from collbench.platforms.gpu.cuda import FIRST, USUAL, Cuda, Stream, load_cupy
from collbench.platforms.gpu.launch import GpuLauncher, KernelCache
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.gpu.nccl.communicators import Communicators
from collbench.platforms.gpu.nccl.paths import PathMemory
from collbench.platforms.gpu.placement import bind_near, place_ranks
from collbench.platforms.gpu.probe import STARTUP
from collbench.platforms.gpu.timing import GpuClock, StartGate, closest
from collbench.platforms.interface import FastPath, Platform
from collbench.platforms.layout import WINDOW_HEAD, MemoryLayout, Region
from collbench.platforms.processes import Alone, Team
from collbench.results import Note
from collbench.runfile.header import TopologyPart

_SHARE = 0.8  # of --timeout: then NCCL is named before the supervisor's timeout ends


class GpuLogs:
    """Logs of traced kernels, in the windows of their ranks."""

    def __init__(self, launcher: GpuLauncher) -> None:
        self._launcher, self._cuda, self._places = launcher, launcher.cuda, launcher.places
        self._memory, self._streams = launcher.memory, launcher.streams

    def log_clocks(self) -> Mapping[tuple[int, ...], float]:
        """Return nothing to be added on one GPU; those of several are held against the host's, to some microseconds."""
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

            # Before memory is touched and threads are made, which stay where they begin.
            if places.processes > 1 and sweep.bind == "core":
                bind_near(team, places)
            nccl.apply(nccl.environment(places, sweep.sampling.graph))
            self.memory = memory = RankMemory(cuda, team, places, layout)

            # In steps collectives go before what the same ranks compute meanwhile.
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
        self._paths: dict[str, Self | str] = {}  # by name; where there can be none, the reason
        self.ranks, self.local, self.note = sweep.ranks, places.local, Note(shared=places.shared)
        self.cache: int | None = min(place.cache for place in places.places) // places.most_sharing
        self.hardware = of_product(places.gpus[0].name, sweep.ranks, len(places.gpus))

    def with_delays(self, seconds: float) -> Self:
        """Return the same platform with an option of the compiler, and the time that kernels lose."""
        return self.altered(self.memory, (WITH_DELAYS,), lost(seconds))

    def on_path(self, path: FastPath) -> Self:
        """*Collective*: return the same ranks with buffers that NCCL knows beforehand, made when first asked for.

        Unsupported with NCCL's reason where it cannot; it is asked once.
        """
        if path.name not in self._paths:
            try:
                self._paths[path.name] = self._open_path(path)
            except Unsupported as reason:
                self._paths[path.name] = str(reason)
        opened = self._paths[path.name]
        if isinstance(opened, str):
            raise Unsupported(opened)
        return opened

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
            other.comm.end()  # what serves nobody takes no memory
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

            # NCCL lets go of a communicator once all processes of a node do: where one cannot, none waits for it.
            together = all(self.team.exchange(healthy))
            with suppress(CaseFailed, *self._cuda.errors):
                if together:
                    for comm in self._comms:
                        comm.destroy()
                    if self._path_memory:
                        self._path_memory.close()
                self._gate.free()
            self.memory.close()
        return True


def open_platform(sweep: Sweep, layout: MemoryLayout, team: Team) -> Platform:
    """Open all ranks on the GPUs of this machine; under an outside launcher, this process's rank on one of them."""
    with team.agreeing():
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
            raise PlatformError(
                "with CUDA_LAUNCH_BLOCKING a rank would wait for ever for one not yet launched: unset it"
            )
        return GpuPlatform(Cuda(load_cupy()), sweep, layout, team)
