"""Definitions of the collectives: data movement and bus factors.

Byte counts and bus factors are those of nccl-tests (doc/PERFORMANCE.md).  Messages between pairs have the patterns,
window and bus factors of the point-to-point tests in the OSU Micro-Benchmarks 7.

To add a collective, add a record here, and one in model/schedule.py for predictions.  Buffers, checks, tables, command
line and tests follow.  A buffer has equal blocks: one per rank if the collective is `sharded`, else a single one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from collbench.errors import unknown
from collbench.notebook import Shown
from collbench.records import written_by_name

REDUCED = -1  # as a source: the reduction over all ranks

Move = tuple[int, int, int]  # receive block, source rank (or REDUCED), block of the source's send buffer

WINDOW = 64  # messages in flight: OSU's default (-W)

Peer = Callable[[int, int], int | None]
"""Maps (rank, ranks) to the receiver of that rank's messages; None if it sends nothing."""


@dataclass(frozen=True)
class Flight:
    """Messages in flight together; every sending rank sends all of its messages to one peer."""

    to: Peer
    count: int = 1
    bare: bool = False  # without data, as an acknowledgement

    def source(self, rank: int, ranks: int) -> int | None:
        """Return the rank whose messages *rank* receives; None if it receives none."""
        return next((peer for peer in range(ranks) if self.to(peer, ranks) == rank), None)


