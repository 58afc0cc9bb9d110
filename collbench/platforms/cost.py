"""What one operation spends, as counts that hold on any hardware, and what these come to on CPUs and GPUs.

T = launch + steps * (one wait) + S * (the busiest resource), Hockney's latency and bandwidth with each in its own term.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum


class Wait(Enum):
    """How a rank learns that another is ready."""

    HOST = "the host waits for all ranks, and starts the next step"
    EVENT = "a queue waits for another's event, and the next step starts"
    FLAG = "a kernel waits for a flag that follows the data"
    PACKET = "a kernel waits for data with the flag inside"
    BARRIER = "a kernel waits for the flags of all ranks"


@dataclass(frozen=True)
class Cost:
    """What an operation spends on the rank that has most to do; bytes are counted for each byte of its size."""

    wait: Wait
    steps: int  # waits one after the other
    link: float  # bytes in one direction of a rank's connection to the others
    memory: float  # bytes that the rank loads and stores, wherever they lie
    packets: float = 0.0  # bytes of data that come to it in packets
    blocks: float = math.inf  # of a rank on a GPU; a copy engine has no such limit


@dataclass(frozen=True)
class Hardware:
    """What that takes on one kind of hardware, with its ranks as they are placed: seconds, and bytes per second."""

    launch: float  # seconds of an operation that waits for nobody
    waits: Mapping[Wait, float]  # seconds of one
    link: float = math.inf  # one direction of a rank's connection
    memory: float = math.inf  # loads and stores of a rank
    packets: float = math.inf  # data in packets that a rank takes
    block: float = math.inf  # what one block of a kernel moves over a link, or through memory where there is none

    def floor(self, cost: Cost, nbytes: int) -> float:
        """Seconds that the busiest link or memory alone takes: nothing is faster."""
        return nbytes * max(cost.link / self.link, cost.memory / self.memory)

    def seconds(self, cost: Cost, nbytes: int) -> float:
        """The time of an operation of that size; infinite for a wait that this hardware has not."""
        resources = (
            cost.link / min(self.link, cost.blocks * self.block),
            cost.memory / min(self.memory, cost.blocks * self.block),
            cost.packets / self.packets,
        )
        return self.launch + cost.steps * self.waits.get(cost.wait, math.inf) + nbytes * max(resources)


FITTED = Hardware(
    launch=0.0,  # part of the waits: operations follow each other inside one call into C
    waits={Wait.HOST: 3.70e-6, Wait.FLAG: 76.8e-9, Wait.PACKET: 77.1e-9, Wait.BARRIER: 57.7e-9},
    memory=36.6e9,
    packets=1.737e9,
)
"""Least squares of the relative errors over all hand-written rows of results/cpu-2-ranks-epyc (tests/test_cost.py): two
cores of an AMD EPYC that share a cache.  On another machine times are others, but `auto` only compares them: by these
constants it also chooses well on two cores that share none (results/cpu-2-ranks)."""

_TURN = 21.2
"""How much longer a wait takes where ranks share cores, and the awaited one must first get its turn: a hop of
`ring-flags` in results/cpu-4-ranks-yield against the one above."""


def cpus(crowded: bool) -> Hardware:
    """Return the hardware of ranks that have a core each, or share cores."""
    factor = _TURN if crowded else 1.0
    return replace(FITTED, waits={wait: seconds * factor for wait, seconds in FITTED.waits.items()})


_HOPPER = Hardware(
    launch=3.9e-6,
    waits={Wait.HOST: 20e-6, Wait.EVENT: 6e-6, Wait.FLAG: 3.4e-6, Wait.PACKET: 0.6e-6, Wait.BARRIER: 1.95e-6},
    link=370e9,
    memory=4.3e12,
    packets=141e9,
    block=65 * 2**30,
)
"""Published figures for H100 and H200 with NVLink; not measured here.

A flag's and a packet's hop are the NVLink rows of NCCL's tuner (2.30, src/graph/tuning.cc: 3.4 us for Simple, 0.6 us
for LL), and so are the 141 GB/s of LL; 370 GB/s are the link rate that its topology search takes, of which 367 were
measured on 8 x H200.  NCCL's model of kernels with one hop (sym_kernels.cc) starts at 4.5 us for packets and 7.8 us for
two barriers: less the waits, that leaves the launch and the barrier.  The rate of a block is its 65 GiB/s.  4.3 TB/s
are what copies reach inside an H200.  A host's step (a copy and a wait) and an event's step are estimates.
"""


def gpus(ranks: int, devices: int) -> Hardware:
    """Ranks on so many GPUs: those that share one share its memory and its links; within one there are none."""
    here = math.ceil(ranks / devices)
    return replace(_HOPPER, link=_HOPPER.link / here if devices > 1 else math.inf, memory=_HOPPER.memory / here)
