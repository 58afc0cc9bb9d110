"""The contents of a case's buffers before and after it: the oracle of tests and benchmarks."""

from collbench.cases import Case
from collbench.collectives import REDUCED
from collbench.datatypes import Array, inputs, reduced


def sent(case: Case, rank: int, seed: int) -> Array:
    """Return the send buffer of a rank, in storage values."""
    return inputs(case.dtype, case.redop, case.recipe(seed), rank, 0, case.send_count)


def received(case: Case, rank: int, seed: int) -> list[tuple[int, Array]]:
    """Return the receive buffer of a rank afterwards: (first element, storage values) of each defined block."""
    how = case.recipe(seed)
    blocks = []
    for first, source, start in case.pieces(rank):
        if source == REDUCED:
            block = reduced(case.dtype, case.redop, how, start, case.block)
        else:
            block = inputs(case.dtype, case.redop, how, source, start, case.block)
        blocks.append((first, block))
    return blocks
