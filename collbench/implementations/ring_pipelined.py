"""`ring-pipelined`: the ring of `ring-flags` with its pipe full: more slots, more blocks, more loads in flight.

A slot is filled while the one before is emptied; one fence makes data and free slot known together.
"""

import numpy as np

from collbench.implementations import Implementation
from collbench.implementations.ring_flags import COLLECTIVES, cost, lengths
from collbench.platforms import Platform, Prepared
from collbench.sweep import Case

SLOTS = 8
SLOT_BYTES = 256 * 1024  # of all blocks of a rank together: with SLOTS a share of a GPU's L2 cache
BLOCKS = 16  # of a rank on a GPU with room for them
THREADS = 512
_OPTIONS = (f"-DSLOTS={SLOTS}", "-DMERGED", "-DUNROLL")


def _prepare(case: Case, platform: Platform) -> Prepared:
    kernel = platform.kernel("ring.cu", f"ring_{case.collective.name}", case.dtype, case.redop, *_OPTIONS)
    blocks = platform.blocks(BLOCKS)
    fifo, slot = np.uint64(platform.fifo("ring-pipelined")), np.uint64(SLOT_BYTES // blocks // case.dtype.itemsize)
    return Prepared(platform.bind(kernel, case, blocks, THREADS, fifo, slot, *lengths(case)))


IMPLEMENTATION = Implementation(
    name="ring-pipelined",
    summary="the same with more slots, blocks and loads in flight",
    platforms=("gpu", "cpu"),
    collectives=COLLECTIVES,
    prepare=_prepare,
    rung=4,
    cost=lambda case: cost(case, BLOCKS),
    fifo=lambda ranks: SLOTS * SLOT_BYTES,
)
