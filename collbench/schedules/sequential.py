"""`sequential`: first everything is computed, then everything is communicated, bucket by bucket."""

from collections.abc import Callable

from collbench.schedules import Moments, Parts, Schedule
from collbench.steps import SEQUENTIAL


def _prepare(parts: Parts) -> Callable[[], Moments]:
    platform, products = parts.platform, parts.products
    launches = [operation.launch for operation in parts.operations]
    work = [(rank, sum(counts)) for rank, counts in zip(platform.local, parts.computed, strict=True)]

    def step() -> Moments:
        for rank, count in work:
            products.enqueue(rank, count)
        computed = [platform.moment(rank) for rank in platform.local]
        platform.gather_queues()
        for launch in launches:
            launch(1)
        platform.spread_queues()
        return list(zip(computed, (platform.moment(rank) for rank in platform.local), strict=True))

    return step


SCHEDULE = Schedule(SEQUENTIAL, "compute everything, then communicate", _prepare)
