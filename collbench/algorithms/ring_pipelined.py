"""`ring-pipelined`: the ring of `ring-flags` with its pipe full: more slots, more blocks, more loads in flight.

A slot is filled while the one before is emptied; one fence makes data and free slot known together.
"""

from dataclasses import dataclass

import numpy as np

from collbench.algorithms import Implementation
from collbench.algorithms.ring_flags import COLLECTIVES, cost, lengths
from collbench.cases import PACK, Case
from collbench.collectives import chunk_elements
from collbench.platforms.roles import Launching, Prepared

BLOCKS = 64  # of a rank on a GPU with room for them
THREADS = 512
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


def pipe(platform: Launching, blocks: int) -> Pipe:
    """As many slots as fit into half of the cache, the other half being for what streams through.

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


def _prepare(case: Case, platform: Launching) -> Prepared:
    blocks, size = platform.blocks(BLOCKS), case.dtype.itemsize
    own = pipe(platform, blocks)
    options = f"-DSLOTS={own.slots}", "-DMERGED", f"-DIN_FLIGHT={own.in_flight}"
    kernel = platform.kernel("ring.cu", f"ring_{case.collective.name}", case.dtype, case.redop, *options)
    chunk = chunk_elements(case.block, case.ranks, size) if case.collective.name == "allreduce" else case.block
    slot, piece = np.uint64(own.slot // size), np.uint64(own.piece(blocks, chunk * size) // size)
    fifo = np.uint64(platform.layout.fifos["ring-pipelined"])
    return Prepared(platform.bind(kernel, case, blocks, THREADS, fifo, slot, piece, *lengths(case)))


IMPLEMENTATION = Implementation(
    name="ring-pipelined",
    summary="the same with more slots, blocks and loads in flight",
    platforms=("gpu", "cpu"),
    collectives=COLLECTIVES,
    prepare=_prepare,
    rung=4,
    neighbours_only=True,
    cost=lambda case: cost(case, BLOCKS),
    fifo=lambda ranks, platform: FIFO_BYTES[platform],
)
