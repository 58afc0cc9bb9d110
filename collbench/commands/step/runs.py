"""Runs of steps by several sets of ranks: scaling and overlap.

All sets are there at once and take turns, so that drift of the machine cancels in the ratios of their times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.cases import Case, Sweep
from collbench.commands.step.schedules import overlapping
from collbench.commands.step.work import COMMUNICATE, COMPUTE, SEQUENTIAL, STRONG, WEAK, Step
from collbench.measure.interleave import Arm, Interleaving
from collbench.measure.supervisor import Supervisor
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


def overlap_steps(step: Step, platform: str, buckets: Sequence[int]) -> tuple[Step, ...]:
    """Return the step's parts alone, one after the other, and by every schedule that overlaps at every bucket size."""
    steps = [replace(step, schedule=name, bucket=0) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL)]
    for name in overlapping(platform):
        steps += [replace(step, schedule=name, bucket=bucket) for bucket in buckets]
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
