"""Runs of steps: by several sets of ranks, scaling and overlap; and on a described system.

All sets are there at once and take turns, so that drift of the machine cancels in the ratios of their times.  On a
described system a model says what computing, waiting for the slowest GPU and communication take.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.algorithms import implementations
from collbench.cases import Case, Sweep
from collbench.commands.step.rows import StepPrediction
from collbench.commands.step.schedules import overlapping
from collbench.commands.step.work import COMMUNICATE, COMPUTE, SEQUENTIAL, STRONG, WEAK, Step, buckets, step_of
from collbench.errors import Unsupported
from collbench.measure.interleave import Arm, Interleaving
from collbench.measure.predicted import NAME, Predicted, topology_record
from collbench.measure.supervisor import Supervisor
from collbench.model.predict import CONTENTION, NOISE, network_curve, on_ranks, slowest
from collbench.results import Result
from collbench.results.collectives import Skipped
from collbench.topology.system import System
from collbench.units import counted

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

    def sweep_of(self, ranks: int, modes: Sequence[str]) -> Sweep:
        """Return what so many ranks measure, in the order of the modes."""
        alone = self.sweep.works[0]
        assert isinstance(alone, Step)
        steps = tuple(dict.fromkeys(step_on(alone, ranks, mode) for mode in modes))
        names = communicators(steps[0], self.sweep.implementations)
        return replace(self.sweep, ranks=ranks, implementations=names, works=steps)

    def cases(self) -> list[tuple[Case, ...]]:
        """Return the cases that are compared: for every mode and size, one for each number of ranks."""
        compared: list[tuple[Case, ...]] = []
        for mode in self.modes:
            by_ranks = [self.sweep_of(ranks, [mode]).cases() for ranks in self.ranks]
            compared += zip(*by_ranks, strict=True)
        return compared


def communicators(step: Step, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the implementations that a step is measured with: any one of them where it only computes."""
    return names[:1] if step.schedule == COMPUTE else names


def step_on(step: Step, ranks: int, mode: str) -> Step:
    """Return what each of so many ranks does, where *step* is that of one rank alone."""
    share = ranks if mode == STRONG else 1
    # Products are whole: what rounding adds or takes away is in `share_of` of an efficiency.
    return replace(
        step,
        products=max(1, round(step.products / share)) if step.products else 0,
        seconds=step.seconds / share,
        slow=tuple((rank, factor) for rank, factor in step.slow if rank < ranks),
        schedule=COMPUTE if ranks == 1 else step.schedule,
        mode=mode,
    )


def scaling_run(platform: str, scaling: Scaling, folder: Path | None = None) -> Interleaving:
    """Return the ranks of a scaling, as a Session needs them; its results come by mode, by size and by ranks."""
    arms = []
    for ranks in scaling.ranks:
        sweep = scaling.sweep_of(ranks, scaling.modes)
        arms.append(Arm((Supervisor(platform, sweep, folder=folder),), sweep, f"{counted(ranks, 'rank')}"))
    return Interleaving(platform, arms, scaling.cases(), first=-1)  # the topology of all


def overlap_steps(step: Step, platform: str, sizes: Sequence[int]) -> tuple[Step, ...]:
    """Return the step's parts alone, one after the other, and by every schedule that overlaps at every bucket size."""
    steps = [replace(step, schedule=name, bucket=0) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL)]
    for name in overlapping(platform):
        steps += [replace(step, schedule=name, bucket=size) for size in sizes]
    return tuple(steps)


def overlap_run(platform: str, sweep: Sweep, folder: Path | None = None) -> Interleaving:
    """Return the ranks of a sweep whose steps take turns, as a Session needs them; each has a share of the budget."""
    # One set of ranks measures all steps, so each way to carry a step out is an arm of its own.
    ranks = Supervisor(platform, sweep, folder=folder)
    share = replace(sweep.sampling, budget=sweep.sampling.budget / len(sweep.works))
    arms = []
    for step in sweep.works:
        assert isinstance(step, Step)
        part = replace(sweep, works=(step,), implementations=communicators(step, sweep.implementations), sampling=share)
        arms.append(Arm((ranks,), part))
    return Interleaving(platform, arms)


class PredictedSteps(Predicted):
    """The steps of a sweep, or in these cases by what the sweep names, on as much of a described system."""

    def __init__(self, system: System, sweep: Sweep, cases: Iterable[Case] = ()) -> None:
        results = []
        for case in cases or sweep.cases():
            for name in communicators(step_of(case), sweep.implementations):
                results.append(_step(system, case, name))
        super().__init__(topology_record(on_ranks(system, sweep.ranks)), results)


def _step(system: System, case: Case, name: str) -> Result:
    try:
        for _, bucket in buckets(case):
            implementations()[name].refuse(bucket)
        return step_time(system, case, name)
    except Unsupported as error:
        return Skipped(case, name, NAME, str(error))


def step_time(system: System, case: Case, implementation: str, noise: float = NOISE) -> StepPrediction:
    """Return a step on as many ranks of the system, by the schedule of the case's step.

    Parts that follow each other add up.  Where buckets overlap, a bucket goes out once it is computed and the bucket
    before has arrived, and computing meanwhile takes CONTENTION longer.  Unsupported where the model does not know the
    collective.
    """
    schedule, computing = step_of(case).schedule, step_of(case).seconds
    if case.ranks == 1 or schedule == COMPUTE:
        return StepPrediction(case, implementation, (computing, 0.0, 0.0), computing, computing)
    sent = network_curve(on_ranks(system, case.ranks), [part for _, part in buckets(case)], implementation)
    waiting = 0.0 if schedule == COMMUNICATE else computing * slowest(case.ranks, noise)
    expected = _parts(schedule, computing, [bucket.seconds for bucket in sent])
    return StepPrediction(
        case,
        implementation,
        (expected[0], waiting, expected[1]),
        low=sum(_parts(schedule, computing, [bucket.low for bucket in sent])) + waiting,
        high=sum(_parts(schedule, computing, [bucket.high for bucket in sent])) + waiting,
        algorithm=sent[0].algorithm,
        protocol=sent[0].protocol,
        note=sent[0].note,
    )


def _parts(schedule: str, computing: float, buckets: Sequence[float]) -> tuple[float, float]:
    """Return the seconds of computing, and of communicating after that; *buckets* are the seconds of each alone."""
    if schedule == COMMUNICATE:
        return 0.0, sum(buckets)
    if schedule == SEQUENTIAL:
        return computing, sum(buckets)
    # Only what is communicated while there is something to compute slows it: all buckets but the last, at most.
    slowed = computing + CONTENTION * min(computing, sum(buckets[:-1]))
    end = 0.0
    for place, seconds in enumerate(buckets, 1):
        end = max(end, slowed * place / len(buckets)) + seconds
    return slowed, end - slowed