_there = Flight(lambda rank, ranks: 1 if rank == 0 and ranks > 1 else None)
_back = Flight(lambda rank, ranks: 0 if rank == 1 else None)
PING_PONG = _there, _back
ONE_WAY = replace(_there, count=WINDOW), replace(_back, bare=True)
BOTH_WAYS = (Flight(lambda rank, ranks: 1 - rank if rank < 2 <= ranks else None, WINDOW),)
# Rank r of the first half is paired with rank r + ranks // 2; an odd last rank has no peer.
MANY_PAIRS = (
    Flight(lambda rank, ranks: rank + ranks // 2 if rank < ranks // 2 else None, WINDOW),
    Flight(lambda rank, ranks: rank - ranks // 2 if ranks // 2 <= rank < ranks // 2 * 2 else None, bare=True),
)


def arrivals(flights: tuple[Flight, ...], rank: int, ranks: int) -> list[Move]:
    """Return the contents of a rank's receive buffer after these flights, as the moves of a Collective."""
    moves = []
    for flight in flights:
        source = flight.source(rank, ranks)
        if source is not None and not flight.bare:
            moves.append((0, source, 0))
    return moves


def _all(ranks: int) -> int:
    return ranks


@written_by_name(lambda name: find_collective(name))
@dataclass(frozen=True)
class Collective(Shown):
    """One collective operation, as data.

    `moves(rank, ranks, root)` lists the final contents of a rank's receive buffer.  `in_place(rank, ranks)` returns the
    blocks at which send and receive buffer start in the shared buffer; it is None without an in-place form.
    """

    SHOWN = ("name", "aliases")
    name: str
    bus_factor: Callable[[int], float]
    moves: Callable[[int, int, int], list[Move]]
    aliases: tuple[str, ...] = ()
    sharded: bool = False
    reduces: bool = False
    rooted: bool = False
    send_blocks: Callable[[int], int] = lambda ranks: 1
    receive_blocks: Callable[[int], int] = lambda ranks: 1
    in_place: Callable[[int, int], tuple[int, int]] | None = None
    flights: tuple[Flight, ...] = ()  # consecutive flights of messages between pairs of ranks
    parts: int = 1  # messages (or barriers) per operation; times and rates are per part
    least_ranks: int = 1
    sized: bool = True  # whether it has a message size
    suite: str = "nccl-tests"  # the suite with a program for it


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _of_pairs(
    name: str, alias: str, flights: tuple[Flight, ...], parts: int, factor: Callable[[int], float]
) -> Collective:
    """Return a collective of messages between pairs of ranks, with OSU's name as an alias."""
    return Collective(
        name=name,
        aliases=(alias,),
        bus_factor=factor,
        moves=lambda rank, ranks, root: arrivals(flights, rank, ranks),
        flights=flights,
        parts=parts,
        least_ranks=2,
        suite="osu",
    )


def exchange(flights: tuple[Flight, ...]) -> Collective:
    """Return a temporary collective of messages between chosen ranks; run files do not contain it."""
    return _of_pairs("exchange", "", flights, sum(flight.count for flight in flights), lambda ranks: 1.0)


def _same_place(rank: int, ranks: int) -> tuple[int, int]:
    return 0, 0


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective(
            name="allreduce",
            aliases=("all_reduce",),
            reduces=True,
            bus_factor=lambda ranks: 2 * (ranks - 1) / ranks,
            moves=lambda rank, ranks, root: [(0, REDUCED, 0)],
            in_place=_same_place,
        ),
        Collective(
            name="broadcast",
            aliases=("bcast",),
            rooted=True,
            bus_factor=lambda ranks: 1.0,
            moves=lambda rank, ranks, root: [(0, root, 0)],
            in_place=_same_place,
        ),
        Collective(
            name="allgather",
            aliases=("all_gather",),
            sharded=True,
            receive_blocks=_all,
            bus_factor=_others,
            moves=lambda rank, ranks, root: [(peer, peer, 0) for peer in range(ranks)],
            in_place=lambda rank, ranks: (rank, 0),
        ),
        Collective(
            name="reducescatter",
            aliases=("reduce_scatter",),
            sharded=True,
            reduces=True,
            send_blocks=_all,
            bus_factor=_others,
            moves=lambda rank, ranks, root: [(0, REDUCED, rank)],
            in_place=lambda rank, ranks: (0, rank),
        ),
        Collective(
            name="reduce",
            reduces=True,
            rooted=True,
            bus_factor=lambda ranks: 1.0,
            moves=lambda rank, ranks, root: [(0, REDUCED, 0)] if rank == root else [],
            in_place=_same_place,
        ),
        Collective(
            name="alltoall",
            aliases=("all_to_all",),
            sharded=True,
            send_blocks=_all,
            receive_blocks=_all,
            bus_factor=_others,
            moves=lambda rank, ranks, root: [(peer, peer, rank) for peer in range(ranks)],
            in_place=_same_place,
        ),
        Collective(
            name="gather",
            sharded=True,
            rooted=True,
            receive_blocks=_all,
            bus_factor=_others,
            moves=lambda rank, ranks, root: [(p, p, 0) for p in range(ranks)] if rank == root else [],
            in_place=lambda rank, ranks: (rank, 0),
        ),
        Collective(
            name="scatter",
            sharded=True,
            rooted=True,
            send_blocks=_all,
            bus_factor=_others,
            moves=lambda rank, ranks, root: [(0, root, rank)],
            in_place=lambda rank, ranks: (0, rank),
        ),
        Collective(
            name="sendrecv",
            aliases=("send_recv",),
            bus_factor=lambda ranks: 1.0,
            moves=lambda rank, ranks, root: [(0, (rank - 1) % ranks, 0)],
        ),
        _of_pairs("pingpong", "latency", PING_PONG, 2, lambda ranks: 1.0),
        _of_pairs("bandwidth", "bw", ONE_WAY, WINDOW, lambda ranks: 1.0),
        _of_pairs("bidirectional", "bibw", BOTH_WAYS, WINDOW, lambda ranks: 2.0),
        _of_pairs("multipair", "mbw_mr", MANY_PAIRS, WINDOW, lambda ranks: float(ranks // 2)),
        # Between two barriers, every rank stores its element for its neighbour to read.  The second barrier must make
        # the store visible, and the first must keep it from overwriting an element before it is read.
        Collective(
            name="barrier",
            bus_factor=lambda ranks: 0.0,
            moves=lambda rank, ranks, root: [(0, (rank - 1) % ranks, 0)],
            parts=2,
            sized=False,
            suite="osu",
        ),
    )
}


def of_nccl_tests() -> list[Collective]:
    """Return the collectives with a program in nccl-tests."""
    return [collective for collective in COLLECTIVES.values() if collective.suite == "nccl-tests"]


def find_collective(name: str) -> Collective:
    """Return the collective of a name, an alias, or a program of nccl-tests (`all_reduce_perf`) or OSU (`osu_bw`)."""
    base = name.removeprefix("osu_").removesuffix("_perf")
    for collective in COLLECTIVES.values():
        if base == collective.name or base in collective.aliases:
            return collective
    raise unknown("collective", name, COLLECTIVES)


def chunk_elements(count: int, ranks: int, itemsize: int) -> int:
    """Return the elements per chunk of a ring; the last chunks may be shorter or empty."""
    # Chunks start at multiples of 128 bytes: 16-byte accesses are aligned, and ranks share no cache line.
    line = max(1, 128 // itemsize)
    return -(-count // (ranks * line)) * line


def chunk_bounds(count: int, ranks: int, itemsize: int) -> Iterator[tuple[int, int]]:
    """Yield the first element and the length of each rank's chunk of `count` elements."""
    chunk = chunk_elements(count, ranks, itemsize)
    for rank in range(ranks):
        first = min(rank * chunk, count)
        yield first, min(chunk, count - first)
