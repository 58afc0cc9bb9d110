"""`one-shot-ll`: ranks send inputs as packets with flags, without a barrier."""

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.errors import Unsupported
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared
from collbench.units import format_size

MOST = 256 * 1024  # bytes of a message: beyond, all others are faster
ROOM = 8 * 2**20  # bytes of all inboxes of a rank: with more ranks each is smaller
PAYLOAD = 8  # bytes of data in 16 of packets
BLOCKS, THREADS = 8, 512  # of a rank on a GPU with room for them


def longest(ranks: int) -> int:
    """Bytes of the longest message: in each of two halves an inbox for every rank, of twice the bytes in packets."""
    return min(MOST, ROOM // (2 * ranks * 2) // 128 * 128)


def _supports(case: Case) -> None:
    if case.nbytes > longest(case.ranks):
        raise Unsupported(f"inboxes hold messages up to {format_size(longest(case.ranks))}")


def _prepare(case: Case, platform: Platform) -> Prepared:
    kernel = platform.launcher.kernel("one_shot_ll.cu", "one_shot_ll", case.dtype, case.redop)
    grid = platform.launcher.grid(-(-case.nbytes // PAYLOAD), THREADS, BLOCKS)
    fifo, room = np.uint64(platform.layout.fifos["one-shot-ll"]), np.uint64(longest(case.ranks) // PAYLOAD)
    return Prepared(platform.launcher.bind(kernel, case, *grid, fifo, room, np.uint64(case.nbytes)))


def _cost(case: Case) -> Cost:
    """The input is read to be sent and to be added, and each packet is written and read, at twice its data."""
    ranks = case.ranks
    sent = 2 * (ranks - 1)
    return Cost(Wait.PACKET, 1, sent, memory=4 * ranks - 1, packets=ranks - 1, blocks=BLOCKS, cached=2 * sent + 1)


IMPLEMENTATION = Implementation(
    name="one-shot-ll",
    summary="every rank sends its input to all, the flag inside the data: no barrier",
    prepare=_prepare,
    supports=_supports,
    order=7,
    cost=_cost,
    fifo=lambda ranks, platform: 2 * ranks * 2 * longest(ranks),
)
