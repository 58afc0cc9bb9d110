"""The meaning of each collective, held against nccl-tests' definitions and against itself."""

import pytest

from collbench.collectives import COLLECTIVES, REDUCED, Collective, chunk_bounds, find_collective
from collbench.errors import UsageError

EVERY = pytest.mark.parametrize("collective", COLLECTIVES.values(), ids=COLLECTIVES)
FACTORS = {  # nccl-tests doc/PERFORMANCE.md, and what OSU's tests add up, at 4 ranks
    "allreduce": 1.5,
    "broadcast": 1,
    "allgather": 0.75,
    "reducescatter": 0.75,
    "reduce": 1,
    "alltoall": 0.75,
    "gather": 0.75,
    "scatter": 0.75,
    "sendrecv": 1,
    "pingpong": 1,
    "bandwidth": 1,
    "bidirectional": 2,
    "multipair": 2,
    "barrier": 0,
}


@EVERY
def test_bus_factors_are_the_published_ones(collective: Collective) -> None:
    """Every collective has one, and it is the published one."""
    assert collective.bus_factor(4) == FACTORS[collective.name]


@EVERY
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_what_arrives_was_sent(collective: Collective, ranks: int) -> None:
    """Every move is from a block that its source has into a block that the receiver has, each filled once."""
    for rank in range(ranks):
        moves = collective.moves(rank, ranks, ranks - 1)
        filled = [block for block, _, _ in moves]
        assert sorted(filled) == list(range(collective.receive_blocks(ranks))) or filled == []
        assert all(source == REDUCED or 0 <= source < ranks for _, source, _ in moves)
        assert all(0 <= sent < collective.send_blocks(ranks) for _, _, sent in moves)


@EVERY
def test_only_reductions_reduce(collective: Collective) -> None:
    """`reduces` says whether a reduction takes part."""
    sources = {source for rank in range(3) for _, source, _ in collective.moves(rank, 3, 0)}
    assert collective.reduces == (REDUCED in sources)


@EVERY
@pytest.mark.parametrize("ranks", [2, 5])
def test_in_place_buffers_fit_into_one(collective: Collective, ranks: int) -> None:
    """Neither buffer reaches beyond the longer of the two."""
    longest = max(collective.send_blocks(ranks), collective.receive_blocks(ranks))
    for rank in range(ranks if collective.in_place else 0):
        assert collective.in_place
        send, receive = collective.in_place(rank, ranks)
        assert send + collective.send_blocks(ranks) <= longest
        assert receive + collective.receive_blocks(ranks) <= longest


@EVERY
def test_names_from_nccl_tests_are_understood(collective: Collective) -> None:
    """`allreduce`, `all_reduce` and `all_reduce_perf` are one."""
    for name in (collective.name, *collective.aliases):
        assert find_collective(name) is find_collective(f"{name}_perf") is collective


@EVERY
def test_names_from_osu_are_understood(collective: Collective) -> None:
    """`latency` and `osu_latency`, `bcast` and `osu_bcast`."""
    for name in (collective.name, *collective.aliases):
        assert find_collective(f"osu_{name}") is collective


def test_an_unknown_collective_names_the_choices() -> None:
    """The message says what is wrong and what there is."""
    with pytest.raises(UsageError, match="unknown collective 'alreduce'; choose from: allreduce, broadcast"):
        find_collective("alreduce")


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1000, 4096, 100001])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_chunks_cover_an_array_once_and_start_at_cache_lines(count: int, ranks: int, itemsize: int) -> None:
    """No element is left out or taken twice, whatever the length."""
    bounds = list(chunk_bounds(count, ranks, itemsize))
    covered = [element for first, length in bounds for element in range(first, first + length)]
    assert covered == list(range(count))
    assert len(bounds) == ranks
    assert all(first * itemsize % 128 == 0 or first == count for first, _ in bounds)
