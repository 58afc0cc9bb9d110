"""The same step on several numbers of ranks, which take turns, so that drift of the machine cancels in the speedups.

One rank alone communicates nothing; all others carry out the step as it is.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

from collbench.cases import COMPUTE, STRONG, WEAK, Case, Step, Sweep
from collbench.measure.interleave import Arm, Interleaving, Measures
from collbench.measure.protocol import WorkerHello
from collbench.measure.supervisor import Supervisor
from collbench.results import Result

MODES = {
    WEAK: "every rank computes as much, however many there are",
    STRONG: "all ranks together compute as much, however many there are",
}


@dataclass(frozen=True)
class Scaling:
    """What is measured: a step, on so many ranks, in one of the MODES or several."""

    sweep: Sweep  # of the largest number of ranks, with the step of one rank alone
    ranks: tuple[int, ...]  # ascending
    modes: tuple[str, ...] = (WEAK,)

    @property
    def step(self) -> Step:
        """Of one rank alone."""
        step = self.sweep.steps[0]
        assert step
        return step

    def side(self, ranks: int) -> Sweep:
        """What so many ranks measure, in the order of the modes."""
        names = self.sweep.implementations if ranks > 1 else self.sweep.implementations[:1]
        steps = tuple(step_on(self.step, ranks, mode) for mode in self.modes)
        return replace(self.sweep, ranks=ranks, implementations=names, steps=tuple(dict.fromkeys(steps)))

    def cases(self, mode: str) -> list[tuple[Case, ...]]:
        """The cases of a mode: of every size one for each number of ranks."""
        sides = [replace(self.side(ranks), steps=(step_on(self.step, ranks, mode),)) for ranks in self.ranks]
        return list(zip(*(side.cases() for side in sides), strict=True))


def step_on(step: Step, ranks: int, mode: str) -> Step:
    """What every one of so many ranks does."""
    share = ranks if mode == STRONG else 1
    slow = tuple((rank, factor) for rank, factor in step.slow if rank < ranks)
    return replace(
        step,
        products=max(1, round(step.products / share)) if step.products else 0,
        seconds=step.seconds / share,
        slow=slow,
        schedule=COMPUTE if ranks == 1 else step.schedule,
        mode=mode,
    )


class Scaled:
    """The ranks of a scaling, as a Session needs them."""

    def __init__(self, platform: str, scaling: Scaling) -> None:
        self._scaling = scaling
        sweeps = [scaling.side(ranks) for ranks in scaling.ranks]
        self._sides = [Arm(_supervised(platform, own), own, f"{own.ranks} ranks") for own in sweeps]
        self._turns = [Interleaving(platform, self._sides, scaling.cases(mode)) for mode in scaling.modes]
        self._open = ExitStack()
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        self._open.enter_context(self._turns[0])
        pids = tuple(pid for side in self._sides for pid in side.ranks.greeting.pids)
        self.greeting = replace(self._sides[-1].ranks.greeting, pids=pids)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def run(self) -> Iterator[Result]:
        """Yield every result: those of a mode and size from the fewest ranks to the most."""
        for turns in self._turns:
            for number, cases in enumerate(turns.cases):
                for place, _ in enumerate(cases):
                    yield from turns.results(number, place)


def _supervised(platform: str, sweep: Sweep) -> Measures:
    return Supervisor(platform, sweep)
