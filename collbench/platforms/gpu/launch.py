"""Compilation and launch of GPU kernels, cooperative if ranks wait mutually."""

from collections.abc import Callable
from typing import Any

import numpy as np

from collbench.cases import Case
from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import CaseFailed, PlatformError, Unsupported
from collbench.platforms import compiler, tracelog
from collbench.platforms.gpu.cuda import Cuda, GpuKernel, Stream, compile_kernel
from collbench.platforms.gpu.discover import Placement
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.gpu.timing import GpuClock
from collbench.platforms.interface import Launcher
from collbench.platforms.layout import MAX_RANKS, Region, buffers, world_type
from collbench.platforms.processes import Team
from collbench.topology.discovered import Probed

SPINS = 2**23
"""Polls before a wait gives up, after 4 to 8 seconds: a poll is a load that misses the caches, and takes 0.5 to 1 us.
That is long after any live rank has answered, and well before the supervisor's timeout ends.

Processes that share a GPU take turns of a few milliseconds, and a rank polls only in its own turns. With n processes
the limit lasts n times as long, so it needs no change."""

FEWEST = 8  # ranks that a World always has room for
_UNROLLED = (2, 4, 8)  # numbers of ranks that kernels know when they are compiled: those of most nodes
_THREADS = 256  # in a block of the kernels that take any grid
_WAVES = 4  # blocks of this size per multiprocessor


