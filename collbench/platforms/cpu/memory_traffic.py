"""What the ranks' cores read and write together, and which stores hand a piece over fastest: both are measured.

A collective must read every input that somebody needs at least once, and write every result (`Case.traffic`).  Where
that does not fit into the caches it goes through memory, and nothing is faster than all cores reading and writing as
much at once: the floor of the case.  Stores are of two kinds, and no machine says which is better from where on.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from collbench.cases import Case
from collbench.platforms.roles import Prepared, Timing
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
    footprint = max(read, written) if case.in_place else read + written
    return cache is not None and footprint >= BEYOND * cache


def ways(case: Case, send: int, receive: int) -> Sequence[Copy]:
    """A rank's share of what must be read and written, from its own buffers into its own: one way a kind of stores."""
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


def in_turn(clock: Timing, ways: tuple[Prepared, Prepared], launches: int) -> tuple[float, float]:
    """*Collective*: seconds of an operation either way, the least of three readings: what disturbs only adds."""
    readings = [[clock.time(way, launches) for way in ways] for _ in range(4)][1:]  # the first meets cold caches
    return min(first for first, _ in readings), min(second for _, second in readings)
