"""CUDA graphs and events: starting and timing operations on several GPUs.

Each rank has a stream, captured into its own graph, as in nccl-tests. A single graph could deadlock: ranks wait for
each other inside their kernels, and CUDA may put two branches of a graph into one queue. Ranks that wait for each
other's events need a single graph (`Prepared.one_graph`). The first rank's stream launches that graph and waits for
all branches, so its two events time the slowest rank.

The host takes microseconds to enqueue each device's graph. A gate excludes that from the time: it holds every stream
back until the last graph is enqueued. Two events on each stream then time its rank, and the slowest counts.

The launch queue has about 1,024 entries, and a launch into a full queue blocks. If one rank's graph fills the queue,
the thread hangs: its kernels wait for the next rank's graph. Several processes hang likewise if each keeps its gate
closed until all have launched. Times are wrong even before that (docs/log.md, "Ranks that share an H100"). So a
replay's graphs use at most a quarter of the queue, and a larger sample is several replays in a row. Each replay is
launched for all ranks before the next one, so a blocked launch gets room; the gate holds back only the first.

CUDA measures the time between two events by the device's clock. An event that is reached between two readings of the
host's clock ties the two clocks together. They drift by microseconds in a second, so they are tied again after each
measurement. A time between two ties has at most the ties' error.
"""

import ctypes
import math
import re
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

import numpy as np

from collbench.errors import CaseFailed, TimedOut
from collbench.platforms.gpu.cuda import Cuda, Stream
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.interface import Clock, Limits, Moment, Prepared
from collbench.platforms.layout import Region
from collbench.platforms.processes import SchedulingWatch, Team

LAUNCH_QUEUE = 1024  # entries, about
_MOST_GRAPHS = 32  # graphs, one for each implementation and number of launches; a graph holds a copy of all arguments
_GATED = LAUNCH_QUEUE // 4 // 16  # ranks behind the gate: `ring-events` takes up to 16 entries for each
_ENTRIES = 4  # of a launch without a graph: a kernel or a copy, and the events that a library puts around it
_TRIES = 2**22  # reads of host memory, a microsecond or two each, before a gate opens by itself: some seconds
_ENQUEUED = 3  # launches timed by `enqueue_seconds`; the quickest counts
_SUCCESS, _NOT_READY = 0, 600  # cudaSuccess, cudaErrorNotReady
_SHORTEST_PAUSE, _PAUSE = 2e-5, 1e-3  # seconds between two looks at streams that may never be done

_NODE = re.compile(r'^"graph_\d+_node_\d+"\[', re.MULTILINE)  # a line of what cudaGraphDebugDotPrint writes


