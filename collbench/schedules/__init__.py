"""One file a way in which a step's computing and communicating go together; each defines SCHEDULE, found here."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.errors import Unsupported, unknown
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.products import Moment, Products
from collbench.results import COMMUNICATED, COMPUTED

Moments = tuple[list[Moment], list[Moment]]
"""When local ranks had computed, and when they were done, in their order."""


@dataclass
class Recorder:
    """Notes what local ranks did when, bucket by bucket, in a step that is looked at closely."""

    noted: list[tuple[int, str, int, Moment, Moment]] = field(default_factory=list)

    def computed(self, rank: int, bucket: int, begun: Moment, ended: Moment) -> None:
        """A rank computed what a bucket waits for."""
        self.noted.append((rank, COMPUTED, bucket, begun, ended))

    def communicated(self, rank: int, bucket: int, begun: Moment, ended: Moment) -> None:
        """A rank communicated a bucket."""
        self.noted.append((rank, COMMUNICATED, bucket, begun, ended))


StepOf = Callable[[Recorder | None], Moments]
"""Carries out one step, or enqueues it."""


@dataclass(frozen=True)
class Parts:
    """What a step is made of on the ranks that this process holds."""

    case: Case
    platform: Platform
    products: Products
    operations: Sequence[Prepared]  # one for each bucket

    @property
    def shares(self) -> list[tuple[int, list[int]]]:
        """Every local rank, with its products by bucket: what must be computed before that goes out."""
        step = self.case.step
        assert step
        return [(rank, list(step.shares(len(self.operations), rank))) for rank in self.platform.local]

    def moments(self) -> list[Moment]:
        """Of the queues of the local ranks' collectives."""
        return list(map(self.platform.clock.moment, self.platform.local))


@dataclass(frozen=True)
class Schedule:
    """One way to carry out a step."""

    name: str
    summary: str  # one line
    prepare: Callable[[Parts], StepOf]  # Unsupported where that cannot be
    platforms: tuple[str, ...] = ("gpu", "cpu")
    communicates: bool = True
    computes: bool = True
    overlaps: bool = False  # whether buckets are communicated while later ones are computed
    remark: Callable[[int], str] = lambda ranks: ""  # what a reader must know where there are so many ranks


Send = Callable[[int, Recorder | None], None]
"""Sends one bucket."""


def sender(parts: Parts) -> Send:
    """What sends a bucket once all local ranks' queues have handed it over; looked up once, as steps may be short."""
    gather, spread = parts.platform.compute.gather_queues, parts.platform.compute.spread_queues
    launches = [operation.launch for operation in parts.operations]

    def send(bucket: int, recorder: Recorder | None) -> None:
        begun = parts.moments() if recorder else []
        gather()
        launches[bucket](1)
        spread()
        if recorder:
            for rank, start, end in zip(parts.platform.local, begun, parts.moments(), strict=True):
                recorder.communicated(rank, bucket, start, end)

    return send


@cache
def schedules() -> dict[str, Schedule]:
    """Every schedule by name, as the files are called."""
    records: list[Schedule] = [
        importlib.import_module(f"{__name__}.{module.name}").SCHEDULE for module in pkgutil.iter_modules(__path__)
    ]
    return {record.name: record for record in records}


def overlapping(platform: str) -> list[str]:
    """The names of those that overlap on a platform."""
    return [name for name, schedule in schedules().items() if schedule.overlaps and platform in schedule.platforms]


def find_schedule(name: str) -> Schedule:
    """The schedule of that name; UsageError with the choices if there is none."""
    if name not in schedules():
        raise unknown("schedule", name, schedules())
    return schedules()[name]


def refuse(case: Case, implementation: Implementation, platform: str) -> None:
    """Unsupported if the case's step cannot be carried out like that."""
    assert case.step
    schedule = find_schedule(case.step.schedule)
    if platform not in schedule.platforms:
        raise Unsupported(f"{schedule.name} runs on {', '.join(schedule.platforms)} only")
    for _, bucket in case.buckets() if schedule.communicates else ():
        implementation.refuse(bucket)
