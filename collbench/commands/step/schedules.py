"""Schedules of computing and communication in a step.  A new one is a record in SCHEDULES."""

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.commands.step.work import COMMUNICATE, COMPUTE, SEQUENTIAL, buckets, step_of
from collbench.errors import Unsupported
from collbench.platforms.interface import Moment, Platform, Prepared, Products
from collbench.platforms.processes import usable_cores
from collbench.units import counted

Moments = tuple[list[Moment], list[Moment]]
"""When the local ranks finished computing, and when they finished the step, in their order."""

RunStep = Callable[[], Moments]
"""Executes or enqueues one step."""


@dataclass(frozen=True)
class Parts:
    """The parts of a step on this process's ranks."""

    case: Case
    platform: Platform
    products: Products
    operations: Sequence[Prepared]  # one for each bucket

    @property
    def shares(self) -> list[tuple[int, list[int]]]:
        """Return every local rank with its products by bucket; they are computed before that bucket is sent."""
        step = step_of(self.case)
        return [(rank, list(step.shares(len(self.operations), rank))) for rank in self.platform.local]

    def moments(self) -> list[Moment]:
        """Return the current moments of the local ranks' collective streams."""
        return list(map(self.platform.clock.moment, self.platform.local))


@dataclass(frozen=True)
class StepSchedule:
    """One way to execute a step."""

    name: str
    prepare: Callable[[Parts], RunStep]  # raises Unsupported if the schedule cannot run
    platforms: tuple[str, ...] = ("gpu", "cpu")
    communicates: bool = True
    computes: bool = True
    overlaps: bool = False  # whether buckets are communicated during the computing of later ones
    remark: Callable[[int], str] = lambda ranks: ""  # a caveat for the user at this number of ranks


def _sender(parts: Parts) -> Callable[[int], None]:
    """Return a function that sends a bucket once all local streams have handed it over; lookups precede the steps."""
    join = parts.platform.compute.join_streams
    launches = [operation.launch for operation in parts.operations]

    def send(bucket: int) -> None:
        join()
        launches[bucket](1)
        join()

    return send


def _compute(parts: Parts) -> RunStep:
    products = parts.products
    work = [(rank, sum(counts)) for rank, counts in parts.shares]

    def step() -> Moments:
        computed = []
        for rank, count in work:
            products.enqueue(rank, count)
            computed.append(products.moment(rank))
        return computed, computed

    return step


def _in_order(parts: Parts, work: Sequence[Sequence[tuple[int, int]]]) -> RunStep:
    """Return a step that enqueues, for each bucket, its products by rank and then the bucket."""
    products, send, idle = parts.products, _sender(parts), not any(work)

    def step() -> Moments:
        begun = parts.moments() if idle else []
        computed: dict[int, Moment] = {}
        for bucket, counts in enumerate(work):
            for rank, count in counts:
                products.enqueue(rank, count)
                computed[rank] = products.moment(rank)
                products.hand_over(rank)
            send(bucket)
        done = parts.moments()
        # The next step's products depend on these gradients, so they wait.
        for rank in computed:
            products.take_over(rank)
        return begun or list(computed.values()), done

    return step


def _sequential(parts: Parts) -> RunStep:
    """Return a step that computes everything, then sends the buckets."""
    everything = [(rank, sum(counts)) for rank, counts in parts.shares]
    if parts.platform.compute.queued:
        return _in_order(parts, [everything, *([] for _ in parts.operations[1:])])
    # A CPU step may last only 20 us, and a call takes 0.3 us: little Python.
    ((rank, count),) = everything
    enqueue, clock = parts.products.enqueue, time.perf_counter
    launches = [operation.launch for operation in parts.operations]

    def step() -> Moments:
        enqueue(rank, count)
        computed = clock()
        for launch in launches:
            launch(1)
        return [computed], [clock()]

    return step


