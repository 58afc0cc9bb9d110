"""What each collective means: who sends and receives what, and what its bandwidth is counted against.

Byte counts and bus factors are those of nccl-tests (doc/PERFORMANCE.md), and for messages between pairs of ranks those
of the OSU Micro-Benchmarks (README of OMB 7).  To add a collective, add a record here; buffers, checks, tables, command
line and tests follow from it.  Predictions need its record in model/schedule.py, too.

A buffer is a row of equal blocks.  A collective that is `sharded` splits its nbytes into one block a rank; for the
others the whole array is one block.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from collbench.errors import unknown
from collbench.messages import BOTH_WAYS, MANY_PAIRS, ONE_WAY, PING_PONG, WINDOW, Flight, arrivals

REDUCED = -1  # as a source: the reduction over all ranks

Move = tuple[int, int, int]  # receive block, source rank (or REDUCED), block of the source's send buffer


def _one(ranks: int) -> int:
    return 1


def _all(ranks: int) -> int:
    return ranks


@dataclass(frozen=True)
class Collective:
    """One collective operation, as data.

    `moves(rank, ranks, root)` lists what a rank's receive buffer holds afterwards.  `in_place(rank, ranks)` gives
    the block at which the send and the receive buffer start within the one shared buffer; None where the operation
    has no in-place form.
    """

    name: str
    bus_factor: Callable[[int], float]
    moves: Callable[[int, int, int], list[Move]]
    aliases: tuple[str, ...] = ()
    sharded: bool = False
    reduces: bool = False
    rooted: bool = False
    send_blocks: Callable[[int], int] = _one
    receive_blocks: Callable[[int], int] = _one
    in_place: Callable[[int, int], tuple[int, int]] | None = None
    flights: tuple[Flight, ...] = ()  # what it is made of, if that is messages between pairs, one flight after another
    parts: int = 1  # an operation is so many of what is timed: times, and so rates, are of one of them
    least_ranks: int = 1
    sized: bool = True  # whether there are messages of one size and another
    suite: str = "nccl-tests"  # where it is from; others are none of nccl-tests' programs


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _of_pairs(
    name: str, alias: str, flights: tuple[Flight, ...], parts: int, factor: Callable[[int], float]
) -> Collective:
    """Messages between pairs of ranks, under OSU's name as well."""
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
        # Two barriers, between which every rank stores its element where its neighbour reads: what was stored before
        # the second one must be seen after it, and what is read is not overwritten before the first.
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
    """Those that nccl-tests has a program for."""
    return [collective for collective in COLLECTIVES.values() if collective.suite == "nccl-tests"]


def find_collective(name: str) -> Collective:
    """The collective of that name or alias, also as a program of nccl-tests (`all_reduce_perf`) or OSU (`osu_bw`)."""
    wanted = name.removeprefix("osu_").removesuffix("_perf")
    for collective in COLLECTIVES.values():
        if wanted == collective.name or wanted in collective.aliases:
            return collective
    raise unknown("collective", name, COLLECTIVES)


def chunk_elements(count: int, ranks: int, itemsize: int) -> int:
    """Elements in each of the chunks that a ring passes round; the last chunks may be shorter or empty.

    Chunks start at multiples of 128 bytes, so that every 16-byte access of a kernel is aligned and no two ranks
    write to one cache line.
    """
    line = max(1, 128 // itemsize)
    return -(-count // (ranks * line)) * line


def chunk_bounds(count: int, ranks: int, itemsize: int) -> Iterator[tuple[int, int]]:
    """First element and length of each rank's chunk of `count` elements."""
    chunk = chunk_elements(count, ranks, itemsize)
    for rank in range(ranks):
        first = min(rank * chunk, count)
        yield first, min(chunk, count - first)
