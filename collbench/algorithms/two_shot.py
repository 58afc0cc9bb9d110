"""`two-shot`: every rank adds one shard of all inputs and writes it to all: two hops, and the fewest bytes."""

import numpy as np

from collbench.algorithms import Implementation
from collbench.algorithms.one_shot import BLOCKS, THREADS
from collbench.cases import PACK, Case
from collbench.collectives import chunk_elements
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.layout import grid
from collbench.platforms.roles import Launching, Prepared


def _prepare(case: Case, platform: Launching) -> Prepared:
    kernel = platform.kernel("direct.cu", "two_shot", case.dtype, case.redop)
    shard = chunk_elements(case.block, case.ranks, case.dtype.itemsize)
    threads, blocks = grid(-(-shard * case.dtype.itemsize // PACK), THREADS, BLOCKS)
    lengths = np.uint64(case.block), np.uint64(shard)
    return Prepared(platform.bind(kernel, case, platform.blocks(blocks), threads, *lengths))


def _cost(case: Case) -> Cost:
    """A shard of every input is read, and written to all."""
    return Cost(Wait.BARRIER, 2, link=2 * (case.ranks - 1) / case.ranks, memory=2, blocks=BLOCKS)


IMPLEMENTATION = Implementation(
    name="two-shot",
    summary="every rank adds one shard of all inputs and writes it to all",
    platforms=("gpu", "cpu"),
    collectives=("allreduce",),
    prepare=_prepare,
    rung=8,
    cost=_cost,
)
