"""`ring-ll`: the ring with the flag inside the data: no fence, for twice the bytes (NCCL's LL protocol)."""

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.collectives import chunk_elements
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared

SLOT_BYTES = 32 * 1024  # of data in a piece, of all blocks of a rank together
PACKET_BYTES = 2  # bytes sent for one of data
BLOCKS = 8  # of a rank on a GPU with room for them
THREADS = 512


def slots(ranks: int) -> int:
    """Return as many slots as ranks, so that none needs to be handed back; a power of two, so that numbers may wrap."""
    return 1 << (ranks - 1).bit_length()


def slot_bytes(blocks: int) -> int:
    """Bytes of data in a piece of one of so many blocks: whole lines, the same in every call."""
    return SLOT_BYTES // blocks // 128 * 128


def _prepare(case: Case, platform: Platform) -> Prepared:
    kernel = platform.launcher.kernel("ring_ll.cu", "ring_ll_allreduce", case.dtype, case.redop)
    blocks = platform.launcher.blocks(BLOCKS)
    chunk = chunk_elements(case.block, case.ranks, case.dtype.itemsize) * case.dtype.itemsize
    slot, fifo = np.uint64(slot_bytes(blocks)), np.uint64(platform.layout.fifos["ring-ll"])
    lengths = np.uint32(slots(case.ranks)), np.uint64(case.nbytes), np.uint64(chunk)
    return Prepared(platform.launcher.bind(kernel, case, blocks, THREADS, fifo, slot, *lengths))


def _cost(case: Case) -> Cost:
    """Return the cost of `ring-flags` with packets in place of pieces."""
    share = 2 * (case.ranks - 1) / case.ranks
    return Cost(
        Wait.PACKET,
        2 * (case.ranks - 1),
        link=PACKET_BYTES * share,
        memory=2 * PACKET_BYTES * share + 2,
        packets=share,
        blocks=BLOCKS,
    )


IMPLEMENTATION = Implementation(
    name="ring-ll",
    summary="the ring with the flag inside the data: no fence, twice the bytes",
    platforms=("gpu", "cpu"),
    collectives=("allreduce",),
    prepare=_prepare,
    order=5,
    neighbours_only=True,
    cost=_cost,
    fifo=lambda ranks, platform: slots(ranks) * SLOT_BYTES * PACKET_BYTES,
)
