"""Plans for other numbers of GPUs and for other systems."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.errors import CollbenchError
from collbench.notebook import Shown
from collbench.planner.curves import ModelCurves, Place
from collbench.planner.layouts import Choices
from collbench.planner.search import Planned, plan_on, resized
from collbench.planner.setting import Setting, machine_of
from collbench.topology.system import System


@dataclass(frozen=True)
class OnSystem(Shown):
    """The best layout on so many GPUs of a system, or the reason for having none."""

    system: Place
    gpus: int
    best: Planned | None
    reason: str = ""


def sizes(given: Setting, fixed: Choices, counts: Sequence[int]) -> Iterator[OnSystem]:
    """Yield the best layout for each number of GPUs, with the batch unchanged (strong scaling).

    A data-parallel size that is fixed follows the number of GPUs.
    """
    free = {name: value for name, value in fixed.items() if name != "data"}
    for gpus in counts:
        try:
            yield OnSystem(given.machine, gpus, plan_on(resized(given, gpus), free, advised=False).best)
        except CollbenchError as error:
            yield OnSystem(given.machine, gpus, None, str(error))


def on_system(given: Setting, system: System, gpus: int) -> Setting:
    """Return the same job, with its software, on so many GPUs of another system; UsageError if it has too few."""
    curves = ModelCurves(system, gpus)
    return replace(given, job=replace(given.job, gpus=gpus), curves=curves, machine=machine_of(curves.system))


def elsewhere(given: Setting, fixed: Choices, system: System) -> OnSystem:
    """Return the best layout of the job on as many GPUs of another system."""
    gpus = given.job.gpus
    try:
        return OnSystem(system, gpus, plan_on(on_system(given, system, gpus), fixed, advised=False).best)
    except CollbenchError as error:
        return OnSystem(system, gpus, None, str(error))
