"""Runs of steps by several sets of ranks, or by none: scaling, overlap, and both predicted by a model.

All sets are there at once and take turns, so that drift of the machine cancels in the ratios of their times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from collbench.algorithms import implementations, is_library
from collbench.cases import COMMUNICATE, COMPUTE, SEQUENTIAL, STRONG, WEAK, Case, Step, Sweep
from collbench.errors import Unsupported
from collbench.measure.interleave import Arm, Interleaving
from collbench.measure.predicted import NAME, topology_record
from collbench.measure.protocol import WorkerHello
from collbench.measure.schedules import overlapping
from collbench.measure.supervisor import Supervisor
from collbench.model.steps import on_ranks, step_time
from collbench.platforms.gpu.nccl import LIMIT
from collbench.results import Result, Skipped
from collbench.runfile.environment import UNCHANGED, Setting
from collbench.topology.system import System

MODES = {
    WEAK: "every rank computes as much, however many there are",
    STRONG: "all ranks together compute as much, however many there are",
}


@dataclass(frozen=True)
class Scaling:
    """A step on several numbers of ranks, in one of the MODES or several; one rank alone communicates nothing."""

    sweep: Sweep  # of the largest number of ranks, with the step of one rank alone
    ranks: tuple[int, ...]  # ascending
    modes: tuple[str, ...] = (WEAK,)

    @property
    def step(self) -> Step:
        """Return the step of one rank alone."""
        step = self.sweep.steps[0]
        assert step
        return step

    def sweep_of(self, ranks: int) -> Sweep:
        """Return what so many ranks measure, in the order of the modes."""
        names = self.sweep.implementations if ranks > 1 else self.sweep.implementations[:1]
        steps = tuple(step_on(self.step, ranks, mode) for mode in self.modes)
        return replace(self.sweep, ranks=ranks, implementations=names, steps=tuple(dict.fromkeys(steps)))

    def cases(self, mode: str) -> list[tuple[Case, ...]]:
        """Return the cases of a mode: for every size, one for each number of ranks."""
        sweeps = [replace(self.sweep_of(ranks), steps=(step_on(self.step, ranks, mode),)) for ranks in self.ranks]
        return list(zip(*(sweep.cases() for sweep in sweeps), strict=True))


def step_on(step: Step, ranks: int, mode: str) -> Step:
    """Return what each of so many ranks does, where *step* is that of one rank alone."""
    share = ranks if mode == STRONG else 1
    return replace(
        step,
        products=max(1, round(step.products / share)) if step.products else 0,
        seconds=step.seconds / share,
        slow=tuple((rank, factor) for rank, factor in step.slow if rank < ranks),
        schedule=COMPUTE if ranks == 1 else step.schedule,
        mode=mode,
    )


class ScalingRun:
    """The ranks of a scaling, as a Session needs them."""

    def __init__(self, platform: str, scaling: Scaling) -> None:
        sweeps = [scaling.sweep_of(ranks) for ranks in scaling.ranks]
        self._arms = [Arm(Supervisor(platform, sweep), sweep, f"{sweep.ranks} ranks") for sweep in sweeps]
        self._turns = [Interleaving(platform, self._arms, scaling.cases(mode)) for mode in scaling.modes]
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        self._turns[0].__enter__()
        pids = tuple(pid for arm in self._arms for pid in arm.ranks.greeting.pids)
        self.greeting = replace(self._arms[-1].ranks.greeting, pids=pids)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._turns[0].__exit__(*exception)

    def run(self) -> Iterator[Result]:
        """Yield every result: those of a mode and size from the fewest ranks to the most."""
        for turns in self._turns:
            yield from _results(turns)


def overlap_steps(step: Step, platform: str, buckets: Sequence[int], ctas: Sequence[int] = ()) -> tuple[Step, ...]:
    """Return the step's parts alone, one after the other, and by every schedule that overlaps with every bucket size.

    The overlapped steps come once with as many CTAs as the library likes, and once for every limit of CTAs.
    """
    steps = [replace(step, schedule=name, bucket=0) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL)]
    for limit in (0, *ctas):
        for name in overlapping(platform):
            steps += [replace(step, schedule=name, bucket=bucket, ctas=limit) for bucket in buckets]
    return tuple(steps)


class OverlapRun:
    """The ranks of a sweep whose steps take turns, as a Session needs them.

    NCCL reads once in the life of a process how many CTAs it may use, so every limit has ranks of its own.
    """

    def __init__(self, platform: str, sweep: Sweep) -> None:
        ranks: dict[int, Supervisor] = {}
        arms = []
        for step, part in _sweep_of_each_step(sweep):
            if step.ctas not in ranks:
                ranks[step.ctas] = Supervisor(platform, sweep, _limited(step.ctas))
            arms.append(Arm(ranks[step.ctas], part, f"{LIMIT}={step.ctas}" if step.ctas else ""))
        self._ranks, self._turns = ranks[0], Interleaving(platform, arms)
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        self._turns.__enter__()
        self.greeting = self._ranks.greeting
        return self

    def __exit__(self, *exception: Any) -> None:
        self._turns.__exit__(*exception)

    def run(self) -> Iterator[Result]:
        """Yield every result: of a size the steps in their order."""
        yield from _results(self._turns)


def _limited(ctas: int) -> Setting:
    return Setting(((LIMIT, str(ctas)),)) if ctas else UNCHANGED


def _sweep_of_each_step(sweep: Sweep) -> Iterator[tuple[Step, Sweep]]:
    """Yield every step with its sweep, which has a share of the budget; only libraries heed the limit of CTAs."""
    share = replace(sweep.sampling, budget=sweep.sampling.budget / len(sweep.steps))
    for step in sweep.steps:
        assert step
        names = sweep.implementations
        if step.ctas:
            names = tuple(name for name in names if is_library(name))
        if step.schedule == COMPUTE:
            names = names[:1]
        yield step, replace(sweep, steps=(step,), implementations=names, sampling=share)


def _results(turns: Interleaving) -> Iterator[Result]:
    for number, cases in enumerate(turns.cases):
        for place, _ in enumerate(cases):
            yield from turns.results(number, place)


class PredictedSteps:
    """The steps of a sweep on as much of a described system, by a model, as a Session needs them.

    All is predicted on entering, so that a UsageError comes before anything is written.
    """

    def __init__(self, system: System, sweep: Sweep, noise: float, scaling: Scaling | None = None) -> None:
        self._system, self._sweep, self._noise, self._scaling = system, sweep, noise, scaling
        self._results: list[Result] = []
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        rows = _scaled_rows(self._scaling) if self._scaling else _rows(self._sweep)
        self._results = [self._predict(case, name) for case, name in rows]
        largest = on_ranks(self._system, self._sweep.ranks)
        self.greeting = WorkerHello(topology_record(largest), {"numpy": np.__version__})
        return self

    def __exit__(self, *exception: Any) -> None:
        """End nothing: there are no ranks."""

    def run(self) -> Iterator[Result]:
        """Yield every result, in the order of measured ones."""
        yield from self._results

    def _predict(self, case: Case, name: str) -> Result:
        try:
            for _, bucket in case.buckets():
                implementations()[name].refuse(bucket)
            return step_time(self._system, case, name, self._noise)
        except Unsupported as error:
            return Skipped(case, name, NAME, str(error))


def _rows(sweep: Sweep) -> Iterator[tuple[Case, str]]:
    for case in sweep.cases():
        alone = case.step and case.step.schedule == COMPUTE
        for name in sweep.implementations[:1] if alone else sweep.implementations:
            yield case, name


def _scaled_rows(scaling: Scaling) -> Iterator[tuple[Case, str]]:
    for mode in scaling.modes:
        for cases in scaling.cases(mode):
            for case in cases:
                for name in scaling.sweep_of(case.ranks).implementations:
                    yield case, name
