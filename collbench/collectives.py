"""What each collective means: who sends and receives what, and what its bandwidth is counted against.

Byte counts and bus factors are those of nccl-tests (doc/PERFORMANCE.md).  To add a collective, add a record here;
buffers, checks, tables, command line and tests follow from it.
Predictions need its record in model/schedule.py, too.

A buffer is a row of equal blocks.  A collective that is `sharded` splits its nbytes into one block a rank; for the
others the whole array is one block.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from collbench.errors import unknown

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


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


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
    )
}


def find_collective(name: str) -> Collective:
    """The collective of that name or alias, also as nccl-tests calls its program (`all_reduce_perf`)."""
    wanted = name.removesuffix("_perf")
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