@dataclass(frozen=True)
class Captured:
    """Graphs of a number of launches of an operation, one for each stream."""

    graphs: Sequence[tuple[Stream, Any]]
    launches: int

    @cached_property
    def nodes(self) -> int:
        """Nodes of a launch in all graphs together; 0 where CuPy does not show them, as before its version 14."""
        texts = []
        with suppress(AttributeError, OSError, RuntimeError):  # the last two: CuPy has CUDA write them into a file
            texts = [graph.debug_dot_str() for _, graph in self.graphs]
        return -(-sum(len(_NODE.findall(text)) for text in texts) // self.launches)


class StartGate:
    """A kernel that waits for a word in host memory, and an event behind it that streams wait for.

    If the host takes too long, the kernel opens the gate and says so in a second word.
    """

    def __init__(self, cuda: Cuda, function: Any, device: int) -> None:
        self._runtime, self._function = cuda.runtime, function
        self._address = cuda.runtime.hostAlloc(8, cuda.runtime.hostAllocPortable | cuda.runtime.hostAllocMapped)
        self._words = (ctypes.c_uint32 * 2).from_address(self._address)
        self._own_stream = Stream(cuda, device)
        self._event = cuda.cupy.cuda.Event(disable_timing=True)

    def close(self, streams: Sequence[Stream]) -> None:
        """Close the gate: what is enqueued on these streams from now on waits."""
        self._words[:] = [0, 0]
        stream = self._own_stream.enter()
        self._function((1,), (1,), (np.uint64(self._address), np.uint64(_TRIES)), stream=stream)
        self._event.record(stream)
        for rank_stream in streams:
            rank_stream.enter().wait_event(self._event)

    def open(self) -> None:
        """Let the streams run."""
        self._words[0] = 1

    @property
    def timed_out(self) -> bool:
        """Whether the gate timed out; valid once the streams are done."""
        return bool(self._words[1])

    def free(self) -> None:
        """Free the gate's host memory."""
        self._runtime.freeHost(self._address)


class GpuClock(Clock):
    """Seconds that operations take on the slowest rank.  CaseFailed if the time is not reliable.

    Several processes start together, by a barrier, and no gate opens before all have enqueued.
    """

    region = 1.5e-3  # a sample has one start of a graph in it, of some microseconds
    limits = Limits(1e-7, 1e14, "five times the bandwidth of any GPU's memory or cache")

    def __init__(
        self, cuda: Cuda, team: Team, streams: Mapping[int, Stream], gate: StartGate, memory: RankMemory, graph: bool
    ) -> None:
        self._cuda, self._team, self.graphs = cuda, team, graph
        self.memories = [memory]  # a kernel that gives up says so in a window of these
        self.by_rank, self._streams = streams, list(streams.values())
        self.besides: Sequence[Stream] = ()  # further streams to wait for, neither captured nor timed
        self._gate = gate
        self._crowd = max(Counter(rank_stream.device for rank_stream in self._streams).values())  # streams of a GPU
        self.may_give_up = False  # whether kernels that wait for other ranks were launched
        self._graphs: OrderedDict[tuple[Prepared, int], Captured] = OrderedDict()
        self.clocks = DeviceClocks(cuda)
        self.scheduled = SchedulingWatch()  # unused on GPUs: ranks need no CPU core
        self.doing = ""  # the call that goes on; read by another thread if it hangs

    def time(self, prepared: Prepared, launches: int) -> float:
        """Time a graph's replay, or launches, by two events a stream; host-driven operations by the host's clock.

        CaseFailed if CUDA or NCCL fails, or a kernel gave up.
        """
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while it ran"):
            if prepared.host_driven:
                seconds = self.on_host(prepared, launches)
            elif self.graphs and not prepared.notes_moments:
                seconds = max(self.of_graph(prepared, launches).values(), default=0.0)
            elif self.graphs and len(self._streams) <= _GATED:
                self.set_clocks()  # or the first moment would, and wait for a stream that the gate holds
                seconds = max(self.behind_gate(prepared, launches).values())
            else:
                seconds = max(self.of_launches(prepared, launches).values(), default=0.0)
            self.refuse_given_up()
            slowest: float = max(self._team.exchange(seconds))
        self.doing = ""
        return slowest / launches

    def time_each(self, prepared: Prepared, launches: int) -> dict[int, float]:
        """Time launches without a graph on each rank's stream by itself, behind the gate."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while it ran"):
            # Gates of several processes open microseconds apart, after which peers meet in the first operation.
            taken = self.behind_gate(prepared, launches, 1)
            self.refuse_given_up()
        self.doing = ""
        return {rank: taken[rank_stream] for rank, rank_stream in self.by_rank.items()}

    def most_held(self, prepared: Prepared) -> int:
        """Return how many launches fit into a quarter of the launch queue while the gate is closed."""
        return max(1, LAUNCH_QUEUE // 4 // (_ENTRIES * max(1, prepared.groups) * self._crowd))

    def refuse_given_up(self) -> None:
        """Raise TimedOut if a kernel gave up: then it left a one in the first word of its rank's window."""
        windows = product(self.memories, self.by_rank.items()) if self.may_give_up else ()
        for memory, (rank, rank_stream) in windows:
            if rank_stream.fetch(memory.address(Region.WINDOW, rank), np.zeros(1, np.uint32))[0]:
                raise TimedOut(f"a rank waited in vain for another's flag (rank {rank})")

    def enqueue_seconds(self, prepared: Prepared) -> float | None:
        """Return the shortest of a few launches without a graph, on the slowest process."""
        if prepared.host_driven:
            return None
        seconds = []
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while it was enqueued"):
            for _ in range(_ENQUEUED):
                self.wait()
                self._team.meet()
                begun = time.perf_counter()
                prepared.launch(1)
                seconds.append(time.perf_counter() - begun)
            self.wait()
        return float(max(self._team.exchange(min(seconds))))

    def plan(self, prepared: Prepared) -> None:
        """Capture one launch and forget it, or carry it out where nothing is captured."""
        if self.graphs:
            self._capture(prepared, 1)
        else:
            prepared.launch(1)
            self.wait()

    def moment(self, rank: int) -> Moment:
        """Record an event on the rank's stream; clocks of devices are set by the host's, to a few microseconds."""
        return self.clocks.moment(self.by_rank[rank])

    def set_clocks(self) -> float:
        """Set the clocks of devices by the host's: they gain or lose microseconds on it in a second."""
        return self.clocks.set(self._streams)

    def on_host(self, prepared: Prepared, launches: int) -> float:
        """Return seconds by the host's clock until everything is done, for operations that the host drives."""
        self.wait()
        self.doing = f"{launches:,} operations that the host drives"
        self._team.meet()
        start = time.perf_counter()
        prepared.launch(launches)
        self.wait()
        return time.perf_counter() - start

    def of_launches(self, prepared: Prepared, launches: int) -> dict[Stream, float]:
        """Return seconds of one launch after the other, at the host's pace as in an application."""
        self._forget()
        self.doing = f"{launches:,} launches without a graph"
        self._team.meet()
        for rank_stream in self._streams:
            rank_stream.start.record(rank_stream.enter())
        prepared.launch(launches)
        used = [rank_stream for rank_stream in self._streams if rank_stream.used]
        for rank_stream in used:
            rank_stream.end.record(rank_stream.enter())
        return self._elapsed(used)

    def behind_gate(self, prepared: Prepared, launches: int, untimed: int = 0) -> dict[Stream, float]:
        """Return seconds of launches that all processes enqueue before the first begins: the devices' pace alone."""
        self.doing = f"{launches:,} launches behind the gate, without a graph"
        self._team.meet()
        self._gate.close(self._streams)
        try:
            if untimed:
                prepared.launch(untimed)
            for rank_stream in self._streams:
                rank_stream.start.record(rank_stream.enter())
            prepared.launch(launches)
            for rank_stream in self._streams:
                rank_stream.end.record(rank_stream.enter())
            self._team.meet()
        finally:
            self._gate.open()
        why = "the host takes seconds to enqueue a sample: use larger messages, or a process for each rank (mpirun)"
        return self._held(self._streams, why)

    def of_graph(self, prepared: Prepared, launches: int) -> dict[Stream, float]:
        """Return seconds of `launches` launches, in graphs that are replayed in sequence."""
        most = min(launches, self._most_launches(prepared))
        sizes = [most] * (launches // most)
        if rest := launches % most:
            sizes.append(rest)
        first, *later = [self._graph_of(prepared, size) for size in sizes]
        streams = [rank_stream for rank_stream, _ in first.graphs]
        self._team.meet()
        self._gate.close(streams)
        try:
            for rank_stream in streams:
                rank_stream.start.record(rank_stream.enter())
            self.doing = f"replay, after 0 of {launches:,} launches"
            self._launch(first, last=not later)
            self._team.meet()
        finally:
            self._gate.open()
        # The gate is open and every rank has the previous replay, so a full queue drains.
        for number, captured in enumerate(later, 1):
            self.doing = f"replay, after {number * most:,} of {launches:,} launches"
            self._launch(captured, last=number == len(later))
        self.doing = f"replay, after all of {launches:,} launches"
        return self._held(streams, "the host was too slow to start all ranks together: nothing was measured; try again")

    def _launch(self, captured: Captured, last: bool) -> None:
        """Launch the graph of every stream; behind the last one comes the event that ends the time."""
        for rank_stream, graph in captured.graphs:
            stream = rank_stream.enter()
            graph.launch(stream)
            if last:
                rank_stream.end.record(stream)

    def _most_launches(self, prepared: Prepared) -> int:
        """Return how many launches of an operation a graph may have, given its nodes in this process."""
        known = next((captured for (of, _), captured in self._graphs.items() if of == prepared), None)
        captured = known or self._graph_of(prepared, 1)
        streams = len(self._streams if prepared.one_graph else captured.graphs)
        if streams < 2 and self._team.size == 1:
            return sys.maxsize

        # A single graph waits for no other: 256 operations of 40 nodes gave right times on an H100.
        nodes = max(1, streams * prepared.groups, 0 if prepared.one_graph else captured.nodes)
        return max(1, LAUNCH_QUEUE // 4 // nodes)

    def _graph_of(self, prepared: Prepared, launches: int) -> Captured:
        """Return the graphs of `launches` launches; the latest are held."""
        key = prepared, launches
        if key not in self._graphs:
            self.doing = f"capture of {launches:,} launches"
            self._graphs[key] = self._capture(prepared, launches)
        self._graphs.move_to_end(key)
        while len(self._graphs) > _MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return self._graphs[key]

    def wait(self) -> None:
        """Until everything enqueued is done."""
        for rank_stream in (*self._streams, *self.besides):
            rank_stream.enter().synchronize()
        self.clocks.forget()

    def wait_at_most(self, seconds: float) -> bool:
        """Wait with a limit; return whether all is done.  CaseFailed if any GPU failed."""
        begun = time.monotonic()
        while self._busy():
            if (passed := time.monotonic() - begun) > seconds:
                return False
            time.sleep(min(max(_SHORTEST_PAUSE, passed / 10), _PAUSE))
        self.wait()
        return True

    def _busy(self) -> bool:
        """Whether any stream has work left; CaseFailed if a GPU failed."""
        # All are asked, since one may wait for ever for a GPU that failed.  CuPy's `Stream.done` would take a failure
        # for work that is not done yet.
        statuses = [self._cuda.runtime.streamQuery(rank_stream.enter().ptr) for rank_stream in self._streams]
        for rank_stream, status in zip(self._streams, statuses, strict=True):
            if status not in (_SUCCESS, _NOT_READY):
                with self._cuda.failing_as(CaseFailed, f"GPU {rank_stream.device}"):
                    rank_stream.enter().synchronize()  # raises the error of the status
        return _NOT_READY in statuses

    def drop_graphs(self) -> None:
        """Forget what was captured: NCCL waits for that before it lets go of a communicator."""
        self._graphs.clear()

    def _capture(self, prepared: Prepared, launches: int) -> Captured:
        # Uploaded, so that the first replay is like all others; not replayed, since in place data changes.
        graphs = self._together(prepared, launches) if prepared.one_graph else self._apart(prepared, launches)
        captured = Captured(graphs, launches)
        for rank_stream, graph in captured.graphs:
            graph.upload(rank_stream.enter())
        self.wait()
        return captured

    def _apart(self, prepared: Prepared, launches: int) -> list[tuple[Stream, Any]]:
        self._forget()
        for rank_stream in self._streams:
            rank_stream.enter().begin_capture()
        prepared.launch(launches)
        ended = [(rank_stream, rank_stream.enter().end_capture()) for rank_stream in self._streams]
        return [(rank_stream, graph) for rank_stream, graph in ended if rank_stream.used]

    def _together(self, prepared: Prepared, launches: int) -> list[tuple[Stream, Any]]:
        # A stream joins the capture by waiting for a stream in it, and must come back likewise.
        first, *others = self._streams
        first.enter().begin_capture()
        fork = first.mark()
        for rank_stream in others:
            rank_stream.enter().wait_event(fork)
        prepared.launch(launches)
        for rank_stream in others:
            join = rank_stream.mark()
            first.enter().wait_event(join)
        return [(first, first.enter().end_capture())]

    def _forget(self) -> None:
        for rank_stream in self._streams:
            rank_stream.used = False

    def _held(self, streams: Sequence[Stream], failure: str) -> dict[Stream, float]:
        """Return the seconds of what the gate held back; CaseFailed if the gate timed out."""
        taken = self._elapsed(streams)
        if self._gate.timed_out:
            raise CaseFailed(failure)
        return taken

    def _elapsed(self, streams: Sequence[Stream]) -> dict[Stream, float]:
        """Return the seconds between the two events of each stream, once all are done."""
        self.wait_at_most(math.inf)  # the supervisor has a limit
        between = self._cuda.cupy.cuda.get_elapsed_time
        return {rank_stream: 1e-3 * float(between(rank_stream.start, rank_stream.end)) for rank_stream in streams}


Seen = TypeVar("Seen")
Answer = TypeVar("Answer")

_LOOKS = 5  # at the clock of a device, of which the closest counts
_FRESH = 4.0
"""Seconds after which a device's clock is set anew: CUDA returns milliseconds as a 32-bit float, exact to half a
microsecond over this time, and the clocks of devices and host drift apart."""


def closest(look: Callable[[], Seen], read: Callable[[Seen], Answer]) -> tuple[float, Answer, float]:
    """Return the host time of the quickest of several readings, its value, and the error in seconds."""
    # The event lies within the reading, so the middle is off by at most half of its duration.
    answers: list[Answer] = []
    shortest, at = math.inf, 0.0
    for _ in range(_LOOKS):
        begun = time.perf_counter()
        seen = look()
        if (elapsed := time.perf_counter() - begun) < shortest:
            shortest, at = elapsed, begun + elapsed / 2
            answers.append(read(seen))
    return at, answers[-1], shortest / 2


@dataclass
class _Tie:
    """An event and when it was reached; once there is another, the rate between them."""

    event: Any
    at: float
    rate: float = 1.0  # seconds of the host in one of the device


class DeviceClocks:
    """The clocks of a process's devices, tied to the host's."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._ties: dict[int, _Tie] = {}  # the latest, by device

    def moment(self, rank_stream: Stream) -> Moment:
        """Return a function for the host time at which the stream gets here; the next tie makes it more exact."""
        if rank_stream.device not in self._ties:
            self._tie(rank_stream)
        tie, event = self._ties[rank_stream.device], self._event(rank_stream)
        return lambda: tie.at + tie.rate * self._elapsed(tie.event, event)

    def set(self, streams: Iterable[Stream]) -> float:
        """Tie every device's clock to the host's anew; return the largest error of the ties in seconds."""
        by_device = {rank_stream.device: rank_stream for rank_stream in streams}
        return max(map(self._tie, by_device.values()))

    def forget(self) -> None:
        """Forget ties that are too old."""
        since = time.perf_counter() - _FRESH
        self._ties = {device: tie for device, tie in self._ties.items() if tie.at > since}

    def _tie(self, rank_stream: Stream) -> float:
        """Tie a device's clock to the host's by the quickest of several tries; return the error in seconds."""
        rank_stream.enter().synchronize()
        before = self._ties.get(rank_stream.device)

        def look() -> Any:
            event = self._event(rank_stream)
            rank_stream.enter().synchronize()
            return event

        at, event, error = closest(look, lambda seen: seen)
        tie = _Tie(event, at)
        if before and (passed := self._elapsed(before.event, tie.event)) > 0:
            before.rate = (tie.at - before.at) / passed
        self._ties[rank_stream.device] = tie
        return error

    def _elapsed(self, first: Any, second: Any) -> float:
        return float(self._cuda.cupy.cuda.get_elapsed_time(first, second)) * 1e-3

    def _event(self, rank_stream: Stream) -> Any:
        # An event belongs to the device that is current when it is made.
        stream = rank_stream.enter()
        event = self._cuda.cupy.cuda.Event()
        event.record(stream)
        return event
