# ruff: noqa: N802, N803, N815 - the names are CuPy's
"""A machine with GPUs, for tests: the parts of CuPy that collbench uses, on host memory.

It is asynchronous like the real one: each stream is a thread that carries out what it is given in order, so a kernel
that waits for another really waits.  Kernels are the real kernels/*.cu, compiled as C++; a cooperative launch runs its
grid as threads.  What CUDA would refuse is refused: a stream used under another device, memory of a GPU without peer
access, a wait across the borders of a capture.  `Machine` also has the faults that tests need.  With a
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
* A C++ compiler builds a kernel at its first launch, since only a launch says whether it runs as a grid.  What NVRTC or
  the driver refuse, they refuse when the module is asked for a function, as the real ones do (`Machine.refusals`).
* A stream lives as long as its machine, whoever forgets it; one that CuPy destroys waits for what is enqueued.
* Illegal addresses are found at a launch's end, and after them nothing works any more, but they are found only where
  kernels say what they touch: the windows of the ranks and the targets of kernels/check.cu.
* The blocks of a grid that does not fit are cut with CuPy's warning, which the tests make an error.
"""

import os
import queue
import signal
import threading
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from heapq import heapify, heappop, heappush
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from collbench.host.processes import shared_files
from collbench.platforms import compiler
from collbench.platforms.gpu.launch import SPINS
from collbench.platforms.gpu.timing import _TRIES as TRIES
from collbench.platforms.layout import view
from tools.stand_in.arrays import Arrays
from tools.stand_in.errors import (
    ALREADY_ENABLED,
    BAD_HANDLE,
    CAPTURED_EVENT,
    CAPTURING,
    ILLEGAL_ADDRESS,
    ILLEGAL_STATE,
    INVALID,
    ISOLATION,
    MERGE,
    NO_DEVICE,
    NO_PEER,
    NOT_A_DEVICE,
    NOT_FOUND,
    NOT_READY,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    UNJOINED,
    UNMATCHED,
    CompileException,
    CUDADriverError,
    CUDARuntimeError,
)
from tools.stand_in.ipc import SharedMemory
from tools.stand_in.nccl import make_nccl

GRID = ("-DHOST_GRID", "-O1")  # as threads; optimised for the compiler's time, not for theirs
THREADS = 2  # of a block: enough to need every barrier
MEMORY = 2**30
MOST_THREADS = 1024  # of a block
GREATEST_PRIORITY = -5  # of a stream, on an H100
QUEUE = 1024  # entries of a stream's launch queue


