"""`communicate`: the communicating of a step alone, bucket by bucket: the other side of what overlap can reach."""

from collections.abc import Callable

from collbench.schedules import Moments, Parts, Schedule
from collbench.steps import COMMUNICATE


def _prepare(parts: Parts) -> Callable[[], Moments]:
    platform = parts.platform
    launches = [operation.launch for operation in parts.operations]

    def step() -> Moments:
        begun = [platform.moment(rank) for rank in platform.local]
        for launch in launches:
            launch(1)
        platform.spread_queues()
        return list(zip(begun, (platform.moment(rank) for rank in platform.local), strict=True))

    return step


SCHEDULE = Schedule(COMMUNICATE, "communicate, and compute nothing", _prepare, computes=False)
