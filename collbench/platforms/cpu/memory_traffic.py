"""What the ranks' cores read and write together, and which stores hand a piece over fastest: both are measured.

A collective must read every input that somebody needs at least once, and write every result (`Case.traffic`).  Where
that does not fit into the caches it goes through memory, and nothing is faster than all cores reading and writing as
much at once: the floor of the case.  Stores are of two kinds, and no machine says which is better from where on.

What no rank on this CPU does: a bound for plausible times, from a copy that stays in the caches.
"""

import ctypes
import time
from collections.abc import Mapping, Sequence

import numpy as np

from collbench.cases import Case
from collbench.platforms.interface import Clock, Limits, Prepared
from collbench.platforms.processes import Team
from collbench.topology.discovered import Topology

KERNELS = "host/memory.cu"
LINE = 64  # bytes
BEYOND = 4  # times the last caches: of a round through so much, next to nothing is still there from the last
ALWAYS, NEVER = 0, 2**32 - 1  # as World::streamed
UNMEASURED = 1024  # packs, 16 KiB: never far behind (docs/log.md)
PIECES = tuple(2**k for k in range(14, 27, 3))  # bytes: 16 KiB to 64 MiB

Copy = tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint32]
"""From where how many lines are read, to where how many are written, and how many of the two halves past the caches."""


def caches(topology: Topology) -> int | None:
    """Bytes of all last caches under the ranks; None where nothing tells."""
    found = topology.host.caches if topology.host else ()
    return found[-1].nbytes * found[-1].instances if found else None


def beyond(case: Case, cache: int | None) -> bool:
    """Whether the buffers of a case are so large that caches do not count."""
    read, written = case.traffic
    nbytes = max(read, written) if case.in_place else read + written
    return cache is not None and nbytes >= BEYOND * cache


def ways(case: Case, send: int, receive: int) -> Sequence[Copy]:
    """Return the copies of a rank's share of the bytes that must be read and written, one for each kind of stores."""
    read, written = (np.uint64(nbytes // (case.ranks * LINE)) for nbytes in case.traffic)
    return [(np.uint64(send), read, np.uint64(receive), written, np.uint32(streamed)) for streamed in (0, 1, 2)]


def pieces(nbytes: int) -> Sequence[int]:
    """The sizes at which to compare stores, where pieces have so many bytes at most."""
    return [piece for piece in PIECES if piece <= nbytes]


def streamed_from(seconds: Mapping[int, tuple[float, float]], pack: int) -> int:
    """Packs from which on pieces are stored past the caches.

    `seconds` has, by bytes of a piece, the time with ordinary stores and with those.  Those are taken from the first
    size on from which they are faster at all larger ones too: caches only ever end.
    """
    chosen = NEVER
    for piece, (ordinary, streamed) in sorted(seconds.items(), reverse=True):
        if streamed >= ordinary:
            break
        chosen = piece // pack
    return chosen if seconds else UNMEASURED


def in_turn(clock: Clock, ways: tuple[Prepared, Prepared], launches: int) -> tuple[float, float]:
    """*Collective*: seconds of an operation either way, the least of three readings: what disturbs only adds."""
    readings = [[clock.time(way, launches) for way in ways] for _ in range(4)][1:]  # the first meets cold caches
    return min(first for first, _ in readings), min(second for _, second in readings)


_COPIED = 128 * 1024  # bytes: they stay in the second level of any cache of today
_TRIALS = 64  # of which the fastest counts, since a machine may be busy
_MARGIN = 8  # times as fast: data in the first level of a cache is copied two to four times as fast as there
_LEAST = 100e9  # bytes per second that the bound is never below, whatever the trials say
_LATENCY = 3e-9  # seconds: even hyperthreads of one core take longer to see each other's stores


def limits(team: Team) -> Limits:
    """*Collective*: the same on every rank, by the fastest of them."""
    source, target = (ctypes.create_string_buffer(_COPIED) for _ in range(2))
    fastest = min(_seconds(target, source) for _ in range(_TRIALS))
    copied = max(team.exchange(_COPIED / fastest))
    rate = max(_MARGIN * copied, _LEAST)
    return Limits(_LATENCY, rate, f"{_MARGIN} times the {copied / 1e9:.3g} GB/s at which a core copies in its caches")


def _seconds(target: ctypes.Array[ctypes.c_char], source: ctypes.Array[ctypes.c_char]) -> float:
    start = time.perf_counter()
    ctypes.memmove(target, source, _COPIED)
    return time.perf_counter() - start
