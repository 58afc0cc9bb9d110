"""`ring-ll`: the ring all-reduce with flags inside the data (NCCL's LL)."""

import numpy as np

from collbench.algorithms import Implementation
from collbench.algorithms.one_shot_ll import PAYLOAD
from collbench.algorithms.ring import BLOCKS, pipe
from collbench.cases import Case
from collbench.collectives import chunk_elements
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import LINE

PACKET_BYTES = 2  # bytes sent for one of data
FIFO_BYTES = 4 * 2**20  # of a rank on a GPU, at most: all are to stay in its cache
SLOT_BYTES = {"gpu": BLOCKS * 4096, "cpu": 32 * 1024}  # of data in a piece, of all blocks of a rank together


def slots(ranks: int) -> int:
    """Return as many slots as ranks, so that none needs to be handed back; a power of two, so that numbers may wrap."""
    return 1 << (ranks - 1).bit_length()


def slot_bytes(ranks: int, platform: str) -> int:
    """Bytes of data in a piece, of all blocks of a rank together: fewer where many slots must share a FIFO."""
    return min(SLOT_BYTES[platform], FIFO_BYTES // PACKET_BYTES // slots(ranks))


def pieces(ranks: int, platform: str, blocks: int, threads: int, chunk: int) -> tuple[int, int]:
    """Bytes of data in a slot of one of `blocks` blocks, the same in every call, and in a piece of a chunk.

    A slot is whole lines, and a piece whole accesses of all threads, if there is room: all blocks are to have some.
    """
    slot, step = slot_bytes(ranks, platform) // blocks // LINE * LINE, threads * PAYLOAD
    return slot, min(slot, -(-chunk // (blocks * step)) * step)


def _prepare(case: Case, platform: Platform) -> Prepared:
    kernel = platform.launcher.kernel("ring_ll.cu", "ring_ll_allreduce", case.dtype, case.redop)
    blocks, threads, *_ = pipe(platform)
    chunk = chunk_elements(case.block, case.ranks, case.dtype.itemsize) * case.dtype.itemsize
    slot, piece = map(np.uint64, pieces(case.ranks, platform.name, blocks, threads, chunk))
    start, count = np.uint64(platform.layout.fifos["ring-ll"]), np.uint32(slots(case.ranks))
    lengths = piece, np.uint64(case.nbytes), np.uint64(chunk)
    return Prepared(platform.launcher.bind(kernel, case, blocks, threads, start, slot, count, *lengths))


def _cost(case: Case) -> Cost:
    """Return the cost of `ring-flags` with packets in place of pieces."""
    steps, lap = 2 * (case.ranks - 1), case.ranks * slot_bytes(case.ranks, "gpu")
    share = steps / case.ranks
    sent = PACKET_BYTES * share
    return Cost(
        Wait.PACKET,
        steps,
        link=sent,
        memory=2 * sent + 2,
        cached=2 * sent,
        packets=share,
        blocks=BLOCKS,
        lap=lap,
    )


IMPLEMENTATION = Implementation(
    name="ring-ll",
    summary="the ring with the flag inside the data: no fence, twice the bytes",
    prepare=_prepare,
    order=5,
    neighbours_only=True,
    cost=_cost,
    fifo=lambda ranks, platform: slots(ranks) * slot_bytes(ranks, platform) * PACKET_BYTES,
)
