"""Plans for other numbers of GPUs, other systems, and the same money."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.errors import CollbenchError, UsageError
from collbench.planner.curves import Modelled, Where
from collbench.planner.layouts import Said
from collbench.planner.search import Planned, plan_on, resized
from collbench.planner.setting import Setting, machine_of
from collbench.topology.system import System


@dataclass(frozen=True)
class Size:
    """The best layout on a number of GPUs, or why there is none."""

    gpus: int
    best: Planned | None
    reason: str = ""


def sizes(given: Setting, said: Said, counts: Sequence[int]) -> Iterator[Size]:
    """The job with its batch as it is (strong scaling); what is said of the data-parallel size follows the GPUs."""
    free = {name: value for name, value in said.items() if name != "data"}
    for gpus in counts:
        grown = resized(given, gpus)
        if not grown:
            yield Size(gpus, None, f"{given.machine.name} has no {gpus} GPUs")
            continue
        try:
            yield Size(gpus, plan_on(grown, free, advised=False).best)
        except CollbenchError as error:
            yield Size(gpus, None, str(error))


def on_system(given: Setting, system: System, gpus: int = 0) -> Setting:
    """The same job on another system, with its GPUs; UsageError if they cannot be had there.

    The software becomes what that system's constants are of, unless the job's is not what its own machine's are of.
    """
    count = gpus or given.job.gpus
    curves = Modelled(system, count)
    machine = machine_of(curves.system)
    stack = machine.stack if given.job.stack == given.machine.stack else given.job.stack
    job = replace(given.job, gpus=count, stack=stack)
    return replace(given, job=job, curves=curves, machine=machine)


@dataclass(frozen=True)
class Elsewhere:
    """The best layout on a system, or why there is none."""

    system: Where
    gpus: int
    best: Planned | None
    reason: str = ""
    price: float = 0.0  # of a GPU's hour


def interconnects(given: Setting, said: Said, systems: Sequence[System]) -> list[Elsewhere]:
    """The job on each system, with as many GPUs."""
    return [_elsewhere(given, said, system, given.job.gpus) for system in systems]


def _elsewhere(given: Setting, said: Said, system: System, gpus: int, price: float = 0.0) -> Elsewhere:
    try:
        return Elsewhere(system, gpus, plan_on(on_system(given, system, gpus), said, advised=False).best, price=price)
    except CollbenchError as error:
        return Elsewhere(system, gpus, None, str(error), price)


def same_cost(given: Setting, said: Said, price: float, others: Sequence[tuple[System, float]]) -> list[Elsewhere]:
    """The job for the same money an hour on systems whose GPUs have other prices: as many nodes as that buys.

    UsageError where it buys no node.
    """
    budget = given.job.gpus * price
    free = {name: value for name, value in said.items() if name != "data"}
    places = []
    for system, other in others:
        count = _affordable(given.job.batch, int(budget / other), system)
        if not count:
            raise UsageError(
                f"--up-or-out {system.name}: {budget:g} an hour buys no node of {system.gpus} GPUs at {other:g}; "
                f"give --gpus {-(-round(system.gpus * other / price) // 8) * 8} or more"
            )
        places.append(_elsewhere(given, free, system, count, other))
    return places


def _affordable(batch: int, most: int, system: System) -> int:
    """The most GPUs that fill whole nodes, as many as a batch can be dealt out to."""
    nodes = most // system.gpus
    if not nodes:
        return 0
    even = [count for count in range(nodes, 0, -1) if batch % count == 0 or count & (count - 1) == 0]
    return even[0] * system.gpus
