"""`sequential`: first everything is computed, then everything is communicated, bucket by bucket."""

import time

from collbench.cases import SEQUENTIAL
from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf, sender


def _prepare(parts: Parts) -> StepOf:
    return _enqueued(parts) if parts.platform.compute.queued else _at_once(parts)


def _enqueued(parts: Parts) -> StepOf:
    products, send = parts.products, sender(parts)
    work = [(rank, sum(counts)) for rank, counts in parts.shares]

    def step(recorder: Recorder | None) -> Moments:
        computed = []
        for rank, count in work:
            begun = products.moment(rank) if recorder else 0.0
            products.enqueue(rank, count)
            computed.append(products.moment(rank))
            products.hand_over(rank)
            if recorder:
                recorder.computed(rank, 0, begun, computed[-1])
        for bucket, _ in enumerate(parts.operations):
            send(bucket, recorder)
        done = parts.moments()
        for rank, _ in work:
            products.take_over(rank)
        return computed, done

    return step


def _at_once(parts: Parts) -> StepOf:
    """The same with as little Python as there can be: steps of a CPU may last for 20 us, and a call of it takes 0.3."""
    ((rank, shares),) = parts.shares
    enqueue, count, clock = parts.products.enqueue, sum(shares), time.perf_counter
    launches, looked_at = [operation.launch for operation in parts.operations], _enqueued(parts)

    def step(recorder: Recorder | None) -> Moments:
        if recorder:
            return looked_at(recorder)
        enqueue(rank, count)
        computed = clock()
        for launch in launches:
            launch(1)
        return [computed], [clock()]

    return step


SCHEDULE = Schedule(SEQUENTIAL, "compute everything, then communicate", _prepare)
