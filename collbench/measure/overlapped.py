"""A step one part after the other, overlapped in several ways, and its parts alone: all by the same ranks, in turn."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from collbench.cases import Sweep
from collbench.measure.greeting import Greeting
from collbench.measure.supervisor import Supervisor
from collbench.measure.turns import Side, Turns
from collbench.measurement import Result
from collbench.schedules import overlapping
from collbench.steps import COMMUNICATE, COMPUTE, SEQUENTIAL, Step


def ways(step: Step, platform: str, buckets: Sequence[int]) -> tuple[Step, ...]:
    """The step's parts alone, one after the other, and by every schedule that overlaps with every size of bucket."""
    alone = (replace(step, schedule=name, bucket=0) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL))
    overlapped = (replace(step, schedule=name, bucket=bucket) for name in overlapping(platform) for bucket in buckets)
    return (*alone, *overlapped)


class Overlapped:
    """The ranks of such a sweep, whose steps take turns, as a Session needs them."""

    def __init__(self, platform: str, sweep: Sweep) -> None:
        self._ranks = Supervisor(platform, sweep)
        self._turns = Turns(platform, [Side(self._ranks, own) for own in _apart(sweep)])
        self.greeting = Greeting()

    def __enter__(self) -> Self:
        self._turns.__enter__()
        self.greeting = self._ranks.greeting
        return self

    def __exit__(self, *exception: Any) -> None:
        self._turns.__exit__(*exception)

    def run(self) -> Iterator[Result]:
        """Yield every result: of a size the steps in their order."""
        for number, cases in enumerate(self._turns.cases):
            for place, _ in enumerate(cases):
                yield from self._turns.results(number, place)


def _apart(sweep: Sweep) -> Iterator[Sweep]:
    """A sweep of every step, each with its share of the budget; who computes alone, communicates by nobody's way."""
    share = replace(sweep.sampling, budget=sweep.sampling.budget / len(sweep.steps))
    for step in sweep.steps:
        assert step
        names = sweep.implementations[:1] if step.schedule == COMPUTE else sweep.implementations
        yield replace(sweep, steps=(step,), implementations=names, sampling=share)
