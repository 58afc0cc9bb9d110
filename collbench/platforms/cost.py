"""What one operation spends, as counts that hold on any hardware, and what these come to on one.

T = launch + steps * (one wait) + S * (the busiest resource), Hockney's latency and bandwidth with each in its own term.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
