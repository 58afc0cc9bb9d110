"""How kernels are compiled for a run and launched: if ranks wait for each other, as one cooperative grid a device."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from collbench.cases import Case
from collbench.datatypes import Array, Datatype, Reduction
from collbench.errors import PlatformError, Unsupported
from collbench.platforms import kernels, tracelog
from collbench.platforms.gpu.cuda import Cuda, GpuKernel, Queue, compile_kernel
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.gpu.peers import Probed
from collbench.platforms.gpu.placement import Placement
from collbench.platforms.layout import MAX_RANKS, Region, buffers, world_type

SPINS = 2**23
"""Tries before a wait gives up.  A try is a load that must miss the caches, half a microsecond to one: 4 to 8 seconds,
long after any rank that lives has answered and well before the supervisor's patience ends.

Processes that share a GPU run in turns of a few milliseconds, and tries pass in a rank's own turns only.  While it
makes them, each of the others has had as long a turn: the bound needs no change, it only lasts as many times longer."""

FEWEST = 8  # ranks that a World always has room for
_UNROLLED = (2, 4, 8)  # numbers of ranks that kernels know when they are compiled: those of most nodes
_THREADS = 256  # in a block of the kernels that take any grid
_WAVES = 4  # such blocks for each multiprocessor


class KernelCache:
    """The kernels of a run, each compiled once for the devices of this process."""

    def __init__(self, cuda: Cuda, places: Placement) -> None:
        self._cuda, self._places = cuda, places
        self._compiled: dict[tuple[str, ...], GpuKernel] = {}

    def get(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> GpuKernel:
        """An entry of `kernels/<file>`; one that is told of other ranks is compiled for those of the run."""
        if kernels.knows_ranks(file):
            options = (*defines(len(self._places.places), self._places.one_device), *options)
        key = file, entry, dtype.name, redop.name, *options
        if key not in self._compiled:
            devices = self._places.devices
            self._compiled[key] = compile_kernel(self._cuda, devices, file, entry, dtype, redop, options)
        return self._compiled[key]


class Launcher:
    """Launches on the devices of this process."""

    def __init__(
        self, cuda: Cuda, memory: RankMemory, places: Placement, queues: Mapping[int, Queue], probed: Probed
    ) -> None:
        self._cuda, self._memory, self._places = cuda, memory, places
        self._queues, self._probed = queues, probed
        self.waits = False  # whether a kernel that may give up was launched

    def at(self, memory: RankMemory) -> "Launcher":
        """The same, for buffers that lie elsewhere."""
        other = copy.copy(self)
        other._memory = memory
        return other

    def bind(
        self, kernel: GpuKernel, case: Case, blocks: int, threads: int, *arguments: Any, lost: int = 0
    ) -> Callable[[int], None]:
        """One cooperative launch a device, on the stream of its first rank; Unsupported where it would not run.

        `lost`: the nanoseconds of kernels that hesitate.
        """
        self._refuse(case)
        worlds = [(device, self._world(case, device, blocks, lost)) for device in self._places.devices]
        launches = [self._launch(kernel, device, blocks, threads, (world, *arguments)) for device, world in worlds]

        def launch(count: int) -> None:
            self.waits = True
            for _ in range(count):
                for queue, function, grid, block, held in launches:
                    function(grid, block, held, stream=queue.use(), enable_cooperative_groups=True)

        return launch

    def bind_one(self, kernel: GpuKernel, rank: int, count: int, *arguments: Any) -> Callable[[], None]:
        """A launch on the rank's stream, with threads for `count` elements."""
        queue = self._queues[rank]
        function = self._on(kernel, queue.device)
        most = _WAVES * self._cuda.multiprocessors(queue.device)
        grid = (max(1, min(most, -(-count // _THREADS))),)
        return lambda: function(grid, (_THREADS,), arguments, stream=queue.use())

    def _on(self, kernel: GpuKernel, device: int) -> Any:
        return kernel.functions[self._places.devices.index(device)]

    def _refuse(self, case: Case) -> None:
        if case.ranks > MAX_RANKS:
            raise Unsupported(f"hand-written kernels take at most {MAX_RANKS} ranks")
        for (first, second), (works, reason) in self._probed.items():
            if not works:
                raise Unsupported(f"GPU {first} cannot use the memory of GPU {second}: {reason}")

    def _launch(
        self, kernel: GpuKernel, device: int, blocks: int, threads: int, arguments: tuple[Any, ...]
    ) -> tuple[Queue, Any, tuple[int], tuple[int], tuple[Any, ...]]:
        """For the ranks of a device: stream, function, grid, block and arguments."""
        mine, function = self._places.on(device), self._on(kernel, device)
        self._refuse_crowd(kernel.name, function, device, blocks, threads)
        return self._queues[mine[0]], function, (blocks * len(mine),), (threads,), arguments

    def _refuse_crowd(self, name: str, function: Any, device: int, blocks: int, threads: int) -> None:
        """CuPy would shrink a grid that does not fit at once, and leave some ranks out; so none gets there."""
        here = self._places.sharing(device)
        with self._cuda.failing_as(PlatformError, f"{name} cannot be launched"):
            room = self._cuda.resident_blocks(function, device, threads)
        if blocks * here > room:
            raise Unsupported(
                f"{here} ranks x {blocks} blocks of {threads} threads cannot run at once on GPU {device}, "
                f"which holds {room}: use fewer ranks for each GPU"
            )

    def _world(self, case: Case, device: int, blocks: int, lost: int) -> Array:
        """What the kernel on a device is to know."""
        world = np.zeros((), world_type(room_for(case.ranks)))
        for rank in range(case.ranks):
            world["window"][rank] = self._memory.address(Region.WINDOW, rank)
            world["send"][rank], world["receive"][rank] = buffers(self._memory, case, rank)
        world["ranks"], world["first"] = case.ranks, self._places.on(device)[0]
        world["stride"], world["blocks"] = len(self._places.devices), blocks
        world["spins"], world["trace"] = SPINS, lost or self._memory.layout.fifos.get(tracelog.FIFO, 0)
        return world


def room_for(ranks: int) -> int:
    """How many ranks a World has room for in a run of so many: powers of two, so that few kernels must be compiled."""
    return min(MAX_RANKS, max(FEWEST, 1 << (ranks - 1).bit_length()))


def defines(ranks: int, one_device: bool) -> tuple[str, ...]:
    """What a kernel whose ranks wait for each other is compiled with; kernels/world.cuh and flags.cuh say why."""
    known = (f"-DRANKS={ranks}",) if ranks in _UNROLLED else ()
    return (f"-DMAX_RANKS={room_for(ranks)}", *known, *(("-DONE_DEVICE",) if one_device else ()))
