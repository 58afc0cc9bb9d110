"""`compute`: the computing of a step alone, as on one rank, and as the shorter side of what overlap can reach."""

from collections.abc import Callable

from collbench.schedules import Moments, Parts, Schedule
from collbench.steps import COMPUTE


def _prepare(parts: Parts) -> Callable[[], Moments]:
    platform, products = parts.platform, parts.products
    work = [(rank, sum(counts)) for rank, counts in zip(platform.local, parts.computed, strict=True)]

    def step() -> Moments:
        for rank, count in work:
            products.enqueue(rank, count)
        return [(computed, computed) for computed in (platform.moment(rank) for rank in platform.local)]

    return step


SCHEDULE = Schedule(COMPUTE, "compute, and communicate nothing", _prepare, communicates=False)
