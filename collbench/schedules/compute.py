"""`compute`: the computing of a step alone, as on one rank, and as the shorter side of what overlap can reach."""

from collbench.cases import COMPUTE
from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf


def _prepare(parts: Parts) -> StepOf:
    products = parts.products
    work = [(rank, sum(counts)) for rank, counts in parts.shares]

    def step(recorder: Recorder | None) -> Moments:
        computed = []
        for rank, count in work:
            begun = products.moment(rank)
            products.enqueue(rank, count)
            computed.append(products.moment(rank))
            if recorder:
                recorder.computed(rank, 0, begun, computed[-1])
        return computed, computed

    return step


SCHEDULE = Schedule(COMPUTE, "compute, and communicate nothing", _prepare, communicates=False)