def _stream(parts: Parts) -> RunStep:
    """Return a step that sends a bucket on one GPU stream while the next is computed on another.

    The host enqueues everything without waiting, so Unsupported for host-driven implementations.
    """
    if any(operation.host_driven for operation in parts.operations):
        raise Unsupported("the host drives it, and cannot enqueue products at the same time")
    shares = parts.shares
    work = [[(rank, counts[bucket]) for rank, counts in shares] for bucket in range(len(parts.operations))]
    return _in_order(parts, work)


def _begin_and_finish(parts: Parts) -> RunStep:
    """Return a step that begins a non-blocking MPI collective per computed bucket, and finishes all at its end.

    A library without a progress thread advances them only during calls.
    """
    pending = [operation.pending for operation in parts.operations if operation.pending]
    if len(pending) < len(parts.operations):
        raise Unsupported("it has no non-blocking form; choose mpi, or another schedule")
    products = parts.products
    ((rank, shares),) = parts.shares

    def step() -> Moments:
        computed: Moment = 0.0
        for share, operation in zip(shares, pending, strict=True):
            products.enqueue(rank, share)
            computed = products.moment(rank)
            operation.begin()
        for operation in pending:
            operation.finish()
        return [computed], [products.moment(rank)]

    return step


@cache
def _computing_thread() -> "queue.SimpleQueue[Callable[[], None]]":
    tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def work() -> None:
        os.sched_setaffinity(0, usable_cores())  # rather than the core of this rank's first thread
        while True:
            tasks.get()()

    threading.Thread(target=work, daemon=True, name="computes").start()
    return tasks


def _thread(parts: Parts) -> RunStep:
    """Return a step that computes in a second thread; the first, which initialised MPI, makes all MPI calls."""
    tasks, products, send = _computing_thread(), parts.products, _sender(parts)
    ((rank, shares),) = parts.shares
    ready: queue.SimpleQueue[float | Exception] = queue.SimpleQueue()

    def compute() -> None:
        try:
            for share in shares:
                products.enqueue(rank, share)
                ready.put(time.perf_counter())
        except Exception as error:  # raised by the first thread
            ready.put(error)

    def step() -> Moments:
        tasks.put(compute)
        computed = 0.0
        for bucket, _ in enumerate(parts.operations):
            answer = ready.get()
            if isinstance(answer, Exception):
                raise answer
            computed = answer
            send(bucket)
        return [computed], [parts.platform.clock.moment(rank)]

    return step


def _cores_shared(ranks: int) -> str:
    cores = len(usable_cores())
    return f"{2 * ranks} threads on {counted(cores, 'core')}" if cores < 2 * ranks else ""


_GPU, _CPU = ("gpu",), ("cpu",)
_EVERY = (
    StepSchedule(COMMUNICATE, lambda parts: _in_order(parts, [()] * len(parts.operations)), computes=False),
    StepSchedule(COMPUTE, _compute, communicates=False),
    StepSchedule("nonblocking", _begin_and_finish, _CPU, overlaps=True),
    StepSchedule(SEQUENTIAL, _sequential),
    StepSchedule("stream", _stream, _GPU, overlaps=True),
    StepSchedule("thread", _thread, _CPU, overlaps=True, remark=_cores_shared),
)
SCHEDULES = {schedule.name: schedule for schedule in _EVERY}
"""Every schedule by name."""


def overlapping(platform: str) -> list[str]:
    """Return the names of the schedules that overlap on a platform."""
    return [name for name, schedule in SCHEDULES.items() if schedule.overlaps and platform in schedule.platforms]


def refuse(case: Case, implementation: Implementation, platform: str) -> None:
    """Raise Unsupported if the schedule of the case cannot run with this implementation and platform."""
    schedule = SCHEDULES[step_of(case).schedule]
    if implementation.path:
        raise Unsupported("its buffers are registered for single operations; steps measure nccl")
    if platform not in schedule.platforms:
        raise Unsupported(f"{schedule.name} runs on {', '.join(schedule.platforms)} only")
    for _, bucket in buckets(case) if schedule.communicates else ():
        implementation.refuse(bucket)
