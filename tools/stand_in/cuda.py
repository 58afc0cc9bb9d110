"""A machine with GPUs, for tests: the parts of CuPy that collbench uses, on host memory.

It is asynchronous like the real one: each stream is a thread that carries out what it is given in order, so a kernel
that waits for another really waits.  Kernels are the real kernels/*.cu, compiled as C++; a cooperative launch runs its
grid as threads.  The machine refuses what CUDA refuses: a stream used under another device, memory of a GPU without
peer access, a wait across the borders of a capture.  `Machine` also has the faults that tests need.  With a
`process` number its device memory is shared with other processes that have a machine of their own (ipc.py).

A graph's nodes keep to its dependencies and to nothing else: they run one after the other, as CUDA may run them, the
youngest stream's first.  With `Machine.order`, plain operations do the same: nothing runs until the host waits, and
then whatever can, in that order of streams.  Then a missing dependency is no question of luck.

A stream has a queue of QUEUE entries for what a library or several streams put into a graph, an entry a node.
Launching such a graph returns once all of it that has not run yet fits in, as on an H100, where a thread that launched
graphs of 1,024 NCCL operations for two ranks never came back from the first.  A graph of one stream's own kernels is
handed over whole, as there: with 8,192 of them.

It is held against CuPy 14.2 and what CUDA 12.9 documents: cupy/_core/raw.pyx (what compiles and loads, and when),
cupy/cuda/function.pyx (arguments by value, the grid that is cut), stream.pyx and graph.pyx, compiler.py, and
cupy_backends/cuda/api/runtime.pyx and driver.pyx; a real H100 has run the same code.  What differs on purpose:

* It is stricter: whatever is enqueued, copies included, needs its stream's device to be current; every launch names its
  stream; a stream must be non-blocking; an empty graph is no graph; what no machine of the tests should do is an
  AssertionError.
* A C++ compiler builds a kernel at its first launch, since only a launch says whether it runs as a grid.  NVRTC and
the driver refuse when the module is asked for a function, as the real ones do (`Machine.refusals`).
* A stream lives as long as its machine, whoever forgets it; one that CuPy destroys waits for what is enqueued.
* Illegal addresses are found at a launch's end, and after them nothing works any more, but they are found only where
  kernels say what they touch: the windows of the ranks and the targets of kernels/check.cu.
* The blocks of a grid that does not fit are cut with CuPy's warning, which the tests make an error.
"""

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tools.stand_in.arrays import Arrays
from tools.stand_in.errors import BAD_HANDLE, CompileException, CUDARuntimeError
from tools.stand_in.ipc import SharedMemory
from tools.stand_in.nccl import make_nccl
from tools.stand_in.runtime import MEMORY, Driver, Nvrtc, RawModule, Runtime
from tools.stand_in.streams import Event, Graph, Stream, get_elapsed_time


