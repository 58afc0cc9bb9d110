"""`parameter-server`: rank 0 adds all inputs and writes the result to all: what rings are there to avoid."""

from functools import partial

from collbench.algorithms import Implementation
from collbench.algorithms.one_shot import BLOCKS, prepare
from collbench.cases import Case
from collbench.platforms.cost import Cost, Wait


def _cost(case: Case) -> Cost:
    """Rank 0 reads every input and writes to all."""
    return Cost(Wait.BARRIER, 2, link=case.ranks - 1, memory=2 * case.ranks, blocks=BLOCKS)


IMPLEMENTATION = Implementation(
    name="parameter-server",
    summary="rank 0 adds all inputs and writes the result to all",
    platforms=("gpu", "cpu"),
    collectives=("allreduce",),
    prepare=partial(prepare, entry="parameter_server"),
    rung=10,
    cost=_cost,
)
