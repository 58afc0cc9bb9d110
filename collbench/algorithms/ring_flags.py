"""`ring-flags`: a ring as one kernel, whose ranks wait for each other on flags in each other's memory.

The host only starts it; kernels/ring.cu describes the protocol.
"""

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.collectives import chunk_elements
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.roles import Launching, Prepared

SLOTS = 2  # as in kernels/ring.cu: the fewest with which a ring can take and send in one hop
SLOT_BYTES = 2**20  # a piece; docs/log.md has what other sizes give
THREADS = 512  # of the one block a rank has on a GPU

COLLECTIVES = ("allreduce", "broadcast", "allgather", "reducescatter")  # each an entry of kernels/ring.cu


def lengths(case: Case) -> tuple[np.generic, ...]:
    """What the entry for a collective takes behind slot and piece."""
    block = np.uint64(case.block)
    if case.collective.name == "allreduce":
        return block, np.uint64(chunk_elements(case.block, case.ranks, case.dtype.itemsize))
    return (block, np.uint32(case.root)) if case.collective.rooted else (block,)


def cost(case: Case, blocks: int = 1) -> Cost:
    """A hop that adds reads a piece and the own input, and writes on; one that passes on reads, keeps and writes on.

    The first and the last hop of a chunk lack one of the three.  An all-reduce goes round twice.
    """
    ranks, others = case.ranks, case.ranks - 1
    if case.collective.name == "allreduce":
        return Cost(Wait.FLAG, 2 * others, link=2 * others / ranks, memory=6 - 4 / ranks, blocks=blocks)
    if case.collective.rooted:
        return Cost(Wait.FLAG, others, link=min(others, 1), memory=3, blocks=blocks)
    return Cost(Wait.FLAG, others, link=others / ranks, memory=3 - 1 / ranks, blocks=blocks)


def _prepare(case: Case, platform: Launching) -> Prepared:
    kernel = platform.kernel("ring.cu", f"ring_{case.collective.name}", case.dtype, case.redop)
    fifo, slot = np.uint64(platform.layout.fifos["ring-flags"]), np.uint64(SLOT_BYTES // case.dtype.itemsize)
    return Prepared(platform.bind(kernel, case, 1, THREADS, fifo, slot, slot, *lengths(case)))


IMPLEMENTATION = Implementation(
    name="ring-flags",
    summary="ring; one kernel a rank, waiting on flags in its neighbours' memory",
    platforms=("gpu", "cpu"),
    collectives=COLLECTIVES,
    prepare=_prepare,
    rung=3,
    neighbours_only=True,
    cost=cost,
    fifo=lambda ranks, platform: SLOTS * SLOT_BYTES,
)