@dataclass
class Machine:
    """The GPUs, and what is wrong with them."""

    devices: int = 1
    multiprocessors: int = 64
    blocks_each: int = 2  # blocks that a multiprocessor holds
    nccl_seconds: float = 0.0  # that an operation of NCCL takes by the machine's clock
    slower: dict[int, float] = field(default_factory=dict)  # times as long, where these ranks take part
    nccl_hangs: str = ""  # at its "start", or in the first "operation", until the machine is stopped
    network_error: int = 0  # the status by which NCCL knows, without being asked, that a peer is gone
    stopping: threading.Event = field(default_factory=threading.Event)
    cache: int = 2**19  # bytes of a device's L2: so few that pieces are small and chunks take several laps
    free: int = MEMORY
    nccl_version: int = 23007
    nvrtc_version: tuple[int, int] = (12, 9)
    switch: Any = None  # driver.Library, where there is one
    has_nccl: bool = True
    algorithm: str = "RING"  # that NCCL says it runs, where it says anything
    simulation: Any = None  # simulate.Simulation, where NCCL has estimates
    process: int | None = None
    node: str = "node"
    shares_memory: bool = True  # whether CUDA IPC works
    dies: bool = False  # the process does, at its first cooperative kernel
    without_peers: set[tuple[int, int]] = field(default_factory=set)
    losing_stores: set[tuple[int, int]] = field(default_factory=set)  # a kernel's stores into a peer vanish
    losing_copies: set[tuple[int, int]] = field(default_factory=set)
    host_delay: float = 0.0  # seconds that the host needs to launch a graph, or a kernel of NCCL's without one
    clock: Any = time  # by which it needs them, and by which events are timed
    dead: set[int] = field(default_factory=set)  # devices whose cooperative kernels never start
    order: Callable[[Stream], Any] | None = None  # which stream goes first where several can; None: all at once
    buses: dict[int, int] = field(default_factory=dict)  # of devices whose bus has not their number: MIG slices
    uuids: dict[int, bytes | None] = field(default_factory=dict)  # of devices with another UUID than their own; or none
    refusals: dict[int, Exception] = field(default_factory=dict)  # devices for which nothing compiles, and why
    broken: Exception | None = None  # what a kernel did; CUDA answers every later call with it
    enabled: set[tuple[int, int]] = field(default_factory=set)
    blocks: dict[int, tuple[int, np.ndarray[Any, Any]]] = field(default_factory=dict)  # address: device, bytes
    access: dict[int, set[int]] = field(default_factory=dict)  # the devices let in, where that is said by address
    streams: dict[int, Stream] = field(default_factory=dict)
    graphs: weakref.WeakSet[Graph] = field(default_factory=weakref.WeakSet)
    captures: int = 0
    replays: int = 0
    deepest: int = 0  # the most entries that a queue had
    zeroing: dict[int, list[Callable[[], None]]] = field(default_factory=dict)  # on each device's default stream
    product_seconds: float = 0.0  # that a product of matrices takes at least
    without_cublas: bool = False
    taken: int = 0  # bytes of CuPy's arrays that the host has taken
    arrays: dict[int, Any] = field(default_factory=dict)  # CuPy's, by address
    log: list[tuple[str, Stream]] = field(default_factory=list)  # what streams did, as far as somebody noted it

    def __post_init__(self) -> None:
        self._thread = threading.local()
        self.shared = None if self.process is None else SharedMemory(self, self.process)

    @property
    def current(self) -> int:
        """The device that is current in this thread; the first one until it says another."""
        return getattr(self._thread, "device", 0)

    @current.setter
    def current(self, device: int) -> None:
        self._thread.device = device

    def current_stream(self) -> Stream:
        """The one that is current for the current device, in this thread."""
        entered = [stream for stream in self.entered() if stream.device_id == self.current]
        assert entered, "everything has its stream here"
        return entered[-1]

    def entered(self) -> list[Stream]:
        """The streams whose blocks this thread is in, the innermost last."""
        self._thread.entered = getattr(self._thread, "entered", [])
        found: list[Stream] = self._thread.entered
        return found

    def noted(self, what: str, stream: Stream) -> None:
        self.log.append((what, stream))

    def refuse_broken(self) -> None:
        if self.broken:
            raise self.broken

    def settle(self, device: int) -> None:
        """Carry out what the default stream of a device was given; no other stream waits for that."""
        for run in self.zeroing.pop(device, []):
            run()

    def stream(self, ptr: int) -> Stream:
        if ptr not in self.streams:
            raise CUDARuntimeError(BAD_HANDLE)
        return self.streams[ptr]

    def device_of(self, address: int) -> int:
        """Which device's memory that is; -1 for the host's."""
        for start, (device, block) in self.blocks.items():
            if start <= address < start + block.nbytes:
                return device
        return -1

    def reaches(self, device: int, address: int) -> bool:
        for start, devices in self.access.items():
            if start <= address < start + self.blocks[start][1].nbytes:
                return device in devices
        owner = self.device_of(address)
        return owner in (-1, device) or (device, owner) in self.enabled

    def run_in_order(self, wanted: Stream) -> None:
        """Carry out what is enqueued on all streams, one at a time, until one of them has nothing left."""
        assert self.order is not None
        while wanted._waiting:
            able = [stream for stream in self.streams.values() if stream._waiting and stream._waiting[0].ready]
            assert able, "every stream waits for another"
            first = min(able, key=self.order)
            first._try(first._waiting.popleft())

    def cupy(self) -> Any:
        """Return the module that `import cupy` would give on this machine."""
        return make_cupy(self)

    def stop(self) -> None:
        self.stopping.set()
        for stream in self.streams.values():
            stream.stop()


def make_cupy(machine: Machine) -> Any:
    def stream(null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None) -> Stream:
        assert non_blocking, "others wait for the default stream"
        assert (null, ptds) == (False, False)
        return Stream(machine, priority or 0)

    def event(block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> Event:
        assert not interprocess
        return Event(machine, timed=not disable_timing)

    def module(*, code: str | None = None, options: tuple[str, ...] = ()) -> RawModule:
        assert code is not None, "everything is compiled here"
        return RawModule(machine, code, options)

    arrays = Arrays(machine)
    cuda = SimpleNamespace(
        runtime=Runtime(machine),
        driver=Driver(machine),
        nvrtc=Nvrtc(machine),
        nccl=make_nccl(machine),
        compiler=SimpleNamespace(CompileException=CompileException),
        Stream=stream,
        Event=event,
        get_elapsed_time=get_elapsed_time,
        get_cublas_handle=arrays.get_cublas_handle,
        cublas=SimpleNamespace(sgemm=arrays.sgemm),
    )
    return SimpleNamespace(
        __version__="14.2.0",
        cuda=cuda,
        RawModule=module,
        asarray=arrays.asarray,
        asnumpy=arrays.asnumpy,
        empty_like=arrays.empty_like,
    )
