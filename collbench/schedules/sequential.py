"""`sequential`: first everything is computed, then everything is communicated, bucket by bucket."""

from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf, send_all
from collbench.steps import SEQUENTIAL


def _prepare(parts: Parts) -> StepOf:
    products = parts.products
    work = [(rank, sum(counts)) for rank, counts in parts.shares]

    def step(recorder: Recorder | None) -> Moments:
        computed = []
        for rank, count in work:
            begun = products.moment(rank) if recorder else None
            products.enqueue(rank, count)
            computed.append(products.moment(rank))
            products.hand_over(rank)
            if recorder and begun:
                recorder.computed(rank, 0, begun, computed[-1])
        send_all(parts, recorder)
        done = parts.moments()
        for rank, _ in work:
            products.take_over(rank)
        return list(zip(computed, done, strict=True))

    return step


SCHEDULE = Schedule(SEQUENTIAL, "compute everything, then communicate", _prepare)
