"""`one-shot`: every rank reads all inputs and adds them: one hop instead of a ring's many, for more bytes."""

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import PACK, Case
from collbench.errors import Unsupported
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.layout import grid
from collbench.platforms.roles import Launching, Prepared

BLOCKS, THREADS = 64, 512  # of a rank on a GPU with room for them: with few ranks on it, all of it


def _supports(case: Case) -> None:
    if case.in_place:
        raise Unsupported("a rank's result would overwrite the input that others still read")


def prepare(case: Case, platform: Launching, entry: str = "one_shot") -> Prepared:
    """An entry of kernels/direct.cu that has each rank which adds do so with whole inputs."""
    kernel = platform.kernel("direct.cu", entry, case.dtype, case.redop)
    threads, blocks = grid(-(-case.nbytes // PACK), THREADS, BLOCKS)
    return Prepared(platform.bind(kernel, case, platform.blocks(blocks), threads, np.uint64(case.block)))


def _cost(case: Case) -> Cost:
    """The result is written beside the inputs that are read."""
    return Cost(Wait.BARRIER, 2, link=case.ranks - 1, memory=case.ranks + 1, blocks=BLOCKS)


IMPLEMENTATION = Implementation(
    name="one-shot",
    summary="every rank reads all inputs and adds them",
    platforms=("gpu", "cpu"),
    collectives=("allreduce",),
    prepare=prepare,
    supports=_supports,
    rung=6,
    cost=_cost,
)
