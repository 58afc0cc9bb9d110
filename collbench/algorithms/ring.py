"""`ring-flags` and `ring-pipelined`: a ring as one kernel, whose ranks wait on flags in each other's memory.

The host only starts it; kernels/ring.cu describes the protocol.  `ring-pipelined` keeps the pipe full, with more slots,
more blocks and more loads in flight: a slot is filled while the one before is emptied, and one fence makes data and
free slot known together.
"""

from dataclasses import dataclass

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import PACK, Case
from collbench.collectives import chunk_elements
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared

SLOTS = 2  # as in kernels/ring.cu: the fewest with which a ring can take and send in one hop
SLOT_BYTES = 2**20  # a piece; docs/log.md has what other sizes give
THREADS = 512  # of a block; `ring-flags` has one block a rank

COLLECTIVES = ("allreduce", "broadcast", "allgather", "reducescatter")  # each an entry of kernels/ring.cu


def lengths(case: Case) -> tuple[np.generic, ...]:
    """Return the arguments that the entry for a collective takes after slot and piece."""
    block = np.uint64(case.block)
    if case.collective.name == "allreduce":
        return block, np.uint64(chunk_elements(case.block, case.ranks, case.dtype.itemsize))
    return (block, np.uint32(case.root)) if case.collective.rooted else (block,)


def cost(case: Case, blocks: int = 1) -> Cost:
    """Return the cost: an adding hop reads a piece and the input and writes; a passing hop reads, stores, writes.

    The first and the last hop of a chunk lack one of the three.  An all-reduce goes round twice.
    """
    ranks, others = case.ranks, case.ranks - 1
    if case.collective.name == "allreduce":
        return Cost(Wait.FLAG, 2 * others, link=2 * others / ranks, memory=6 - 4 / ranks, blocks=blocks)
    if case.collective.rooted:
        return Cost(Wait.FLAG, others, link=min(others, 1), memory=3, blocks=blocks)
    return Cost(Wait.FLAG, others, link=others / ranks, memory=3 - 1 / ranks, blocks=blocks)


def _prepare_flags(case: Case, platform: Platform) -> Prepared:
    kernel = platform.launcher.kernel("ring.cu", f"ring_{case.collective.name}", case.dtype, case.redop)
    fifo, slot = np.uint64(platform.layout.fifos["ring-flags"]), np.uint64(SLOT_BYTES // case.dtype.itemsize)
    return Prepared(platform.launcher.bind(kernel, case, 1, THREADS, fifo, slot, slot, *lengths(case)))


RING_FLAGS = Implementation(
    name="ring-flags",
    summary="ring; one kernel a rank, waiting on flags in its neighbours' memory",
    platforms=("gpu", "cpu"),
    collectives=COLLECTIVES,
    prepare=_prepare_flags,
    order=3,
    neighbours_only=True,
    cost=cost,
    fifo=lambda ranks, platform: SLOTS * SLOT_BYTES,
)

BLOCKS = 64  # of `ring-pipelined` for a rank on a GPU with room for them
IN_FLIGHT = 4  # packs that a thread of a GPU loads from its FIFO, and as many of its own, before it stores the first
ROUND = THREADS * PACK  # bytes that a block moves with one access of every thread
TILE = ROUND * IN_FLIGHT  # and with all that it has in flight
PIECE = 2 * TILE
"""Bytes that a block of a GPU sends at once: 64 KiB.  A hop's flags and fence take two or three microseconds, in which
its block moves nothing, and the piece some eight.  From 64 blocks 4 MiB are then on the way with every slot, where a
link of 450 GB/s and 3 us wants 1.4 MiB."""

FIFO_BYTES = {"gpu": 4 * BLOCKS * PIECE, "cpu": 8 * 2**18}  # of all slots of a rank's blocks


@dataclass(frozen=True)
class Pipe:
    """The FIFO of one block, the same in every call of a run."""

    slots: int  # a power of two
    slot: int  # bytes, whole lines
    in_flight: int = IN_FLIGHT

    def piece(self, blocks: int, chunk: int) -> int:
        """Bytes that a block sends at once of a chunk of so many, in whole lines: all blocks are to have some of it."""
        share = -(-chunk // blocks)
        step = TILE if share > TILE else ROUND
        return min(self.slot, -(-share // step) * step)


def pipe(platform: Platform, blocks: int) -> Pipe:
    """Return the pipe with as many slots as fit into half of the cache; the other half is for the streamed data.

    Then what passes through a FIFO never goes to memory.  A block's flags and moves follow each other, so a second slot
    matters more than a third, and the length of a piece more than either.
    """
    cache = platform.cache
    if cache is None:
        return Pipe(8, FIFO_BYTES[platform.name] // 8 // blocks, in_flight=1)
    for slots in (4, 2):
        if slots * blocks * PIECE <= cache // 2:
            return Pipe(slots, PIECE)
    return Pipe(2, max(ROUND, cache // 2 // (2 * blocks) // ROUND * ROUND))


def _prepare_pipelined(case: Case, platform: Platform) -> Prepared:
    blocks, size = platform.launcher.blocks(BLOCKS), case.dtype.itemsize
    fifo = pipe(platform, blocks)
    options = f"-DSLOTS={fifo.slots}", "-DMERGED", f"-DIN_FLIGHT={fifo.in_flight}"
    kernel = platform.launcher.kernel("ring.cu", f"ring_{case.collective.name}", case.dtype, case.redop, *options)
    chunk = chunk_elements(case.block, case.ranks, size) if case.collective.name == "allreduce" else case.block
    slot, piece = np.uint64(fifo.slot // size), np.uint64(fifo.piece(blocks, chunk * size) // size)
    start = np.uint64(platform.layout.fifos["ring-pipelined"])
    return Prepared(platform.launcher.bind(kernel, case, blocks, THREADS, start, slot, piece, *lengths(case)))


RING_PIPELINED = Implementation(
    name="ring-pipelined",
    summary="the same with more slots, blocks and loads in flight",
    platforms=("gpu", "cpu"),
    collectives=COLLECTIVES,
    prepare=_prepare_pipelined,
    order=4,
    neighbours_only=True,
    cost=lambda case: cost(case, BLOCKS),
    fifo=lambda ranks, platform: FIFO_BYTES[platform],
)
IMPLEMENTATIONS = RING_FLAGS, RING_PIPELINED
