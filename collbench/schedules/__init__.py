"""One file a way in which a step's computing and communicating go together; each defines SCHEDULE, found here."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from collbench.cases import Case
from collbench.errors import Unsupported, unknown
from collbench.implementations import Implementation
from collbench.platforms.products import Products
from collbench.platforms.roles import Moment, Platform, Prepared

Moments = list[tuple[Moment, Moment]]
"""When a rank had computed and when it was done, of every local rank."""


@dataclass(frozen=True)
class Parts:
    """What a step is made of on the ranks that this process holds."""

    case: Case
    platform: Platform
    products: Products
    operations: Sequence[Prepared]  # one for each bucket

    @property
    def computed(self) -> list[Sequence[int]]:
        """The products of every local rank, a number for each bucket: what must be computed before it goes out."""
        step = self.case.step
        assert step
        return [list(step.shares(len(self.operations), rank)) for rank in self.platform.local]


@dataclass(frozen=True)
class Schedule:
    """One way to carry out a step."""

    name: str
    summary: str  # one line
    prepare: Callable[[Parts], Callable[[], Moments]]
    """A function that carries out one step, or enqueues it; Unsupported where that cannot be."""
    platforms: tuple[str, ...] = ("gpu", "cpu")
    communicates: bool = True
    computes: bool = True


@cache
def schedules() -> dict[str, Schedule]:
    """Every schedule by name, as the files are called."""
    records: list[Schedule] = [
        importlib.import_module(f"{__name__}.{module.name}").SCHEDULE for module in pkgutil.iter_modules(__path__)
    ]
    return {record.name: record for record in records}


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
    for _, bucket in case.buckets():
        implementation.refuse(bucket)