class KernelCache:
    """The kernels of a run, each compiled once for the devices of this process."""

    def __init__(self, cuda: Cuda, places: Placement) -> None:
        self.cuda, self.places = cuda, places
        self._compiled: dict[tuple[str, ...], GpuKernel] = {}

    def get(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> GpuKernel:
        """Return an entry of `kernels/<file>`; kernels with a World are compiled for the run's number of ranks."""
        if "PARAMETER(World)" in compiler.source(file):
            options = (*defines(len(self.places.places), self.places.one_device), *options)
        key = file, entry, dtype.name, redop.name, *options
        if key not in self._compiled:
            devices = self.places.devices
            self._compiled[key] = compile_kernel(self.cuda, devices, file, entry, dtype, redop, options)
        return self._compiled[key]


class GpuLauncher(Launcher):
    """Kernels, copies and events on the devices of this process."""

    memory: RankMemory

    def __init__(self, team: Team, memory: RankMemory, kernels: KernelCache, probed: Probed, clock: GpuClock) -> None:
        self.cuda, self.places, self.team, self.memory = kernels.cuda, kernels.places, team, memory
        self.kernels, self.clock, self.streams, self._probed = kernels, clock, clock.by_rank, probed

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> GpuKernel:
        """Return a kernel compiled by NVRTC, or from CuPy's cache; a kernel with a World is for these ranks."""
        return self.kernels.get(file, entry, dtype, redop, *self.options, *options)

    def blocks(self, most: int) -> int:
        """Return the blocks of every rank: one per multiprocessor of a rank's share of the most crowded GPU."""
        return max(1, min(most, self.places.multiprocessors // self.places.most_sharing))

    def bind(self, kernel: GpuKernel, case: Case, blocks: int, threads: int, *arguments: Any) -> Callable[[int], None]:
        """Return cooperative launches, one a device, on the stream of its first rank; Unsupported if they can't run."""
        if case.ranks > MAX_RANKS:
            raise Unsupported(f"hand-written kernels take at most {MAX_RANKS} ranks")
        self.refuse_apart()

        # CUDA guarantees co-resident blocks only within one cooperative grid: hence one grid per device.
        launches = []
        for device in self.places.devices:
            held = self._world(case, device, blocks), *arguments
            mine, function = self.places.on(device), self._on(kernel, device)
            self._refuse_crowd(kernel.name, function, device, blocks, threads)
            launches.append((self.streams[mine[0]], function, (blocks * len(mine),), (threads,), held))

        def launch(count: int) -> None:
            self.clock.may_give_up = True
            for _ in range(count):
                for rank_stream, function, grid, block, held in launches:
                    function(grid, block, held, stream=rank_stream.use(), enable_cooperative_groups=True)

        return launch

    def refuse_apart(self) -> None:
        """Raise Unsupported for GPUs that cannot use each other's memory."""
        for (first, second), (works, reason) in self._probed.items():
            if not works:
                raise Unsupported(f"GPU {first} cannot use the memory of GPU {second}: {reason}")

    def bind_one(
        self, kernel: GpuKernel, rank: int, count: int, *arguments: Any, on: Stream | None = None
    ) -> Callable[[], None]:
        """Return a launch on the rank's stream, or another of its device, with threads for `count` elements."""
        rank_stream = on or self.streams[rank]
        function = self._on(kernel, rank_stream.device)
        most = _WAVES * self.cuda.multiprocessors(rank_stream.device)
        grid = (max(1, min(most, -(-count // _THREADS))),)
        return lambda: function(grid, (_THREADS,), arguments, stream=rank_stream.use())

    def copy(self, rank: int, target: int, source: int, nbytes: int) -> None:
        """Copy by the copy engine; the driver finds the devices by address, and stages without peer access."""
        runtime = self.cuda.runtime
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDefault, self.streams[rank].use().ptr)

    def store(self, rank: int, address: int, data: Array) -> None:
        """Write to the device on the rank's own stream, and wait for that."""
        # A synchronous copy of pageable memory may return once the bytes are staged, and our non-blocking streams do
        # not wait for the default stream that finishes it.
        stream, runtime = self.streams[rank].enter(), self.cuda.runtime
        runtime.memcpyAsync(address, data.ctypes.data, data.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()

    def fetch(self, rank: int, address: int, nbytes: int) -> Array:
        """Return bytes after the rank's stream has finished: the copy itself waits for no stream of ours."""
        self.streams[rank].enter().synchronize()
        return self.streams[rank].fetch(address, np.zeros(nbytes, np.uint8))

    def mark(self, rank: int) -> Any:
        """Return an event on the rank's stream."""
        return self.streams[rank].mark()

    def after(self, rank: int, event: Any) -> None:
        """Make the rank's stream wait for an event, also of another device."""
        self.streams[rank].enter().wait_event(event)

    def join_streams(self) -> None:
        """Make what comes next on any stream of a device wait for all that came before on the device's others."""
        for device in self.places.devices:
            together = [self.streams[rank] for rank in self.places.on(device)]
            marks = [(rank_stream, rank_stream.mark()) for rank_stream in together if len(together) > 1]
            for rank_stream in together:
                for other, mark in marks:
                    if other is not rank_stream:
                        rank_stream.enter().wait_event(mark)

    def synchronize(self) -> None:
        """Wait for every rank's stream, and for every process.

        Host-driven implementations pay for it at every step, so it does not ask whether a kernel gave up: `time` does.
        """
        with self.team.agreeing(), self.cuda.failing_as(CaseFailed, "while it ran"):
            self.clock.wait()

    def _on(self, kernel: GpuKernel, device: int) -> Any:
        return kernel.functions[self.places.devices.index(device)]

    def _refuse_crowd(self, name: str, function: Any, device: int, blocks: int, threads: int) -> None:
        """Raise Unsupported for a grid that a device does not hold at once."""
        # CuPy would shrink such a grid, and leave some ranks out.
        here = self.places.sharing(device)
        with self.cuda.failing_as(PlatformError, f"{name} cannot be launched"):
            room = self.cuda.resident_blocks(function, device, threads)
        if blocks * here > room:
            raise Unsupported(
                f"{here} ranks x {blocks} blocks of {threads} threads cannot run at once on GPU {device}, "
                f"which holds {room}: use fewer ranks for each GPU"
            )

    def _world(self, case: Case, device: int, blocks: int) -> Array:
        """Return what the kernel on a device must know of the other ranks."""
        # Every launch passes the World as an argument, so it has room for few more ranks than needed.
        world = np.zeros((), world_type(room_for(case.ranks)))
        for rank in range(case.ranks):
            world["window"][rank] = self.memory.address(Region.WINDOW, rank)
            world["send"][rank], world["receive"][rank] = buffers(self.memory, case, rank)
        world["ranks"], world["first"] = case.ranks, self.places.on(device)[0]
        world["stride"], world["blocks"] = len(self.places.devices), blocks
        world["spins"], world["trace"] = SPINS, self.lost or self.memory.layout.fifos.get(tracelog.FIFO, 0)
        return world


def room_for(ranks: int) -> int:
    """Number of ranks that a World has room for: a power of two, so that few kernels must be compiled."""
    return min(MAX_RANKS, max(FEWEST, 1 << (ranks - 1).bit_length()))


def defines(ranks: int, one_device: bool) -> tuple[str, ...]:
    """Return the options of a kernel with waiting ranks, explained in kernels/world.cuh and flags.cuh."""
    known = (f"-DRANKS={ranks}",) if ranks in _UNROLLED else ()
    return (f"-DMAX_RANKS={room_for(ranks)}", *known, *(("-DONE_DEVICE",) if one_device else ()))
