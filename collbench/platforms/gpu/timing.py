"""Graphs and clocks: how operations on several GPUs are started and timed.

Each rank has a stream of its own, and each stream is captured into a graph of its own, as nccl-tests does.  One graph
for all would be shorter, but ranks wait for each other inside their kernels, and CUDA is free to put two branches of a
graph into one queue, one after the other: then neither ends.  Streams have a queue each.  Where ranks wait for each
other's events instead, it is the other way round (`Prepared.one_graph`): the first rank's stream starts the one graph
and is done when all of it is, so that its two events tell how long the slowest rank took.

The host enqueues one graph after the other, which takes it microseconds for each device.  So that this is not
measured, a gate holds every stream back until the last graph is enqueued; each stream's own two events then tell how
long its rank took, and the slowest counts.
"""

import ctypes
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.errors import CaseFailed
from collbench.platforms.gpu.cuda import Cuda, Queue
from collbench.platforms.gpu.device_clocks import DeviceClocks
from collbench.platforms.processes import Team
from collbench.platforms.roles import Prepared

_KEPT = 32  # graphs, one for each implementation and number of launches; a graph holds a copy of all arguments
_TRIES = 2**22  # reads of host memory, a microsecond or two each, before a gate opens by itself: some seconds
_SUCCESS, _NOT_READY = 0, 600  # cudaSuccess, cudaErrorNotReady
_SHORTEST_PAUSE, _PAUSE = 2e-5, 1e-3  # seconds between two looks at streams that may never be done

Captured = list[tuple[Queue, Any]]


class StartGate:
    """A kernel that waits for a word in host memory, and an event behind it that streams wait for.

    Should the host take too long, it opens by itself and says so in a second word.
    """

    def __init__(self, cuda: Cuda, function: Any, device: int) -> None:
        self._runtime, self._function = cuda.runtime, function
        self._address = cuda.runtime.hostAlloc(8, cuda.runtime.hostAllocPortable | cuda.runtime.hostAllocMapped)
        self._words = (ctypes.c_uint32 * 2).from_address(self._address)
        self._queue = Queue(cuda, device)
        self._event = cuda.cupy.cuda.Event(disable_timing=True)

    def close(self, queues: Sequence[Queue]) -> None:
        """What is enqueued on these from now on waits."""
        self._words[:] = [0, 0]
        stream = self._queue.enter()
        self._function((1,), (1,), (np.uint64(self._address), np.uint64(_TRIES)), stream=stream)
        self._event.record(stream)
        for queue in queues:
            queue.enter().wait_event(self._event)

    def open(self) -> None:
        """Let them go."""
        self._words[0] = 1

    @property
    def timed_out(self) -> bool:
        """Whether it opened by itself; to be asked once the streams are done."""
        return bool(self._words[1])

    def free(self) -> None:
        """Give the word back."""
        if self._address:
            self._runtime.freeHost(self._address)
            self._address = 0


