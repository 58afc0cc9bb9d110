"""A step one part after the other, overlapped in several ways, and its parts alone: all in turn.

The ranks are the same; but NCCL reads once in the life of a process how many CTAs it may use, so that every such number
has ranks of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from collbench.algorithms import is_library
from collbench.cases import COMMUNICATE, COMPUTE, SEQUENTIAL, Step, Sweep
from collbench.measure.interleave import Arm, Interleaving
from collbench.measure.protocol import WorkerHello
from collbench.measure.supervisor import Supervisor
from collbench.platforms.gpu.nccl import LIMIT
from collbench.results import Result
from collbench.runfile.environment import UNCHANGED, Setting
from collbench.schedules import overlapping


def ways(step: Step, platform: str, buckets: Sequence[int], ctas: Sequence[int] = ()) -> tuple[Step, ...]:
    """The step's parts alone, one after the other, and by every schedule that overlaps with every size of bucket.

    The latter once as the library likes, and once with at most so many CTAs for all numbers of them.
    """
    alone = (replace(step, schedule=name, bucket=0) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL))
    overlapped = (
        replace(step, schedule=name, bucket=bucket, ctas=most)
        for most in (0, *ctas)
        for name in overlapping(platform)
        for bucket in buckets
    )
    return (*alone, *overlapped)


class Overlapped:
    """The ranks of such a sweep, whose steps take turns, as a Session needs them."""

    def __init__(self, platform: str, sweep: Sweep) -> None:
        limits = dict.fromkeys(step.ctas for step in sweep.steps if step)
        ranks = {most: Supervisor(platform, sweep, _limited(most)) for most in limits}
        sides = [Arm(ranks[step.ctas], own, _name(step)) for step, own in _apart(sweep)]
        self._ranks, self._turns = ranks[0], Interleaving(platform, sides)
        self.greeting = WorkerHello()

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


def _limited(ctas: int) -> Setting:
    return Setting(((LIMIT, str(ctas)),)) if ctas else UNCHANGED


def _name(step: Step) -> str:
    return f"{LIMIT}={step.ctas}" if step.ctas else ""


def _apart(sweep: Sweep) -> Iterator[tuple[Step, Sweep]]:
    """Every step and its sweep, with a share of the budget; who computes alone, communicates by nobody's way.

    Only libraries heed the limit of CTAs.
    """
    share = replace(sweep.sampling, budget=sweep.sampling.budget / len(sweep.steps))
    for step in sweep.steps:
        assert step
        names = tuple(filter(is_library, sweep.implementations)) if step.ctas else sweep.implementations
        names = names[:1] if step.schedule == COMPUTE else names
        yield step, replace(sweep, steps=(step,), implementations=names, sampling=share)