@dataclass
class Machine:
    """The GPUs, and what is wrong with them."""

    devices: int = 1
    multiprocessors: int = 64
    blocks_each: int = 2  # blocks that a multiprocessor holds
    nccl_seconds: float = 0.0  # that an operation of NCCL takes by the machine's clock
    nccl_hangs: str = ""  # at its "start", or in the first "operation", until the machine is stopped
    network_error: int = 0  # the status by which NCCL knows, without being asked, that a peer is gone
    stopping: threading.Event = field(default_factory=threading.Event)
    cache: int = 2**19  # bytes of a device's L2: so few that pieces are small and chunks take several laps
    free: int = MEMORY
    nccl_version: int = 23007
    nvrtc_version: tuple[int, int] = (12, 9)
    switch: Any = None  # driver.Library, where there is one
    has_nccl: bool = True
    simulation: Any = None  # simulate.Simulation, where NCCL has estimates
    process: int | None = None
    node: str = "node"
    shares_memory: bool = True  # whether CUDA IPC works
    dies: bool = False  # the process does, at its first cooperative kernel
    without_peers: set[tuple[int, int]] = field(default_factory=set)
    losing_stores: set[tuple[int, int]] = field(default_factory=set)  # a kernel's stores into a peer vanish
    losing_copies: set[tuple[int, int]] = field(default_factory=set)
    host_delay: float = 0.0  # seconds that the host needs to launch a graph
    clock: Any = time  # by which it needs them, and by which events are timed
    dead: set[int] = field(default_factory=set)  # devices whose cooperative kernels never start
    order: "Callable[[Stream], Any] | None" = None  # which stream goes first where several can; None: all at once
    buses: dict[int, int] = field(default_factory=dict)  # of devices whose bus has not their number: MIG slices
    uuids: dict[int, bytes | None] = field(default_factory=dict)  # of devices with another UUID than their own; or none
    refusals: dict[int, Exception] = field(default_factory=dict)  # devices for which nothing compiles, and why
    broken: Exception | None = None  # what a kernel did; CUDA answers every later call with it
    enabled: set[tuple[int, int]] = field(default_factory=set)
    blocks: dict[int, tuple[int, np.ndarray[Any, Any]]] = field(default_factory=dict)  # address: device, bytes
    access: dict[int, set[int]] = field(default_factory=dict)  # the devices let in, where that is said by address
    streams: dict[int, "Stream"] = field(default_factory=dict)
    graphs: "weakref.WeakSet[Graph]" = field(default_factory=weakref.WeakSet)
    captures: int = 0
    replays: int = 0
    full: threading.Event = field(default_factory=threading.Event)  # whether a launch has waited for room in a queue
    zeroing: dict[int, list[Callable[[], None]]] = field(default_factory=dict)  # on each device's default stream
    product_seconds: float = 0.0  # that a product of matrices takes at least
    without_cublas: bool = False
    taken: int = 0  # bytes of CuPy's arrays that the host has taken
    arrays: dict[int, Any] = field(default_factory=dict)  # CuPy's, by address
    log: list[tuple[str, "Stream"]] = field(default_factory=list)  # what streams did, as far as somebody noted it

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

    def current_stream(self) -> "Stream":
        """The one that is current for the current device, in this thread."""
        entered = [stream for stream in self.entered() if stream.device_id == self.current]
        assert entered, "everything has its stream here"
        return entered[-1]

    def entered(self) -> "list[Stream]":
        """The streams whose blocks this thread is in, the innermost last."""
        self._thread.entered = getattr(self._thread, "entered", [])
        found: list[Stream] = self._thread.entered
        return found

    def noted(self, what: str, stream: "Stream") -> None:
        """Something that a stream does now."""
        self.log.append((what, stream))

    def refuse_broken(self) -> None:
        if self.broken:
            raise self.broken

    def settle(self, device: int) -> None:
        """Carry out what the default stream of a device was given; no other stream waits for that."""
        for run in self.zeroing.pop(device, []):
            run()

    def stream(self, ptr: int) -> "Stream":
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

    def run_in_order(self, wanted: "Stream") -> None:
        """Carry out what is enqueued on all streams, one at a time, until one of them has nothing left."""
        assert self.order is not None
        while wanted._waiting:
            able = [stream for stream in self.streams.values() if stream._waiting and stream._waiting[0].ready]
            assert able, "every stream waits for another"
            first = min(able, key=self.order)
            first._try(first._waiting.popleft())

    def cupy(self) -> Any:
        """What `import cupy` would give on this machine."""
        return make_cupy(self)

    def stop(self) -> None:
        self.stopping.set()
        for stream in self.streams.values():
            stream.stop()


@dataclass(eq=False)
class Task:
    """Something to be done on a stream, once an event has happened or the nodes of a graph before it are done."""

    run: Callable[[], None]
    event: threading.Event | None = None
    stream: "Stream | None" = None
    before: "frozenset[Task]" = frozenset()
    queued: bool = False

    def __call__(self) -> None:
        if self.event:
            self.event.wait()
        self.run()

    @property
    def ready(self) -> bool:
        return self.event is None or self.event.is_set()


