"""`nvls`: the NVSwitch adds inputs and multicasts the result.

It is `two-shot` with the sum moved into the switch: a link carries (n + 1) / n bytes per byte of the array.
"""

from collections.abc import Mapping

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.collectives import chunk_elements
from collbench.errors import Unsupported
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import Region

REDUCES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("float", "double"), ("sum", "avg")),
    **dict.fromkeys(("half", "bfloat16", "int32", "uint32", "int64", "uint64"), ("sum", "avg", "max", "min")),
}
"""Reductions with an instruction of the switch (PTX ISA, multimem.ld_reduce); an average is a sum, then divided."""

BLOCKS, THREADS = 16, 512  # of a rank


def _supports(case: Case) -> None:
    dtype, redop = case.dtype.name, case.redop.name
    if dtype not in REDUCES:
        raise Unsupported(f"the switch has no instruction for {dtype}; it has for: {', '.join(REDUCES)}")
    if redop not in REDUCES[dtype]:
        choices = ", ".join(REDUCES[dtype])
        raise Unsupported(f"the switch has no instruction for {redop} of {dtype}; it has for: {choices}")


def _prepare(case: Case, platform: Platform) -> Prepared:
    # Buffers of an all-reduce start where their region does, or are misaligned alike.
    results = platform.memory.multicast(Region.RECEIVE) + case.misalignment
    inputs = results if case.in_place else platform.memory.multicast(Region.SEND) + case.misalignment
    kernel = platform.launcher.kernel("multimem.cu", "nvls", case.dtype, case.redop)
    shard = chunk_elements(case.block, case.ranks, case.dtype.itemsize)
    arguments = (np.uint64(number) for number in (inputs, results, case.block, shard))
    return Prepared(platform.launcher.bind(kernel, case, platform.launcher.blocks(BLOCKS), THREADS, *arguments))


def _cost(case: Case) -> Cost:
    """The switch loads each input once for its shard's owner, and writes each shard once to all."""
    return Cost(Wait.BARRIER, 2, link=1 + 1 / case.ranks if case.ranks > 1 else 0, memory=2, blocks=BLOCKS, adds=True)


IMPLEMENTATION = Implementation(
    name="nvls",
    summary="the NVSwitch adds: every rank loads one shard reduced and stores it to all",
    platforms=("gpu",),
    prepare=_prepare,
    supports=_supports,
    home=lambda platform, case: platform.on_switch(),
    order=9,
    multicast=True,
    cost=_cost,
)
