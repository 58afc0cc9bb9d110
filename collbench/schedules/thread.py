"""`thread`: a second thread of every rank computes, and the first communicates what is ready.

The thread that communicates is the one that started MPI, which need not know of any other then.  With a core for
either thread the one that communicates has a helper core; with fewer they take turns, which its note says.
"""

import os
import queue
import threading
import time
from collections.abc import Callable
from functools import cache

from collbench.platforms.processes import usable_cores
from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf

Task = Callable[[], None]


@cache
def _computing_thread() -> "queue.SimpleQueue[Task]":
    """The one of this process: it sleeps until it is given something."""
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()

    def work() -> None:
        os.sched_setaffinity(0, usable_cores())  # not the core to which this rank's first thread is bound
        while True:
            tasks.get()()

    threading.Thread(target=work, daemon=True, name="computes").start()
    return tasks


def _prepare(parts: Parts) -> StepOf:
    tasks, products = _computing_thread(), parts.products
    ((rank, shares),) = parts.shares
    ready: queue.SimpleQueue[tuple[float, float] | Exception] = queue.SimpleQueue()

    def compute() -> None:
        try:
            for share in shares:
                begun = time.perf_counter()
                products.enqueue(rank, share)
                ready.put((begun, time.perf_counter()))
        except Exception as error:  # the other thread raises it
            ready.put(error)

    def step(recorder: Recorder | None) -> Moments:
        tasks.put(compute)
        computed = 0.0
        for bucket, operation in enumerate(parts.operations):
            said = ready.get()
            if isinstance(said, Exception):
                raise said
            begun, computed = said
            sent = parts.platform.clock.moment(rank)
            operation.launch(1)
            if recorder:
                recorder.computed(rank, bucket, begun, computed)
                recorder.communicated(rank, bucket, sent, parts.platform.clock.moment(rank))
        return [computed], [parts.platform.clock.moment(rank)]

    return step


def remark(ranks: int) -> str:
    """What a reader must know of threads that have no core of their own; nothing where all have."""
    cores = len(usable_cores())
    return f"{2 * ranks} threads on {cores} cores" if cores < 2 * ranks else ""


SCHEDULE = Schedule(
    "thread", "one thread computes, another communicates", _prepare, platforms=("cpu",), overlaps=True, remark=remark
)
