"""Cost of an operation: counts valid on any hardware, converted to seconds.

T = launch + steps * (one wait) + S * (the busiest resource), as in Hockney's model.
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
    """The mechanism by which a rank learns that another is ready."""

    HOST = "the host waits for all ranks, and starts the next step"
    EVENT = "a queue waits for another's event, and the next step starts"
    FLAG = "a kernel waits for a flag that follows the data"
    PACKET = "a kernel waits for data with the flag inside"
    BARRIER = "a kernel waits for the flags of all ranks"


@dataclass(frozen=True)
class Cost:
    """The cost of an operation on the busiest rank; byte counts are per byte of the message."""

    wait: Wait
    steps: int  # consecutive waits
    link: float  # bytes in one direction of a rank's connection to the others
    memory: float  # bytes that the rank loads and stores, wherever they lie
    packets: float = 0.0  # bytes of data that come to it in packets
    blocks: float = math.inf  # of a rank on a GPU; a copy engine has no such limit
    fences: int = 0  # waits by which what was written to others must have arrived there
    adds: bool = False  # whether the link leads to switches that add
    cached: float = 0.0  # of `memory`, what can stay in a GPU's cache: FIFOs, and what another rank has just loaded
    alone: bool = False  # whether one rank loads and stores for all, by its own blocks
    rooms: int = 0  # flags that tell of free room alone, one after the other, each behind a fence
    lap: float = math.inf  # bytes of the operation that fill the slots of all FIFOs once


@dataclass(frozen=True)
class Hardware:
    """Constants of one kind of hardware and placement of ranks: seconds, and bytes per second."""

    launch: float  # seconds of an operation without waits
    waits: Mapping[Wait, float]  # seconds of one
    link: float = math.inf  # one direction of a rank's connection
    memory: float = math.inf  # loads and stores of a rank
    cache: float = math.inf  # the same of what a GPU's cache holds; a CPU's `memory` counts all, wherever it lies
    mixed: float = 1.0  # fraction of the cache's rate that is reached where there are stores too
    here: int = 1  # ranks that share that memory and cache
    holds: float = math.inf  # bytes of that cache
    packets: float = math.inf  # data in packets that a rank takes
    blocks: float = math.inf  # of a rank at the same time, with 512 threads each
    block: float = math.inf  # bytes/s of one block of a kernel over a link, or through memory where there is no link
    fence: float = 0.0  # seconds that a fence adds to a wait
    room: float = 0.0  # seconds of a flag that tells of free room alone
    reach: float = 1.0  # fraction of the link's rate that is reached where all ranks send to all at once
    adds: float = 1.0  # the same through switches that add

    def moved(self, cost: Cost, nbytes: int = 0, mixed: float = 1.0) -> float:
        """Return the seconds per byte in memory or cache for an operation of that size."""
        # All goes through the cache, `cached` no further; the rest twice, if the cache does not hold that of all ranks.
        streamed = cost.memory if math.isinf(self.cache) else cost.memory - cost.cached
        shares = self.here if cost.alone else 1  # of the memory, which nobody else then needs
        again = streamed if nbytes * streamed * self.here / shares > self.holds else 0.0
        return max(streamed / self.memory, (cost.memory + again) / (mixed * self.cache)) / shares

    def floor(self, cost: Cost, nbytes: int) -> float:
        """Lower bound in seconds: the time of the busiest link, memory or cache."""
        return nbytes * max(cost.link / self.link, self.moved(cost))

    def seconds(self, cost: Cost, nbytes: int) -> float:
        """Return the time of an operation of that size; infinite if this hardware lacks a wait."""
        reach = 1.0
        if cost.adds:
            reach = self.adds
        elif cost.wait is Wait.BARRIER:
            reach = self.reach

        # The busiest resource decides: links, memory and packets are busy at the same time.
        blocks = min(cost.blocks, self.blocks) * self.block
        resources = (
            cost.link / min(reach * self.link, blocks),
            max(self.moved(cost, nbytes, self.mixed), cost.memory / blocks),
            cost.packets / self.packets,
        )
        # Inside a GPU the waits of all laps add up, by the fit; over a link, other blocks are assumed to hide them.
        laps = max(1.0, nbytes / cost.lap) if self.here > 1 and math.isinf(self.link) else 1.0
        waits = laps * (cost.steps * self.waits.get(cost.wait, math.inf) + cost.rooms * self.room)
        return self.launch + waits + cost.fences * self.fence + nbytes * max(resources)


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
    """Return the hardware of `ranks` ranks on `devices` GPUs of an architecture, over all its NVLinks or over PCIe.

    Ranks that share a GPU have equal shares of its memory, its cache and its links; within a GPU there is no link.
    """
    kind = "pcie" if pcie else "nvlink"
    rows = COSTS["shared" if ranks > devices == 1 else kind]

    # An architecture without figures of its own has those of the newest before it.
    older = [name for name in rows if capability(name) <= capability(arch)]
    costs = COSTS["any"] | rows[max(older, key=capability, default=next(iter(rows)))]
    gpu = ARCHITECTURES[arch]
    here = math.ceil(ranks / devices)
    link = (pcie_rate(gpu.pcie) if pcie else gpu.nvlinks * gpu.nvlink) / here if devices > 1 else math.inf
    return Hardware(
        launch=costs["launch"] + costs["peer"] * max(0, ranks - 2),
        waits={wait: costs[wait.name.lower()] for wait in Wait},
        link=link,
        memory=REACHED * gpu.memory / here,
        cache=COSTS["cache"].get(arch, math.inf) / here,
        mixed=costs["mixed"],
        here=here,
        packets=min(gpu.packets, link / 2) if devices > 1 else math.inf,
        holds=costs["holds"],
        blocks=costs["multiprocessors"] / here,
        block=costs["block"] * GIB,
        room=costs["room"],
        fence=costs["fence"] * ranks if devices > 1 else 0.0,
        reach=costs["reach"],
        adds=costs["adds"],
    )


def of_product(name: str, ranks: int, devices: int) -> Hardware:
    """Return the hardware of `ranks` ranks on `devices` GPUs of a product; of an unknown one, as on H100s."""
    arch = next((arch for arch, gpu in ARCHITECTURES.items() if gpu.products and re.search(gpu.products, name)), "sm90")
    return gpus(ranks, devices, arch, pcie="pcie" in name.lower() or not ARCHITECTURES[arch].nvlinks)