class Stream:
    """A thread that does one thing after the other."""

    def __init__(self, machine: Machine, priority: int = 0) -> None:
        machine.refuse_broken()
        self.machine, self.device_id = machine, machine.current
        self.priority = min(0, max(GREATEST_PRIORITY, priority))  # the nearest that there is
        self.ptr = len(machine.streams) + 1
        machine.streams[self.ptr] = self
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._waiting: deque[Task] = deque()  # instead, where the machine has an order
        self._failure: Exception | None = None
        self._capture: Graph | None = None
        self._tail: frozenset[Task] = frozenset()  # what the next node of a capture comes after
        self._queued = 0  # entries of the launch queue
        self._room = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Stream":
        if self.device_id != self.machine.current:
            raise RuntimeError("The device that the stream is created on does not match with the current device")
        self.machine.entered().append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        self.machine.entered().pop()

    def _work(self) -> None:
        while task := self._tasks.get():
            self._try(task)
            self._tasks.task_done()

    def _try(self, task: Task) -> None:
        try:
            task()
        except Exception as error:
            self._failure = error
            if isinstance(error, CUDARuntimeError):
                self.machine.broken = error

    def stop(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def _take_entries(self, count: int) -> None:
        """Add entries to the launch queue, and wait until all that is left of them fits in, or the machine stops."""
        with self._room:
            self._queued += count
            if self._queued > QUEUE:
                self.machine.full.set()
            while self._queued > QUEUE and not self.machine.stopping.is_set():
                self._room.wait(0.05)

    def _give_entry(self) -> None:
        """Free the entry of what has run."""
        with self._room:
            self._queued -= 1
            self._room.notify()

    def enqueue(self, run: Callable[[], None], event: threading.Event | None = None, queued: bool = False) -> None:
        """`queued`: in a graph it takes an entry of the launch queue, whatever else the graph has."""
        self.machine.refuse_broken()
        if self.device_id != self.machine.current:
            raise CUDARuntimeError(BAD_HANDLE)
        if self._capture is not None:
            assert event is None
            self._tail = frozenset({self._capture.add(run, self, queued)})
        elif self.machine.order is not None:
            self._waiting.append(Task(run, event))
        else:
            self._tasks.put(Task(run, event))

    @property
    def done(self) -> bool:
        """CuPy compares what cudaStreamQuery answers with success: after an error, and in a capture, it is never so."""
        return self._query() == 0

    def _query(self) -> int:
        """A status, which CuPy does not turn into an exception."""
        if self._capture is not None:
            return CAPTURING
        if self.machine.broken:
            return self.machine.broken.status
        if self.machine.order is not None:
            self.machine.run_in_order(self)
        if self._tasks.unfinished_tasks:
            return NOT_READY
        return ILLEGAL_ADDRESS if self._failure else 0

    def synchronize(self) -> None:
        if self._capture is not None:
            raise CUDARuntimeError(CAPTURING)
        self.machine.refuse_broken()
        self._tasks.join()
        if self.machine.order is not None:
            self.machine.run_in_order(self)
        if self._failure:
            raise self._failure

    def wait_event(self, event: "Event") -> None:
        if event._graph is None:
            if self._capture is not None:
                raise CUDARuntimeError(ISOLATION)
            self.enqueue(lambda: None, event._recorded)
        elif event._graph.ended:
            raise CUDARuntimeError(CAPTURED_EVENT)
        else:
            self._join(event._graph, event._after)

    def _join(self, graph: "Graph", after: frozenset[Task]) -> None:
        """Waiting for an event of a capture brings a stream into it."""
        if self._capture not in (None, graph):
            raise CUDARuntimeError(MERGE)
        self._capture = graph
        self._tail |= after

    def begin_capture(self, mode: Any = None) -> None:
        assert mode is None, "CuPy's own, relaxed: whatever allocates may do so meanwhile"
        self.machine.refuse_broken()
        if self._capture is not None:
            raise CUDARuntimeError(ILLEGAL_STATE)
        self._capture = Graph(self.machine, self)
        self.machine.captures += 1

    def end_capture(self) -> "Graph":
        graph = self._capture
        if graph is None:
            raise CUDARuntimeError(ILLEGAL_STATE)
        if graph.origin is not self:
            raise CUDARuntimeError(UNMATCHED)
        graph.ended = True
        joined = graph.reached(self._tail)
        for stream in self.machine.streams.values():
            if stream._capture is graph:
                stream._capture, stream._tail = None, frozenset()
        if not joined:
            raise CUDARuntimeError(UNJOINED)
        return graph


class Graph:
    def __init__(self, machine: Machine, origin: Stream | None = None) -> None:
        self._machine, self.origin, self.ended = machine, origin, False
        self._nodes: list[Task] = []
        machine.graphs.add(self)

    def add(self, run: Callable[[], None], stream: Stream, queued: bool) -> Task:
        self._nodes.append(Task(run, None, stream, stream._tail, queued))
        return self._nodes[-1]

    def reached(self, tail: frozenset[Task]) -> bool:
        """Whether every node is one of these or comes before one."""
        seen, left = set(tail), list(tail)
        while left:
            new = left.pop().before - seen
            seen |= new
            left += new
        return seen == set(self._nodes)

    def upload(self, stream: Stream | None = None) -> None:
        assert self._nodes, "nothing says that an empty graph can be launched"
        assert stream is not None, "everything has its stream here"
        assert stream.device_id == self._machine.current

    def launch(self, stream: Stream | None = None) -> None:
        assert stream is not None, "everything has its stream here"
        self._machine.replays += 1
        self._machine.clock.sleep(self._machine.host_delay)
        several = len({node.stream for node in self._nodes}) > 1
        queued = {node for node in self._nodes if several or node.queued}
        stream.enqueue(lambda: self._replay(queued))
        for each, count in Counter(node.stream for node in queued).items():
            each._take_entries(count)

    def _replay(self, queued: set[Task]) -> None:
        order = self._machine.order or (lambda stream: -stream.ptr)
        missing = {node: len(node.before) for node in self._nodes}
        behind: dict[Task, list[int]] = {node: [] for node in self._nodes}
        for number, node in enumerate(self._nodes):
            for before in node.before:
                behind[before].append(number)
        ready = [(order(node.stream), number) for number, node in enumerate(self._nodes) if not node.before]
        heapify(ready)
        while ready:
            node = self._nodes[heappop(ready)[1]]
            node.run()
            if node in queued:
                node.stream._give_entry()
            for number in behind[node]:
                later = self._nodes[number]
                missing[later] -= 1
                if not missing[later]:
                    heappush(ready, (order(later.stream), number))


class Event:
    def __init__(self, machine: Machine, timed: bool) -> None:
        machine.refuse_broken()
        self._machine, self._device, self._timed = machine, machine.current, timed
        self._recorded = threading.Event()
        self._recorded.set()  # one that was never recorded holds nobody up
        self._seconds: float | None = None
        self._graph: Graph | None = None  # the capture that it was last recorded in, and after which nodes
        self._after: frozenset[Task] = frozenset()

    def record(self, stream: Stream | None = None) -> None:
        assert stream is not None, "everything has its stream here"
        if stream.device_id != self._device:
            raise CUDARuntimeError(BAD_HANDLE)
        self._graph, self._after = stream._capture, stream._tail
        if self._graph is not None:
            return
        self._recorded = recorded = threading.Event()
        self._seconds = 0.0

        def mark() -> None:
            self._seconds = self._machine.clock.perf_counter()
            recorded.set()

        stream.enqueue(mark)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds."""
    if start_event._graph or end_event._graph:
        raise CUDARuntimeError(CAPTURED_EVENT)
    if not (start_event._timed and end_event._timed) or start_event._device != end_event._device:
        raise CUDARuntimeError(BAD_HANDLE)
    if start_event._seconds is None or end_event._seconds is None:
        raise CUDARuntimeError(BAD_HANDLE)
    if not (start_event._recorded.is_set() and end_event._recorded.is_set()):
        raise CUDARuntimeError(NOT_READY)
    return 1e3 * (end_event._seconds - start_event._seconds)


class Function:
    """A kernel on one device."""

    def __init__(self, machine: Machine, file: str, entry: str, options: tuple[str, ...]) -> None:
        self._machine, self._device = machine, machine.current
        self._file, self._entry, self._options = file, entry, options
        if entry not in compiler.entries(file):
            raise CUDADriverError(NOT_FOUND)
        self.ptr = id(self)

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        shared_mem: int = 0,
        stream: Stream | None = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        assert stream is not None, "everything has its stream here"
        assert stream.device_id == self._device, "a kernel runs on the device that it was loaded on"
        if not isinstance(grid, tuple) or not isinstance(block, tuple):
            raise TypeError("grid and block are tuples")
        if block[0] > MOST_THREADS:
            raise CUDADriverError(INVALID)
        held = tuple(map(by_value, args))
        if enable_cooperative_groups:
            stream.enqueue(self._cooperative(self._clamped(grid[0]), held))
        else:
            stream.enqueue(self._single(held))

    def _clamped(self, blocks: int) -> int:
        room = self._machine.multiprocessors * self._machine.blocks_each
        if blocks > room:
            exceeds = "as the specified grid size exceeds the limit."
            warnings.warn(f"The grid size will be reduced from {blocks} to {room}, {exceeds}", stacklevel=2)
        return min(blocks, room)

    def _cooperative(self, blocks: int, args: tuple[Any, ...]) -> Callable[[], None]:
        kernel = compiler.host_kernel(self._file, self._entry, (*self._options, *GRID))
        windows: list[int] = []
        for world in (arg for arg in args if arg.dtype.names and "window" in arg.dtype.names):
            world["yield_after"] = 1
            if world["spins"] == SPINS:  # a busy machine may keep a rank from its core for long
                world["spins"] = 2**27
            windows += world["window"][: int(world["ranks"])].tolist()
            if self._entry == "nvls":
                self._machine.switch.expect_multicast(world, *map(int, args[1:3]))
        if self._machine.dies:
            return _die
        if self._device in self._machine.dead:
            return lambda: None
        return self._within_reach(windows, lambda: kernel(*args, blocks=blocks, threads=THREADS))

    def _single(self, args: tuple[Any, ...]) -> Callable[[], None]:
        kernel = compiler.host_kernel(self._file, self._entry, self._options)
        if self._entry == "gate" and args[1] == TRIES:
            args = args[0], np.array(2**34, args[1].dtype)  # as above, and so may the host
        target = int(args[0])
        if self._entry == "fill" and (self._device, self._machine.device_of(target)) in self._machine.losing_stores:
            return lambda: None
        return self._within_reach([target], lambda: kernel(*args))

    def _within_reach(self, addresses: Sequence[int], run: Callable[[], None]) -> Callable[[], None]:
        """What runs later: the kernel, or what it comes to if it touches memory that its device may not."""
        if all(self._machine.reaches(self._device, address) for address in addresses):
            return run

        def fault() -> None:
            raise CUDARuntimeError(ILLEGAL_ADDRESS)

        return fault


def by_value(argument: Any) -> np.ndarray[Any, Any]:
    """A kernel's argument as of now: an array of one element, or a number that NumPy knows."""
    if isinstance(argument, np.ndarray):
        if argument.size != 1:
            raise TypeError(f"You are trying to pass a numpy.ndarray of shape {argument.shape} as a kernel parameter.")
    elif not isinstance(argument, int | float | complex | np.number | np.bool_):
        raise TypeError(f"Unsupported type {type(argument)}")
    return np.array(argument)


class RawModule:
    """Finds the file that a source text came from, to compile that for the host."""

    def __init__(self, machine: Machine, code: str, options: tuple[str, ...]) -> None:
        if not isinstance(options, tuple):
            raise TypeError(f"Argument 'options' has incorrect type (expected tuple, got {type(options).__name__})")
        assert "-std=c++17" in options
        files = [path.name for path in compiler.folder().glob("*.cu")]
        self._file = next(file for file in files if compiler.source(file) == code)
        self._machine = machine
        self._options = tuple(option for option in options if option.startswith("-D"))

    def get_function(self, name: str) -> Any:
        """Compiled for the current device and loaded there, before it is returned."""
        found = RawKernel(self, name)
        assert found.kernel
        return found


class RawKernel:
    def __init__(self, module: RawModule, name: str) -> None:
        self._module, self._name = module, name
        self._loaded: dict[int, Function] = {}

    @property
    def kernel(self) -> Function:
        """On the current device, for which it is compiled and loaded at the first request."""
        module, machine = self._module, self._module._machine
        machine.refuse_broken()
        if machine.current not in self._loaded:
            if machine.current in machine.refusals:
                raise machine.refusals[machine.current]
            self._loaded[machine.current] = Function(machine, module._file, self._name, module._options)
        return self._loaded[machine.current]


def alive(function: Any) -> Any:
    """A function of the runtime, which does nothing once a kernel has broken the device."""

    @wraps(function)
    def call(runtime: "Runtime", *arguments: Any, **named: Any) -> Any:
        runtime._machine.refuse_broken()
        return function(runtime, *arguments, **named)

    return call


class Runtime:
    """What cupy.cuda.runtime offers."""

    CUDARuntimeError = CUDARuntimeError
    memcpyHostToDevice, memcpyDeviceToHost, memcpyDefault = 1, 2, 4
    hostAllocPortable, hostAllocMapped = 1, 2
    cudaDevAttrMultiProcessorCount = 16
    cudaDevAttrL2CacheSize = 38

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def getDeviceCount(self) -> int:
        if not self._machine.devices:
            raise CUDARuntimeError(NO_DEVICE)
        return self._machine.devices

    @alive
    def setDevice(self, device: int) -> None:
        self._refuse_unknown(device)
        self._machine.current = device

    def _refuse_unknown(self, device: int) -> None:
        if not 0 <= device < self._machine.devices:
            raise CUDARuntimeError(NOT_A_DEVICE)

    def deviceGetAttribute(self, attrib: int, device: int) -> int:
        self._refuse_unknown(device)
        answers = {
            self.cudaDevAttrMultiProcessorCount: self._machine.multiprocessors,
            self.cudaDevAttrL2CacheSize: self._machine.cache,
        }
        return answers[attrib]

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        self._refuse_unknown(device)
        uuid = self._machine.uuids.get(device, bytes([device + 1] * 16))
        return {"name": b"Test GPU"} | ({} if uuid is None else {"uuid": uuid})

    def deviceGetPCIBusId(self, device: int) -> str:
        self._refuse_unknown(device)
        return f"0000:{self._machine.buses.get(device, device):02x}:00.0"

    def runtimeGetVersion(self) -> int:
        return 12090

    def driverGetVersion(self) -> int:
        return 12080

    @alive
    def memGetInfo(self) -> tuple[int, int]:
        opened = self._machine.shared.opened if self._machine.shared else {}
        own = [block for address, block in self._machine.blocks.items() if address not in opened]
        used = sum(block.nbytes for device, block in own if device == self._machine.current)
        return self._machine.free - used, MEMORY

    @alive
    def malloc(self, size: int) -> int:
        if not size:
            return 0
        if size > self.memGetInfo()[0]:
            raise CUDARuntimeError(OUT_OF_MEMORY)
        return self._allocate(self._machine.current, size)

    def _allocate(self, device: int, size: int) -> int:
        if self._machine.shared and device >= 0:
            address, piece = self._machine.shared.allocate(device, size)
            self._machine.blocks[address] = device, piece
            return address
        block = np.full(size + 256, 0xEE, np.uint8)
        address = -(-block.ctypes.data // 256) * 256
        self._machine.blocks[address] = device, block[address - block.ctypes.data :][:size]
        return address

    @alive
    def free(self, ptr: int) -> None:
        if not ptr:
            return
        if ptr not in self._machine.blocks:
            raise CUDARuntimeError(INVALID)
        for device in range(self._machine.devices):
            self._machine.settle(device)
        del self._machine.blocks[ptr]
        if self._machine.shared:
            self._machine.shared.free(ptr)

    @alive
    def hostAlloc(self, size: int, flags: int) -> int:
        assert flags == self.hostAllocPortable | self.hostAllocMapped
        return self._allocate(-1, size)

    freeHost = free

    @alive
    def memset(self, ptr: int, value: int, size: int) -> None:
        """On the device's default stream, for which neither the host waits nor any other stream."""
        waiting = self._machine.zeroing.setdefault(self._machine.current, [])
        waiting.append(lambda: _fill(ptr, value, size))

    def memsetAsync(self, ptr: int, value: int, size: int, stream: int) -> None:
        self._machine.stream(stream).enqueue(lambda: _fill(ptr, value, size))

    def streamQuery(self, stream: int) -> int:
        return self._machine.stream(stream)._query()

    @alive
    def memcpy(self, dst: int, src: int, size: int, kind: int) -> None:
        """Behind what the device's default stream was given; the host waits."""
        self._machine.settle(self._machine.current)
        _copy(dst, src, size)

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        found = self._machine.stream(stream)
        if (self._machine.device_of(src), self._machine.device_of(dst)) not in self._machine.losing_copies:
            found.enqueue(lambda: _copy(dst, src, size))

    @alive
    def ipcGetMemHandle(self, devPtr: int) -> bytes:
        if not self._machine.shares_memory:
            raise CUDARuntimeError(NOT_SUPPORTED)
        assert self._machine.shared
        return self._machine.shared.handle(devPtr)

    @alive
    def ipcOpenMemHandle(self, handle: bytes, flags: int = 1) -> int:
        assert self._machine.shared
        assert flags == 1, "peer access is not switched on otherwise"
        if not isinstance(handle, bytes):
            raise TypeError("a handle is of bytes")
        address, owner, block = self._machine.shared.open(handle)
        pair = self._machine.current, owner
        if pair in self._machine.without_peers:
            self._machine.shared.close(address)
            raise CUDARuntimeError(NO_PEER)
        self._machine.enabled.add(pair)
        self._machine.blocks[address] = owner, block
        return address

    @alive
    def ipcCloseMemHandle(self, devPtr: int) -> None:
        assert self._machine.shared
        del self._machine.blocks[devPtr]
        self._machine.shared.close(devPtr)

    @alive
    def deviceSynchronize(self) -> None:
        """For all of the current device; while any of its streams is captured that cannot be."""
        here = [stream for stream in self._machine.streams.values() if stream.device_id == self._machine.current]
        if any(stream._capture for stream in here):
            raise CUDARuntimeError(CAPTURING)
        self._machine.settle(self._machine.current)
        for stream in here:
            stream.synchronize()

    def deviceCanAccessPeer(self, device: int, peerDevice: int) -> int:
        return int((device, peerDevice) not in self._machine.without_peers)

    @alive
    def deviceEnablePeerAccess(self, peerDevice: int) -> None:
        pair = self._machine.current, peerDevice
        if pair in self._machine.without_peers:
            raise CUDARuntimeError(NO_PEER)
        if pair in self._machine.enabled:
            raise CUDARuntimeError(ALREADY_ENABLED)
        self._machine.enabled.add(pair)


def _fill(address: int, value: int, size: int) -> None:
    view(address, size)[:] = value


def _copy(target: int, source: int, size: int) -> None:
    if size:
        view(target, size)[:] = view(source, size).copy()


class Driver:
    """What cupy.cuda.driver offers."""

    CUDADriverError = CUDADriverError

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def occupancyMaxActiveBlocksPerMultiprocessor(self, func: int, blockSize: int, dynamicSMemSize: int) -> int:
        if blockSize > MOST_THREADS:
            raise CUDADriverError(INVALID)
        return self._machine.blocks_each


class Nvrtc:
    """What cupy.cuda.nvrtc offers."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def getVersion(self) -> tuple[int, int]:
        return self._machine.nvrtc_version


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


def _die() -> None:
    """As a crash, but for MPI's named shared memory, which mpirun would leave behind."""
    for path in shared_files():
        Path(path).unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)