class Stopwatch:
    """Seconds that operations take on the slowest of this process's ranks.  CaseFailed where nothing sure was measured.

    Several processes set out together: each begins where all have arrived, and no gate opens before all have enqueued.
    """

    def __init__(self, cuda: Cuda, team: Team, queues: Sequence[Queue], gate: StartGate) -> None:
        self._cuda, self._team = cuda, team
        self._queues = queues
        self.besides: Sequence[Queue] = ()  # more that are waited for, but neither captured nor timed
        self._gate = gate
        self._graphs: OrderedDict[tuple[Prepared, int], Captured] = OrderedDict()
        self.clocks = DeviceClocks(cuda)

    def on_host(self, prepared: Prepared, launches: int) -> float:
        """By the host's clock, until everything is done: for operations that the host drives."""
        self.wait()
        self._team.meet()
        start = time.perf_counter()
        prepared.launch(launches)
        self.wait()
        return time.perf_counter() - start

    def of_launches(self, prepared: Prepared, launches: int) -> float:
        """One launch after the other, at the host's pace as an application would."""
        self._forget()
        self._team.meet()
        for queue in self._queues:
            queue.start.record(queue.enter())
        prepared.launch(launches)
        used = [queue for queue in self._queues if queue.used]
        for queue in used:
            queue.end.record(queue.enter())
        return self._slowest(used)

    def of_graph(self, prepared: Prepared, launches: int) -> float:
        """One replay of a graph of that many launches; nothing is carried out but this."""
        captured = self._captured(prepared, launches)
        self._team.meet()
        self._gate.close([queue for queue, _ in captured])
        try:
            for queue, graph in captured:
                stream = queue.enter()
                queue.start.record(stream)
                graph.launch(stream)
                queue.end.record(stream)
            self._team.meet()
        finally:
            self._gate.open()
        seconds = self._slowest([queue for queue, _ in captured])
        if self._gate.timed_out:
            raise CaseFailed("the host was too slow to start all ranks together: nothing was measured; try again")
        return seconds

    def wait(self) -> None:
        """Until everything enqueued is done."""
        for queue in (*self._queues, *self.besides):
            queue.enter().synchronize()
        self.clocks.forget()

    def wait_at_most(self, seconds: float) -> bool:
        """The same with a limit; whether it is done.  CaseFailed if a GPU failed, whichever others wait for it."""
        begun = time.monotonic()
        while self._busy():
            if (passed := time.monotonic() - begun) > seconds:
                return False
            time.sleep(min(max(_SHORTEST_PAUSE, passed / 10), _PAUSE))
        self.wait()
        return True

    def _busy(self) -> bool:
        """Whether any stream has work left; all are asked, since one may wait for ever for a GPU that failed.

        CuPy's `Stream.done` would take a failure for work that is not done yet.
        """
        statuses = [self._cuda.runtime.streamQuery(queue.enter().ptr) for queue in self._queues]
        for queue, status in zip(self._queues, statuses, strict=True):
            if status not in (_SUCCESS, _NOT_READY):
                with self._cuda.failing_as(CaseFailed, f"GPU {queue.device}"):
                    queue.enter().synchronize()  # which raises what the status means
        return _NOT_READY in statuses

    def drop_graphs(self) -> None:
        """Forget what was captured: NCCL waits for that before it lets go of a communicator."""
        self._graphs.clear()

    def _captured(self, prepared: Prepared, launches: int) -> Captured:
        key = prepared, launches
        if key not in self._graphs:
            self._graphs[key] = self._capture(prepared, launches)
        self._graphs.move_to_end(key)
        while len(self._graphs) > _KEPT:
            self._graphs.popitem(last=False)
        return self._graphs[key]

    def _capture(self, prepared: Prepared, launches: int) -> Captured:
        """Uploaded, so that the first replay is like all others; not replayed, since in place each one counts."""
        captured = self._together(prepared, launches) if prepared.one_graph else self._apart(prepared, launches)
        for queue, graph in captured:
            graph.upload(queue.enter())
        self.wait()
        return captured

    def _apart(self, prepared: Prepared, launches: int) -> Captured:
        """A graph of each stream that was used."""
        self._forget()
        for queue in self._queues:
            queue.enter().begin_capture()
        prepared.launch(launches)
        ended = [(queue, queue.enter().end_capture()) for queue in self._queues]
        return [(queue, graph) for queue, graph in ended if queue.used]

    def _together(self, prepared: Prepared, launches: int) -> Captured:
        """One graph: a stream comes into the capture by waiting for one that is in it, and must come back likewise."""
        first, *others = self._queues
        first.enter().begin_capture()
        fork = first.mark()
        for queue in others:
            queue.enter().wait_event(fork)
        prepared.launch(launches)
        for queue in others:
            join = queue.mark()
            first.enter().wait_event(join)
        return [(first, first.enter().end_capture())]

    def _forget(self) -> None:
        for queue in self._queues:
            queue.used = False

    def _slowest(self, queues: Sequence[Queue]) -> float:
        self.wait_at_most(math.inf)  # whoever watches over this process has a limit
        elapsed = [self._cuda.cupy.cuda.get_elapsed_time(queue.start, queue.end) for queue in queues]
        return float(max(elapsed, default=0.0)) * 1e-3  # where no rank of this process has a part in it, it has no time
