"""Seconds of hand-written implementations on a described system: their own counts (cost.py) on the hardware described.

Published times of kernels of the same algorithm (PUBLISHED) say how much of a link's rate an implementation reaches.
An implementation without any, or on another kind of GPU or link, is predicted by the rate of its links and by how long
waits take elsewhere.  That is a bound, not an expectation: such a row is marked and is never called the fastest.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from collbench.algorithms import Implementation, implementations
from collbench.cases import Case
from collbench.datatypes import wire_nbytes
from collbench.errors import Unsupported
from collbench.platforms.cost import Hardware, Wait, gpus
from collbench.topology.products import ARCHITECTURES
from collbench.topology.system import System

REACHED = 0.9  # of a memory's rate by copies: 4.3 TB/s of an H200's 4.8
PCIE_HOP = 5.7 / 3.4  # a hop over PCIe against one over NVLink, Simple's in NCCL's tuner
PCIE_PACKET = 1.0 / 0.6  # the same for LL


PUBLISHED: Mapping[str, float] = {
    "ring-pipelined": 1.0,
    "ring-ll": 1.0,
    "one-shot": 1.0,
    "one-shot-ll": 1.0,
    "two-shot": 0.69,
    "nvls": 0.65,
}
"""The fraction of a link's rate that each implementation reaches whose algorithm has published times, all of H100.

Those times are in tests/model/published_kernels.py, with their sources.  Fractions below 1 are fitted to 16 MiB and
more: 254 and 239 GB/s of the 370 that a link is taken to have.  NCCL's own kernels reach 310 of them where the switch
adds (482 GB/s of bus bandwidth on 8 x H200: github.com/stas00/ml-engineering), with many more blocks.
"""
PUBLISHED_ON = ("sm90", "nvswitch")
"""Architecture and fabric of the nodes of which those times were published."""


def reached(system: System, name: str) -> float:
    """Return the fraction of its links' rate that an implementation reaches; those in a narrow format are two-shots.

    Of PCIe nothing is known: there it is all.
    """
    known = PUBLISHED.get(name if wire_nbytes(name) is None else "two-shot", 1.0)
    return 1.0 if system.meets_over_pcie else known


def is_published(system: System, name: str) -> bool:
    """Return whether times of the implementation's algorithm are published for such GPUs, joined in such a way."""
    return name in PUBLISHED and (system.arch, system.fabric) == PUBLISHED_ON


def copied(system: System) -> float:
    """Return the bytes/s that copies inside one of the system's GPUs load and store together."""
    return ARCHITECTURES[system.arch].memory * REACHED


def hardware(system: System) -> Hardware:
    """Return what an implementation that sends to all others at once finds inside one node."""
    base = gpus(system.gpus, system.gpus)
    slower = PCIE_HOP if system.meets_over_pcie else 1.0
    packet = PCIE_PACKET if system.meets_over_pcie else 1.0
    waits = {wait: seconds * (packet if wait is Wait.PACKET else slower) for wait, seconds in base.waits.items()}
    memory = copied(system)
    link = system.pace if system.gpus > 1 else base.link
    packets = min(ARCHITECTURES[system.arch].packets, link / 2 if system.gpus > 1 else memory)
    return replace(base, waits=waits, link=link, memory=memory, packets=packets)


def modelled() -> dict[str, Implementation]:
    """Return the hand-written implementations that count what they cost, by name."""
    return {name: implementation for name, implementation in implementations().items() if implementation.cost}


class Estimate(NamedTuple):
    """What an implementation should take, and what its busiest resource alone takes; in seconds."""

    seconds: float
    least: float
    implementation: str


def estimate(system: System, case: Case, name: str) -> Estimate:
    """Return the time of a case by an implementation, or with `auto` by the best exact one.

    Unsupported, with the reason, where no implementation can carry the case out.
    """
    if name != "auto":
        return _estimate(system, case, name)
    found, reason = [], Unsupported("no hand-written implementation carries it out")
    for candidate, implementation in modelled().items():
        if implementation.wire:
            continue
        try:
            found.append(_estimate(system, case, candidate))
        except Unsupported as refused:
            reason = refused
    if not found:
        raise reason
    return min(found, key=lambda candidate: candidate.seconds)


def _estimate(system: System, case: Case, name: str) -> Estimate:
    implementation = modelled()[name]
    if system.nodes > 1:
        raise Unsupported(f"{name} reaches the GPUs of one node; {system.name} has {system.nodes} here")
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
    seconds = replace(links, link=links.link * reached(system, name)).seconds(cost, case.nbytes)
    return Estimate(seconds, links.floor(cost, case.nbytes), name)
