"""Memory of a CPU rank and its neighbours, and its bandwidth.

A collective must read every needed input and write every result at least once (`Case.traffic`). Beyond the caches its
floor is the time in which all cores read and write that much at once. Ordinary and non-temporal stores are both
measured, since the better one depends on the machine and the size.
"""

import ctypes
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collbench.cases import Case
from collbench.errors import Unsupported
from collbench.platforms.cpu.window import Window
from collbench.platforms.interface import Limits
from collbench.platforms.layout import MAX_RANKS, WORLD, Memory, MemoryLayout, Region, awaited
from collbench.platforms.processes import Team

_YIELDS = {"yield": 1, "busy": 0}
_RARELY = 256  # tries, a few microseconds: not noticed with a core to itself, saved by it when something else runs
_WAITING = 4  # ranks that are named where all hang
_SPINS = 2**33  # tries before a wait gives up: minutes, since the supervisor's clock is the one that should ring

KERNELS = "host/memory.cu"
LINE = 64  # bytes
BEYOND = 4  # times the last caches: a round through as much finds almost nothing of the previous one
ALWAYS, NEVER = 0, 2**32 - 1  # as World::streamed
UNMEASURED = 1024  # packs, 16 KiB: never far behind (docs/log.md)
PIECES = tuple(2**k for k in range(14, 27, 3))  # bytes: 16 KiB to 64 MiB

_COPIED = 128 * 1024  # bytes: they stay in the second level of any cache of today
_TRIALS = 64  # the fastest counts, since a machine may be busy
_MARGIN = 8  # times as fast: data in the first level of a cache is copied two to four times as fast as there
_LEAST = 100e9  # bytes per second that the bound is never below, whatever the trials say
_LATENCY = 3e-9  # seconds: even hyperthreads of one core take longer to see each other's stores

Copy = tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint32]
"""From where how many lines are read, to where how many are written, and how many of the two halves past the caches."""


class CpuMemory(Memory):
    """The window of this machine's ranks."""

    def __init__(self, team: Team, layout: MemoryLayout, spin: str) -> None:
        self.rank, self.ranks, self.layout = team.rank, team.size, layout
        self.window = Window(team, layout.nbytes)
        self.nodes = len(set(team.exchange(min(self.window.bases))))

        # Whether ranks of any machine share cores: all ranks measure alike.
        self.crowded = any(team.exchange(len(self.window.bases) > len(self.window.cores)))
        self._yield_after = _YIELDS.get(spin, 1 if self.crowded else _RARELY)

        # Every rank reaches all others and has a core, so that a hand-over by flags tells of the machine.
        self.by_flags = 1 < self.ranks <= MAX_RANKS and self.nodes == 1 and not self.crowded

    def address(self, region: Region, rank: int) -> int:
        """Return where a region starts; Unsupported if that rank is on another node."""
        if rank not in self.window.bases:
            raise Unsupported(f"rank {rank} is on another node, whose memory cannot be loaded or stored")
        return int(self.window.bases[rank] + self._start(region))

    def world(self, ranks: int) -> Any:
        """Return a World (kernels/world.cuh) without buffers."""
        world: Any = np.zeros((), WORLD)
        if ranks > MAX_RANKS:
            raise Unsupported(f"hand-written kernels take at most {MAX_RANKS} ranks")
        for rank in range(ranks):
            world["window"][rank] = self.address(Region.WINDOW, rank)
        world["ranks"], world["first"], world["stride"], world["blocks"] = ranks, self.rank, 1, 1
        world["spins"], world["yield_after"] = _SPINS, self._yield_after
        return world

    def gave_up(self) -> bool:
        """Return whether a kernel of this rank waited in vain: then it leaves a one in the first word of its window."""
        return bool(ctypes.c_uint32.from_address(self.address(Region.WINDOW, self.rank)).value)

    def waits(self) -> str:
        """Return which rank's kernel has waited for which for long: it is noted in the second word of its window."""
        words = {rank: self.address(Region.WINDOW, rank) + 4 for rank in self.window.bases}
        noted = ((rank, ctypes.c_uint32.from_address(address).value) for rank, address in words.items())
        waiting = [f"rank {rank} waits for {awaited(offset, rank, self.ranks)}" for rank, offset in noted if offset]
        more = [f"{len(waiting) - _WAITING} more ranks wait"] if len(waiting) > _WAITING else []
        return ", ".join(waiting[:_WAITING] + more)


def beyond(case: Case, cache: int | None) -> bool:
    """Return whether the buffers of a case are so large that last caches of `cache` bytes do not count."""
    read, written = case.traffic
    nbytes = max(read, written) if case.in_place else read + written
    return cache is not None and nbytes >= BEYOND * cache


def copies(case: Case, send: int, receive: int) -> Sequence[Copy]:
    """Return the copies of a rank's share of the bytes that must be read and written, one for each kind of stores."""
    read, written = (np.uint64(nbytes // (case.ranks * LINE)) for nbytes in case.traffic)
    return [(np.uint64(send), read, np.uint64(receive), written, np.uint32(streamed)) for streamed in (0, 1, 2)]


def streamed_from(seconds: Mapping[int, tuple[float, float]], pack: int) -> int:
    """Return the packs from which on pieces are stored past the caches.

    `seconds` has, by bytes of a piece, the time with ordinary stores and with stores past the caches.
    """
    # From the largest size down, as long as stores past the caches are faster: caches only ever end.
    chosen = NEVER
    for piece, (ordinary, streamed) in sorted(seconds.items(), reverse=True):
        if streamed >= ordinary:
            break
        chosen = piece // pack
    return chosen if seconds else UNMEASURED


def limits(team: Team) -> Limits:
    """*Collective*: return what no rank on this CPU does, by a copy that stays in the caches of the fastest core."""
    source, target = (ctypes.create_string_buffer(_COPIED) for _ in range(2))
    seconds = []
    for _ in range(_TRIALS):
        start = time.perf_counter()
        ctypes.memmove(target, source, _COPIED)
        seconds.append(time.perf_counter() - start)
    copied = max(team.exchange(_COPIED / min(seconds)))
    rate = max(_MARGIN * copied, _LEAST)
    return Limits(_LATENCY, rate, f"{_MARGIN} times the {copied / 1e9:.3g} GB/s at which a core copies in its caches")
