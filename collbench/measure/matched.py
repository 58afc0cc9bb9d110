"""Steps whose computing lasts as long as their collective alone, size by size: what OSU's non-blocking tests measure.

The times of the collectives are measured first, then a step of each size in turn with its parts alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

from collbench.cases import COMMUNICATE, COMPUTE, SEQUENTIAL, Step, Sweep
from collbench.errors import PlatformError
from collbench.measure.calibration import Work, products_for, seconds_of_products
from collbench.measure.session import Session
from collbench.measure.step_runs import OverlapRun
from collbench.results import Result
from collbench.results.collectives import Measurement


def matching(platform: str, sweep: Sweep) -> dict[int, Step]:
    """By size in bytes, the step that computes as long as the collective takes; PlatformError if none has a time."""
    seconds: dict[int, float] = {}
    with Session(platform, sweep, None, None) as session:
        for result in session.run():
            if isinstance(result, Measurement) and result.right:
                seconds[result.case.nbytes] = result.typical
    if not seconds:
        raise PlatformError(f"no size could be measured: {_reason(session.results)}")
    works = {nbytes: Work(seconds=taken) for nbytes, taken in seconds.items()}
    costs = seconds_of_products(Work(seconds=max(seconds.values())), platform, sweep, None)
    return {nbytes: products_for(work, costs) for nbytes, work in works.items()}


def _reason(results: list[Result]) -> str:
    reasons = (getattr(result, "reason", "") or getattr(result, "wrong", "") for result in results)
    return next(filter(None, reasons), "nothing was measured")


class Matched:
    """The ranks of such a sweep, anew for every size, as a Session needs them."""

    def __init__(self, platform: str, sweep: Sweep, steps: Mapping[int, Step], schedule: str) -> None:
        self._overlapped = [
            OverlapRun(platform, replace(sweep, sizes=(nbytes,), steps=self.ways(step, schedule)))
            for nbytes, step in steps.items()
        ]
        self._first = self._overlapped[0]
        self.greeting = self._first.greeting

    @staticmethod
    def ways(step: Step, schedule: str) -> tuple[Step, ...]:
        """The parts alone, one after the other, and as that schedule has it."""
        return tuple(replace(step, schedule=name) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL, schedule))

    def __enter__(self) -> Self:
        self._first.__enter__()
        self.greeting = self._first.greeting
        return self

    def __exit__(self, *exception: Any) -> None:
        self._first.__exit__(*exception)

    def run(self) -> Iterator[Result]:
        """Yield every result: size by size the steps in their order."""
        yield from self._first.run()
        for overlapped in self._overlapped[1:]:
            with overlapped as ranks:
                yield from ranks.run()
