"""`ring-flags` and `ring-pipelined`: a ring as one kernel, synchronised by flags.

The host only starts it; kernels/ring.cu describes the protocol. Both use the same number of blocks. `ring-pipelined`
keeps more slots and loads in flight: it fills one slot while the previous one is emptied, and one fence publishes
data and a free slot together. The second round of its all-reduce writes directly to the results.
"""

from typing import NamedTuple

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import PACK, Case
from collbench.collectives import chunk_elements
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared

SLOTS = 2  # of `ring-flags`, as in kernels/ring.cu: the fewest with which a ring can take and send in one hop
BLOCKS, THREADS = 64, 512  # the most blocks that a rank has on a GPU, and threads of each
IN_FLIGHT = 4  # packs that a thread of a GPU loads from its FIFO, and as many of its own, before it stores the first
PIECE = 2 * IN_FLIGHT * PACK  # bytes that a block of a GPU sends at once, for each of its threads
"""A hop's flags and fence take two or three microseconds, in which its block moves nothing, and a piece of 64 KiB some
eight.  From 64 blocks 4 MiB are then on the way with every slot, where a link of 450 GB/s and 3 us wants 1.4 MiB."""

SLOT_BYTES = {"gpu": BLOCKS * THREADS * PIECE, "cpu": 2**20}  # of `ring-flags`, of all blocks of a rank: docs/log.md
FIFO_BYTES = {"gpu": 4 * BLOCKS * THREADS * PIECE, "cpu": 8 * 2**18}  # of all slots of a rank's blocks

COLLECTIVES = ("allreduce", "broadcast", "allgather", "reducescatter")  # each an entry of kernels/ring.cu


def lengths(case: Case) -> tuple[np.generic, ...]:
    """Return the arguments that the entry for a collective takes after slot and piece."""
    block = np.uint64(case.block)
    if case.collective.name == "allreduce":
        return block, np.uint64(chunk_elements(case.block, case.ranks, case.dtype.itemsize))
    return (block, np.uint32(case.root)) if case.collective.rooted else (block,)


def cost(case: Case, merged: bool = False) -> Cost:
    """Return the cost: an adding hop reads a piece and the input and writes; a passing hop reads, stores, writes.

    The first and the last hop of a chunk lack one of the three.  An all-reduce goes round twice.  If `merged`, passing
    hops do not store, and free room has no flag alone.  Inputs are read and results written once; the rest is cached.
    """
    ranks, others = case.ranks, case.ranks - 1
    if case.collective.name == "allreduce":
        steps, link, memory = 2 * others, 2 * others / ranks, max(2.0, 6 - merged - 4 / ranks)
    elif case.collective.rooted:
        steps, link, memory = others, min(others, 1), 3.0
    else:
        steps, link, memory = others, others / ranks, 3 - 1 / ranks
    streamed = 2.0 if case.collective.name == "allreduce" else 1 + 1 / ranks
    rooms, lap = 0 if merged else steps, ranks * BLOCKS * THREADS // 2 * PIECE  # on a shared GPU, as in `pipe`
    return Cost(Wait.FLAG, steps, link, memory, blocks=BLOCKS, cached=memory - streamed, rooms=rooms, lap=lap)


class Pipe(NamedTuple):
    """The blocks of a rank, alike for all rings, and the FIFO of each, the same in every call of a run."""

    blocks: int
    threads: int  # of a block
    slots: int  # a power of two
    slot: int  # bytes, whole lines

    def piece(self, chunk: int) -> int:
        """Bytes that a block sends at once of a chunk of `chunk` bytes, in whole lines: every block gets a part."""
        share, step = -(-chunk // self.blocks), self.threads * PACK
        step *= IN_FLIGHT if share > step * IN_FLIGHT else 1
        return min(self.slot, -(-share // step) * step)


def pipe(platform: Platform) -> Pipe:
    """Return the pipe with as many slots as fit into half of the cache; the other half is for the streamed data.

    Then what passes through a FIFO never goes to memory.
    """
    blocks, threads = platform.launcher.blocks(BLOCKS), THREADS
    if platform.cache is None:
        return Pipe(blocks, threads, 8, FIFO_BYTES[platform.name] // 8)

    # On few multiprocessors two blocks of half the threads on each: one moves while the other waits.
    if 1 < blocks < BLOCKS:
        blocks, threads = min(BLOCKS, 2 * blocks), THREADS // 2

    # A block's flags and moves follow each other, so a second slot matters more than a third, and the length of a piece
    # more than either.
    room, least = platform.cache // 2 // blocks, threads * PACK
    slots = 4 if 4 * threads * PIECE <= room else 2
    return Pipe(blocks, threads, slots, max(least, min(threads * PIECE, room // slots // least * least)))


def _prepare(name: str, case: Case, platform: Platform, fifo: Pipe, *options: str) -> Prepared:
    kernel = platform.launcher.kernel("ring.cu", f"ring_{case.collective.name}", case.dtype, case.redop, *options)
    size, start = case.dtype.itemsize, np.uint64(platform.layout.fifos[name])
    chunk = chunk_elements(case.block, case.ranks, size) if case.collective.name == "allreduce" else case.block
    slot, piece = np.uint64(fifo.slot // size), np.uint64(fifo.piece(chunk * size) // size)
    return Prepared(platform.launcher.bind(kernel, case, *fifo[:2], start, slot, piece, *lengths(case)))


def _prepare_flags(case: Case, platform: Platform) -> Prepared:
    fifo = pipe(platform)
    slot = SLOT_BYTES["cpu"] if platform.name == "cpu" else fifo.slot
    return _prepare("ring-flags", case, platform, fifo._replace(slots=SLOTS, slot=slot))


def _prepare_pipelined(case: Case, platform: Platform) -> Prepared:
    fifo, in_flight = pipe(platform), 1 if platform.name == "cpu" else IN_FLIGHT
    options = f"-DSLOTS={fifo.slots}", "-DMERGED", f"-DIN_FLIGHT={in_flight}"
    return _prepare("ring-pipelined", case, platform, fifo, *options)


RING_FLAGS = Implementation(
    name="ring-flags",
    summary="ring; one kernel a rank, waiting on flags in its neighbours' memory",
    collectives=COLLECTIVES,
    prepare=_prepare_flags,
    order=3,
    neighbours_only=True,
    cost=cost,
    fifo=lambda ranks, platform: SLOTS * SLOT_BYTES[platform],
)
RING_PIPELINED = Implementation(
    name="ring-pipelined",
    summary="the same with more slots and loads in flight; results are handed on where they belong",
    collectives=COLLECTIVES,
    prepare=_prepare_pipelined,
    order=4,
    neighbours_only=True,
    cost=lambda case: cost(case, merged=True),
    fifo=lambda ranks, platform: FIFO_BYTES[platform],
)
IMPLEMENTATIONS = RING_FLAGS, RING_PIPELINED
