"""Streams, captures, graphs and events of the machine of cuda.py."""

import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from tools.stand_in import errors
from tools.stand_in.errors import CUDARuntimeError

if TYPE_CHECKING:
    from tools.stand_in.cuda import Machine

GREATEST_PRIORITY = -5  # of a stream, on an H100
QUEUE = 1024  # entries of a stream's launch queue


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

    def __init__(self, machine: "Machine", priority: int = 0) -> None:
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
            self.machine.deepest = max(self.machine.deepest, self._queued)
            while self._queued > QUEUE and not self.machine.stopping.is_set():
                self._room.wait(0.05)

    def _give_entry(self) -> None:
        with self._room:
            self._queued -= 1
            self._room.notify()

    def enqueue(self, run: Callable[[], None], event: threading.Event | None = None, queued: bool = False) -> None:
        """`queued`: in a graph it takes an entry of the launch queue, whatever else the graph has."""
        self.machine.refuse_broken()
        if self.device_id != self.machine.current:
            raise CUDARuntimeError(errors.BAD_HANDLE)
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
            return errors.CAPTURING
        if self.machine.broken:
            return self.machine.broken.status
        if self.machine.order is not None:
            self.machine.run_in_order(self)
        if self._tasks.unfinished_tasks:
            return errors.NOT_READY
        return errors.ILLEGAL_ADDRESS if self._failure else 0

    def synchronize(self) -> None:
        if self._capture is not None:
            raise CUDARuntimeError(errors.CAPTURING)
        self.machine.refuse_broken()
        self._tasks.join()
        if self.machine.order is not None:
            self.machine.run_in_order(self)
        if self._failure:
            raise self._failure

    def wait_event(self, event: "Event") -> None:
        if event._graph is None:
            if self._capture is not None:
                raise CUDARuntimeError(errors.ISOLATION)
            self.enqueue(lambda: None, event._recorded)
        elif event._graph.ended:
            raise CUDARuntimeError(errors.CAPTURED_EVENT)
        else:
            self._join(event._graph, event._after)

    def _join(self, graph: "Graph", after: frozenset[Task]) -> None:
        """Waiting for an event of a capture brings a stream into it."""
        if self._capture not in (None, graph):
            raise CUDARuntimeError(errors.MERGE)
        self._capture = graph
        self._tail |= after

    def begin_capture(self, mode: Any = None) -> None:
        assert mode is None, "CuPy's own, relaxed: whatever allocates may do so meanwhile"
        self.machine.refuse_broken()
        if self._capture is not None:
            raise CUDARuntimeError(errors.ILLEGAL_STATE)
        self._capture = Graph(self.machine, self)
        self.machine.captures += 1

    def end_capture(self) -> "Graph":
        graph = self._capture
        if graph is None:
            raise CUDARuntimeError(errors.ILLEGAL_STATE)
        if graph.origin is not self:
            raise CUDARuntimeError(errors.UNMATCHED)
        graph.ended = True
        joined = graph.reached(self._tail)
        for stream in self.machine.streams.values():
            if stream._capture is graph:
                stream._capture, stream._tail = None, frozenset()
        if not joined:
            raise CUDARuntimeError(errors.UNJOINED)
        return graph


class Graph:
    def __init__(self, machine: "Machine", origin: Stream | None = None) -> None:
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

    def debug_dot_str(self, flags: int = 0) -> str:
        lines = (
            f'"graph_1_node_{number}"[style="bold" shape="octagon" label="{number}"];'
            for number in range(len(self._nodes))
        )
        return "\n".join(["digraph dot {", *lines, "}"])

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
    def __init__(self, machine: "Machine", timed: bool) -> None:
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
            raise CUDARuntimeError(errors.BAD_HANDLE)
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
        raise CUDARuntimeError(errors.CAPTURED_EVENT)
    if not (start_event._timed and end_event._timed) or start_event._device != end_event._device:
        raise CUDARuntimeError(errors.BAD_HANDLE)
    if start_event._seconds is None or end_event._seconds is None:
        raise CUDARuntimeError(errors.BAD_HANDLE)
    if not (start_event._recorded.is_set() and end_event._recorded.is_set()):
        raise CUDARuntimeError(errors.NOT_READY)
    return 1e3 * (end_event._seconds - start_event._seconds)
