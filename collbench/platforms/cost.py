"""The cost of one operation, as counts that hold on any hardware, and its time on CPUs and GPUs.

T = launch + steps * (one wait) + S * (the busiest resource), Hockney's latency and bandwidth with each in its own term.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from collbench.topology.products import ARCHITECTURES, GIB, capability, pcie_rate


class Wait(Enum):
    """How a rank learns that another is ready."""

    HOST = "the host waits for all ranks, and starts the next step"
    EVENT = "a queue waits for another's event, and the next step starts"
    FLAG = "a kernel waits for a flag that follows the data"
    PACKET = "a kernel waits for data with the flag inside"
    BARRIER = "a kernel waits for the flags of all ranks"


@dataclass(frozen=True)
class Cost:
    """The cost of an operation on the rank that has most to do; bytes are counted for each byte of its size."""

    wait: Wait
    steps: int  # waits one after the other
    link: float  # bytes in one direction of a rank's connection to the others
    memory: float  # bytes that the rank loads and stores, wherever they lie
    packets: float = 0.0  # bytes of data that come to it in packets
    blocks: float = math.inf  # of a rank on a GPU; a copy engine has no such limit
    fences: int = 0  # waits by which what was written to others must have arrived there
    adds: bool = False  # whether the link leads to switches that add
    cached: float = 0.0  # of `memory`, what can stay in a GPU's cache: FIFOs, and what another rank has just loaded
    alone: bool = False  # whether one rank loads and stores for all, by its own blocks


@dataclass(frozen=True)
class Hardware:
    """Its price on one kind of hardware, with its ranks as they are placed: seconds, and bytes per second."""

    launch: float  # seconds of an operation that waits for nobody
    waits: Mapping[Wait, float]  # seconds of one
    link: float = math.inf  # one direction of a rank's connection
    memory: float = math.inf  # loads and stores of a rank
    cache: float = math.inf  # the same of what a GPU's cache holds; a CPU's `memory` counts all, wherever it lies
    mixed: float = 1.0  # fraction of the cache's rate that is reached where there are stores too
    here: int = 1  # ranks that share that memory and cache
    packets: float = math.inf  # data in packets that a rank takes
    block: float = math.inf  # what one block of a kernel moves over a link, or through memory where there is none
    fence: float = 0.0  # seconds that a fence adds to a wait
    reach: float = 1.0  # fraction of the link's rate that is reached where all ranks send to all at once
    adds: float = 1.0  # the same through switches that add

    def moved(self, cost: Cost, mixed: float = 1.0) -> float:
        """Return the seconds that memory or cache take for a byte of an operation."""
        # All goes through the cache, and what is `cached` goes no further.
        streamed = cost.memory if math.isinf(self.cache) else cost.memory - cost.cached
        return max(streamed / self.memory, cost.memory / (mixed * self.cache))

    def floor(self, cost: Cost, nbytes: int) -> float:
        """Seconds that the busiest link, memory or cache alone takes: nothing is faster."""
        shares = self.here if cost.alone else 1  # of the memory, which nobody else then needs
        return nbytes * max(cost.link / self.link, self.moved(cost) / shares)

    def seconds(self, cost: Cost, nbytes: int) -> float:
        """Return the time of an operation of that size; infinite for a wait that this hardware has not."""
        reach = 1.0
        if cost.adds:
            reach = self.adds
        elif cost.wait is Wait.BARRIER:
            reach = self.reach

        # The busiest resource decides: links, memory and packets are busy at the same time.
        resources = (
            cost.link / min(reach * self.link, cost.blocks * self.block),
            max(self.moved(cost, self.mixed), cost.memory / (cost.blocks * self.block)),
            cost.packets / self.packets,
        )
        waits = cost.steps * self.waits.get(cost.wait, math.inf) + cost.fences * self.fence
        return self.launch + waits + nbytes * max(resources)


FITTED = Hardware(
    launch=0.0,  # part of the waits: operations follow each other inside one call into C
    waits={Wait.HOST: 3.72e-6, Wait.FLAG: 74.7e-9, Wait.PACKET: 77.1e-9, Wait.BARRIER: 58.5e-9},
    memory=38.1e9,
    packets=1.737e9,
)
"""Least squares of the relative errors over hand-written rows of results/cpu-2-ranks-epyc (tests/test_cost.py), but for
`ring-pipelined`, which moves less since: two cores of an AMD EPYC that share a cache.  Elsewhere times are others, but
`auto` only compares them: it also chooses well on two cores that share none (results/cpu-2-ranks)."""

_TURN = 21.9
"""How much longer a wait takes where ranks share cores, and the awaited one must first get its turn: a hop of
`ring-flags` in results/cpu-4-ranks-yield against the one above."""


def cpus(crowded: bool) -> Hardware:
    """Return the hardware of ranks that have a core each, or share cores."""
    factor = _TURN if crowded else 1.0
    return replace(FITTED, waits={wait: seconds * factor for wait, seconds in FITTED.waits.items()})


REACHED = 0.9  # of a memory's rate by copies: 4.3 TB/s of an H200's 4.8, 2.99 to 3.01 of an H100's 3.35
COSTS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("gpu_costs.toml").read_text(encoding="utf-8"))
"""The figures of GPUs: seconds and fractions, with what each means and where it comes from."""


def gpus(ranks: int, devices: int, arch: str = "sm90", pcie: bool = False) -> Hardware:
    """Return the hardware of ranks on so many GPUs of an architecture.

    GPUs are joined by all NVLinks of the architecture, or over PCIe alone.  Ranks that share a GPU share its memory and
    its links; within a GPU there are none.
    """
    kind = "pcie" if pcie else "nvlink"
    rows = COSTS["shared" if ranks > devices == 1 else kind]

    # An architecture without figures of its own has those of the newest before it.
    older = [name for name in rows if capability(name) <= capability(arch)]
    costs, every, gpu = rows[max(older, key=capability, default=next(iter(rows)))], COSTS["any"], ARCHITECTURES[arch]

    # Ranks that share a GPU have equal shares of its memory, its cache and its links.
    here = math.ceil(ranks / devices)
    link = (pcie_rate(gpu.pcie) if pcie else gpu.nvlinks * gpu.nvlink) / here if devices > 1 else math.inf
    return Hardware(
        launch=costs["launch"] + every["peer"] * max(0, ranks - 2),
        waits={wait: (every | costs)[wait.name.lower()] for wait in Wait},
        link=link,
        memory=REACHED * gpu.memory / here,
        cache=COSTS["cache"].get(arch, math.inf) / here,
        mixed=every["mixed"],
        here=here,
        packets=min(gpu.packets, costs.get("packets", math.inf), link / 2),
        block=(every | costs)["block"] * GIB,
        fence=costs["fence"] * ranks if devices > 1 else 0.0,
        reach=costs.get("reach", 1.0),
        adds=costs.get("adds", 1.0),
    )


def of_product(name: str, ranks: int, devices: int) -> Hardware:
    """Return the hardware of ranks on so many GPUs of a product, by its name; of an unknown one, as on H100s."""
    architectures = (arch for arch, gpu in ARCHITECTURES.items() if gpu.products and re.search(gpu.products, name))
    arch = next(architectures, "sm90")
    return gpus(ranks, devices, arch, pcie="pcie" in name.lower() or not ARCHITECTURES[arch].nvlinks)
