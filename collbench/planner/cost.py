"""Plans for other numbers of GPUs, other systems, and the same money."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.errors import CollbenchError, UsageError
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
    price: float = 0.0  # of a GPU's hour


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


def elsewhere(given: Setting, fixed: Choices, system: System, gpus: int = 0, price: float = 0.0) -> OnSystem:
    """Return the best layout of the job on another system, with so many GPUs; by default with the same number."""
    gpus = gpus or given.job.gpus
    try:
        return OnSystem(system, gpus, plan_on(on_system(given, system, gpus), fixed, advised=False).best, price=price)
    except CollbenchError as error:
        return OnSystem(system, gpus, None, str(error), price)


def same_cost(given: Setting, fixed: Choices, price: float, others: Sequence[tuple[System, float]]) -> list[OnSystem]:
    """Return the best layout on each priced system with as many whole nodes as the same money an hour buys.

    UsageError where it buys no node.
    """
    budget = given.job.gpus * price
    free = {name: value for name, value in fixed.items() if name != "data"}
    places = []
    for system, other in others:
        # Whole nodes, over which a batch can be divided.
        nodes = range(int(budget / other) // system.gpus, 0, -1)
        even = [count for count in nodes if given.job.batch % count == 0 or count & (count - 1) == 0]
        if not even:
            raise UsageError(
                f"--up-or-out {system.name}: {budget:g} an hour buys no node of {system.gpus} GPUs at {other:g}; "
                f"give --gpus {-(-round(system.gpus * other / price) // 8) * 8} or more"
            )
        places.append(elsewhere(given, free, system, even[0] * system.gpus, other))
    return places
