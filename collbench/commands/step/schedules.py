"""Schedules: how the computing and the communicating of a step go together.  A new one is a record in SCHEDULES."""

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
"""When local ranks had computed, and when they were done, in their order."""

RunStep = Callable[[], Moments]
"""Carries out one step, or enqueues it."""


@dataclass(frozen=True)
class Parts:
    """The parts of a step on the ranks that this process holds."""

    case: Case
    platform: Platform
    products: Products
    operations: Sequence[Prepared]  # one for each bucket

    @property
    def shares(self) -> list[tuple[int, list[int]]]:
        """Return every local rank with its products by bucket, which must be computed before that bucket goes out."""
        step = step_of(self.case)
        return [(rank, list(step.shares(len(self.operations), rank))) for rank in self.platform.local]

    def moments(self) -> list[Moment]:
        """Return the moments that the streams of the local ranks' collectives have reached."""
        return list(map(self.platform.clock.moment, self.platform.local))


@dataclass(frozen=True)
class StepSchedule:
    """One way to carry out a step."""

    name: str
    prepare: Callable[[Parts], RunStep]  # raises Unsupported where that cannot be
    platforms: tuple[str, ...] = ("gpu", "cpu")
    communicates: bool = True
    computes: bool = True
    overlaps: bool = False  # whether buckets are communicated while later ones are computed
    remark: Callable[[int], str] = lambda ranks: ""  # caveats with a number of ranks, for the reader


def _sender(parts: Parts) -> Callable[[int], None]:
    """Return a function that sends a bucket once all local ranks' streams have handed it over.

    All that it needs is looked up here, as steps may be short.
    """
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
    """Enqueue for each bucket the products that it waits for, by rank, and then the bucket."""
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
        # The next step's products would be of weights that these gradients change: they wait.
        for rank in computed:
            products.take_over(rank)
        return begun or list(computed.values()), done

    return step


def _sequential(parts: Parts) -> RunStep:
    everything = [(rank, sum(counts)) for rank, counts in parts.shares]
    if parts.platform.compute.queued:
        return _in_order(parts, [everything, *([] for _ in parts.operations[1:])])
    return _sequential_at_once(parts)


def _sequential_at_once(parts: Parts) -> RunStep:
    """Return the sequential step with little Python: steps of a CPU may last 20 us, and a call takes 0.3."""
    ((rank, shares),) = parts.shares
    enqueue, count, clock = parts.products.enqueue, sum(shares), time.perf_counter
    launches = [operation.launch for operation in parts.operations]

    def step() -> Moments:
        enqueue(rank, count)
        computed = clock()
        for launch in launches:
            launch(1)
        return [computed], [clock()]

    return step


def _stream(parts: Parts) -> RunStep:
    """Enqueue a bucket on one stream of a GPU while the next is computed on another.

    The host enqueues everything and waits for nothing, so implementations that it drives itself are left out.
    """
    if any(operation.host_driven for operation in parts.operations):
        raise Unsupported("the host drives it, and cannot enqueue what is to be computed meanwhile")
    work = []
    for bucket, _ in enumerate(parts.operations):
        work.append([(rank, counts[bucket]) for rank, counts in parts.shares])
    return _in_order(parts, work)


def _begin_and_finish(parts: Parts) -> RunStep:
    """Begin a bucket by MPI's non-blocking collectives once it is computed, and finish all at the end of the step.

    A library without a thread of its own goes on with them only while it is called.
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
    """Start the thread of this process that computes; it sleeps until it is given a task."""
    tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def work() -> None:
        os.sched_setaffinity(0, usable_cores())  # not the core to which this rank's first thread is bound
        while True:
            tasks.get()()

    threading.Thread(target=work, daemon=True, name="computes").start()
    return tasks


def _thread(parts: Parts) -> RunStep:
    """Compute in a second thread, and communicate in the first, which started MPI: MPI need not know of any other."""
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
    """Say where two threads of a rank take turns on a core; nothing where every thread has one."""
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
    """Raise Unsupported if the case's step cannot be carried out like that."""
    schedule = SCHEDULES[step_of(case).schedule]
    if implementation.path:
        raise Unsupported("its buffers are registered for single operations; steps measure nccl")
    if platform not in schedule.platforms:
        raise Unsupported(f"{schedule.name} runs on {', '.join(schedule.platforms)} only")
    for _, bucket in buckets(case) if schedule.communicates else ():
        implementation.refuse(bucket)
