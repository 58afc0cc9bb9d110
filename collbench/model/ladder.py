"""Seconds of hand-written rungs on a described system: their own counts (cost.py) on the hardware described."""

from dataclasses import replace
from typing import NamedTuple

from collbench.algorithms import Implementation, implementations
from collbench.cases import Case
from collbench.cost import Hardware, Wait
from collbench.errors import Unsupported
from collbench.model.evidence import reached
from collbench.platforms.gpu.placement import gpus
from collbench.topology.architectures import ARCHITECTURES
from collbench.topology.system import System

REACHED = 0.9  # of a memory's rate by copies: 4.3 TB/s of an H200's 4.8
PCIE_HOP = 5.7 / 3.4  # a hop over PCIe against one over NVLink, Simple's in NCCL's tuner
PCIE_PACKET = 1.0 / 0.6  # the same for LL


def copied(system: System) -> float:
    """Bytes/s that copies inside one of its GPUs load and store together."""
    return ARCHITECTURES[system.arch].memory * REACHED


def hardware(system: System) -> Hardware:
    """What a rung finds inside one node of it, if it sends to all others at once."""
    base = gpus(system.gpus, system.gpus)
    slower = PCIE_HOP if system.meets_over_pcie else 1.0
    packet = PCIE_PACKET if system.meets_over_pcie else 1.0
    waits = {wait: seconds * (packet if wait is Wait.PACKET else slower) for wait, seconds in base.waits.items()}
    memory = copied(system)
    link = system.pace if system.gpus > 1 else base.link
    packets = min(ARCHITECTURES[system.arch].packets, link / 2 if system.gpus > 1 else memory)
    return replace(base, waits=waits, link=link, memory=memory, packets=packets)


def _refuse(system: System, name: str) -> None:
    """Raise Unsupported, saying why, where its ranks could not reach each other."""
    if system.nodes > 1:
        raise Unsupported(f"{name} reaches the GPUs of one node; {system.name} has {system.nodes} here")
    if not system.p2p and system.gpus > 1:
        raise Unsupported(f"{name} writes to other GPUs' memory, which those of {system.name} do not allow")
    if implementations()[name].multicast and not system.multicast:
        raise Unsupported(f"{name} needs switches that add, and {system.name} has none")


def _links(system: System, name: str) -> Hardware:
    """Where GPUs are joined pairwise, a rank that sends to one other has that pair's links."""
    links = hardware(system)
    return replace(links, link=system.to_next) if implementations()[name].neighbours_only and system.gpus > 1 else links


def _reached(system: System, links: Hardware, name: str) -> Hardware:
    """The same with as much of the links as kernels of its algorithm were seen to reach."""
    return replace(links, link=links.link * reached(system, name))


def ladder() -> dict[str, Implementation]:
    """The rungs that tell what they cost."""
    return {name: rung for name, rung in implementations().items() if rung.cost}


class RungTime(NamedTuple):
    """What a rung should take, and what its busiest resource alone takes; in seconds."""

    seconds: float
    floor: float
    rung: str


def rung_time(system: System, case: Case, name: str) -> RungTime:
    """A case by a rung, or with `auto` by the best one that is exact; Unsupported if there is none."""
    if name != "auto":
        return _rung_time(system, case, name)
    times, reason = [], Unsupported("no rung carries it out")
    for rung in (name for name, way in ladder().items() if not way.wire):
        try:
            times.append(_rung_time(system, case, rung))
        except Unsupported as refused:
            reason = refused
    if not times:
        raise reason
    return min(times, key=lambda time: time.seconds)


def _rung_time(system: System, case: Case, name: str) -> RungTime:
    implementation = ladder()[name]
    _refuse(system, name)
    implementation.refuse(case)
    assert implementation.cost
    links, cost = _links(system, name), implementation.cost(case)
    seconds = _reached(system, links, name).seconds(cost, case.nbytes)
    return RungTime(seconds, links.floor(cost, case.nbytes), name)
