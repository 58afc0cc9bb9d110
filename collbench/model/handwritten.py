"""The cost model of hand-written implementations on a described system.

The costs of launches, waits and links follow from published kernels of the same algorithms (gpu_costs.toml).  An
implementation without published times, or on GPUs or links without them, is predicted by those most alike.  The
result is a bound, not an expectation: its row is marked and is never called the fastest.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collbench.algorithms import Implementation, implementations
from collbench.cases import Case
from collbench.errors import Unsupported
from collbench.platforms.cost import COSTS, REACHED, Hardware, gpus
from collbench.topology.products import ARCHITECTURES, is_amd
from collbench.topology.system import System


def is_published(system: System, name: str) -> bool:
    """Return whether times of the algorithm are published for as many equal GPUs with the same links."""
    costs = COSTS[{"nvswitch": "nvlink", "pcie": "pcie"}.get(system.fabric, "any")].get(system.arch)
    return bool(costs) and name in costs["published"] and system.gpus <= costs["ranks"]


def copied(system: System) -> float:
    """Return the bytes/s that copies inside one of the system's GPUs load and store together."""
    return ARCHITECTURES[system.arch].memory * REACHED


def hardware(system: System) -> Hardware:
    """Return what an implementation that sends to all others at once finds inside one node."""
    base = gpus(system.gpus, system.gpus, system.arch, system.meets_over_pcie)
    return replace(base, link=system.pace, packets=min(base.packets, system.pace / 2)) if system.gpus > 1 else base


def host(system: System) -> float:
    """Return the seconds that a framework's host takes from one launch of a kernel to the next; 0 in a graph."""
    if system.launch == "graph":
        return 0.0
    slots = "pcie5" if (system.pcie_generation or ARCHITECTURES[system.arch].pcie) > 4 else "pcie4"
    return float(COSTS["eager"]["arm" if system.cpu == "arm" else slots])


def behind(host: float, kernel: float) -> float:
    """Return the seconds of a kernel behind its host: the longer of both, or a quarter more where they are alike."""
    return float(np.cbrt(host**3 + kernel**3))


def modelled() -> dict[str, Implementation]:
    """Return the hand-written implementations that count what they cost, by name."""
    return {name: implementation for name, implementation in implementations().items() if implementation.cost}


SLOW_HOST = 1.75
"""Times `host` that hosts of published engines take at most, but for one in twenty of their rows."""


class HandwrittenTime(NamedTuple):
    """The expected seconds of an implementation, its kernels in a graph, and of its busiest resource alone."""

    seconds: float
    kernel: float
    least: float
    implementation: str


def estimate(system: System, case: Case, name: str) -> HandwrittenTime:
    """Return the time of a case by an implementation, or the best exact one (`auto`); Unsupported where none can."""
    candidates = [name]
    if name == "auto":
        candidates = [each for each, implementation in modelled().items() if not implementation.wire]
    times, reason = [], Unsupported("no hand-written implementation carries it out")
    for candidate in candidates:
        try:
            times.append(_estimate(system, case, candidate))
        except Unsupported as refused:
            reason = refused
    if not times:
        raise reason
    best = min(times, key=lambda time: time.seconds)
    return best._replace(seconds=behind(host(system), best.kernel))


def _estimate(system: System, case: Case, name: str) -> HandwrittenTime:
    implementation = modelled()[name]
    if system.nodes > 1:
        raise Unsupported(f"{name} reaches the GPUs of one node; {system.name} has {system.nodes} here")
    if is_amd(system.arch):
        raise Unsupported(f"{name} is written in CUDA, which GPUs of {system.name} do not run")
    if not system.p2p and system.gpus > 1:
        raise Unsupported(f"{name} writes to other GPUs' memory, which those of {system.name} do not allow")
    if implementation.multicast and not system.multicast:
        raise Unsupported(f"{name} needs switches that add, and {system.name} has none")
    implementation.refuse(case)
    assert implementation.cost
    links = hardware(system)
    if implementation.neighbours_only and system.gpus > 1:
        # Where GPUs are joined pairwise, a rank that sends to one other has the links of that pair alone.
        links = replace(links, link=system.to_next)
    cost = implementation.cost(case)
    seconds = links.seconds(cost, case.nbytes)
    return HandwrittenTime(seconds, seconds, links.floor(cost, case.nbytes), name)
