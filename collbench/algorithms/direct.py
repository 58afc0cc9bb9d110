"""`one-shot`, `two-shot` and `parameter-server`: direct reads of inputs (kernels/direct.cu).

* `one-shot`: every rank reads all inputs and adds them: one hop instead of a ring's many, for more bytes.
* `two-shot`: every rank adds one shard of all inputs and writes it to all: two hops, and the fewest bytes.
* `parameter-server`: rank 0 adds all inputs and writes the result to all: the bottleneck that rings avoid.
"""

from functools import partial

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import PACK, Case
from collbench.collectives import chunk_elements
from collbench.errors import Unsupported
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared

BLOCKS, THREADS = 64, 512  # of a rank on a GPU with room for them: with few ranks on it, all of it


def _supports_one_shot(case: Case) -> None:
    if case.in_place:
        raise Unsupported("a rank's result would overwrite the input that others still read")


def _prepare_whole(case: Case, platform: Platform, entry: str) -> Prepared:
    kernel = platform.launcher.kernel("direct.cu", entry, case.dtype, case.redop)
    grid = platform.launcher.grid(-(-case.nbytes // PACK), THREADS, BLOCKS)
    return Prepared(platform.launcher.bind(kernel, case, *grid, np.uint64(case.block)))


def _prepare_two_shot(case: Case, platform: Platform) -> Prepared:
    kernel = platform.launcher.kernel("direct.cu", "two_shot", case.dtype, case.redop)
    shard = chunk_elements(case.block, case.ranks, case.dtype.itemsize)
    grid = platform.launcher.grid(-(-shard * case.dtype.itemsize // PACK), THREADS, BLOCKS)
    return Prepared(platform.launcher.bind(kernel, case, *grid, np.uint64(case.block), np.uint64(shard)))


def _cost(link: float, memory: float, fences: int = 1, cached: float = 0.0, alone: bool = False) -> Cost:
    return Cost(Wait.BARRIER, 2, link, memory, blocks=BLOCKS, fences=fences, cached=cached, alone=alone)


ONE_SHOT = Implementation(
    name="one-shot",
    summary="every rank reads all inputs and adds them",
    prepare=partial(_prepare_whole, entry="one_shot"),
    supports=_supports_one_shot,
    order=6,
    # The result is no place that is read; an input that one rank has loaded is in the cache for the others.
    cost=lambda case: _cost(case.ranks - 1, case.ranks + 1, fences=0, cached=case.ranks - 1),
)
TWO_SHOT = Implementation(
    name="two-shot",
    summary="every rank adds one shard of all inputs and writes it to all",
    prepare=_prepare_two_shot,
    order=8,
    cost=lambda case: _cost(2 * (case.ranks - 1) / case.ranks, 2),  # a shard of every input is read, and goes to all
)
PARAMETER_SERVER = Implementation(
    name="parameter-server",
    summary="rank 0 adds all inputs and writes the result to all",
    prepare=partial(_prepare_whole, entry="parameter_server"),
    order=10,
    cost=lambda case: _cost(case.ranks - 1, 2 * case.ranks, alone=True),  # rank 0 reads every input and writes to all
)
IMPLEMENTATIONS = ONE_SHOT, TWO_SHOT, PARAMETER_SERVER
