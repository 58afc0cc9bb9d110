"""`parameter-server`: rank 0 adds all inputs and writes the result to all: what rings are there to avoid."""

import numpy as np

from collbench.cases import Case
from collbench.cost import Cost, Wait
from collbench.implementations import Implementation
from collbench.platforms.layout import PACK, grid
from collbench.platforms.roles import Launching, Prepared

BLOCKS, THREADS = 64, 512  # of a rank on a GPU with room for them: with few ranks on it, all of it


def _prepare(case: Case, platform: Launching) -> Prepared:
    kernel = platform.kernel("direct.cu", "parameter_server", case.dtype, case.redop)
    threads, blocks = grid(-(-case.nbytes // PACK), THREADS, BLOCKS)
    return Prepared(platform.bind(kernel, case, platform.blocks(blocks), threads, np.uint64(case.block)))


def _cost(case: Case) -> Cost:
    """Rank 0 reads every input and writes to all."""
    return Cost(Wait.BARRIER, 2, link=case.ranks - 1, memory=2 * case.ranks, blocks=BLOCKS)


IMPLEMENTATION = Implementation(
    name="parameter-server",
    summary="rank 0 adds all inputs and writes the result to all",
    platforms=("gpu", "cpu"),
    collectives=("allreduce",),
    prepare=_prepare,
    rung=10,
    cost=_cost,
)
