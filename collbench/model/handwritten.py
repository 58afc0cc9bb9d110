"""Seconds of hand-written implementations on a described system: their own counts (cost.py) on the hardware described.

Published times of kernels of the same algorithm (PUBLISHED) say how much of a link's rate an implementation reaches.
An implementation without any, or on another kind of GPU or link, is predicted by the rate of its links and by how long
waits take elsewhere.  That is a bound, not an expectation: such a row is marked and is never called the fastest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Sweep:
    """Seconds by bytes of an all-reduce on so many GPUs of one node, as somebody published them."""

    source: str
    ranks: int
    seconds: Mapping[int, float]
    arch: str = "sm90"
    fabric: str = "nvswitch"


@dataclass(frozen=True)
class Published:
    """Published times of an implementation's algorithm, and the fraction of a link's rate in the largest of them."""

    sweeps: tuple[Sweep, ...]
    reached: float = 1.0


_VLLM_6 = "github.com/vllm-project/vllm pull request 24111 (6 x H100, bfloat16)"
# Which of that request's tables has how many GPUs follows from NCCL's column: 561 us at 128 MiB, as 8 x H100 elsewhere.
_VLLM_8 = "github.com/vllm-project/vllm pull request 42324 (SM 9.0, the last of its tables: 8 GPUs)"
_NCCL_8 = "github.com/aws-samples/awsome-distributed-training (8 x H100; NCCL, which takes its ring with LL there)"
_NCCL_4 = "github.com/xxrjun/nccl-tests-cluster (4 x H100; NCCL, which takes its ring with Simple there)"
_MIB = 1 << 20
_MANY = tuple(int(size * _MIB) for size in (0.5, 1, 1.5, 2, 3, 4, 8, 16, 32, 64, 128))


def _us(sizes: tuple[int, ...], *microseconds: float) -> dict[int, float]:
    return {size: time * 1e-6 for size, time in zip(sizes, microseconds, strict=True)}


PUBLISHED: Mapping[str, Published] = {
    "ring-pipelined": Published((Sweep(_NCCL_4, 4, _us((128 * _MIB, 512 * _MIB, 2048 * _MIB), 614, 2309, 8966)),)),
    "ring-ll": Published((Sweep(_NCCL_8, 8, _us((8, 1024, 8192, 65536), 12.9, 16.4, 16.9, 19.1)),)),
    "one-shot": Published(
        (
            Sweep(_VLLM_6, 6, _us(_MANY[:6], 13, 21, 30, 38, 53, 70)),
            Sweep(
                "github.com/vllm-project/vllm pull request 8558 (8 x H100)",
                8,
                _us((1024, 16384, 32768), 5.75, 6.25, 6.7),
            ),
        ),
    ),
    "one-shot-ll": Published(
        (
            Sweep(
                "NCCL's packets: 1.21 to 1.48 times as fast as vLLM's one-shot up to 16 KiB (vLLM pull request 33839), "
                "which takes 5.75 us (8558)",
                8,
                _us((1024,), 4.3),
            ),
        ),
    ),
    "two-shot": Published(
        (
            Sweep(_VLLM_6, 6, _us(_MANY[:6], 15, 17, 20, 26, 29, 37)),
            Sweep(_VLLM_8, 8, _us(_MANY, 15, 17, 19, 22, 29, 37, 65, 125, 242, 468, 923)),
        ),
        reached=0.69,
    ),
    "nvls": Published(
        (
            Sweep(_VLLM_6, 6, _us(_MANY[:6], 13, 16, 18, 21, 25, 31)),
            Sweep(_VLLM_8, 8, _us(_MANY, 11, 14, 16, 18, 23, 27, 46, 87, 165, 320, 631)),
        ),
        reached=0.65,
    ),
}
"""By implementation.

PyTorch's kernels (`symm_mem_two_shot`, `symm_mem_multimem`) are those of vLLM's tables for 8 GPUs.  The
fractions that are reached are fitted to 16 MiB and more: 254 and 239 GB/s of the 370 that a link is taken to have.
NCCL's own kernels reach 310 of them where the switch adds (482 GB/s of bus bandwidth on 8 x H200:
github.com/stas00/ml-engineering), with many more blocks.
"""


def reached(system: System, name: str) -> float:
    """Return the fraction of its links' rate that an implementation reaches; those in a narrow format are two-shots.

    Of PCIe nothing is known: there it is all.
    """
    known = PUBLISHED.get(name if wire_nbytes(name) is None else "two-shot")
    return known.reached if known and not system.meets_over_pcie else 1.0


def is_published(system: System, name: str) -> bool:
    """Return whether times of the implementation's algorithm are published for such GPUs, joined in such a way."""
    known = PUBLISHED.get(name, Published(()))
    return any((sweep.arch, sweep.fabric) == (system.arch, system.fabric) for sweep in known.sweeps)


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

    Raises:
        Unsupported: No implementation can carry the case out there; the message says why.

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
