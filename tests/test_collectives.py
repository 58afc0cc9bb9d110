"""The meaning of each collective and of messages between pairs, held against nccl-tests and OSU and against itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.collectives import (
    BOTH_WAYS,
    COLLECTIVES,
    MANY_PAIRS,
    ONE_WAY,
    PING_PONG,
    REDUCED,
    WINDOW,
    Flight,
    arrivals,
    chunk_bounds,
    find_collective,
)
from collbench.errors import UsageError

FACTORS = {  # nccl-tests doc/PERFORMANCE.md, and what OSU's tests add up, at 4 ranks
    "allreduce": 1.5,
    **dict.fromkeys(("allgather", "reducescatter", "alltoall", "gather", "scatter"), 0.75),
    **dict.fromkeys(("broadcast", "reduce", "sendrecv", "pingpong", "bandwidth"), 1),
    **dict.fromkeys(("bidirectional", "multipair"), 2),
    "barrier": 0,
}
RANKS = [(rank, ranks) for ranks in (1, 2, 5) for rank in range(ranks)]
PATTERNS = {name: collective.flights for name, collective in COLLECTIVES.items() if collective.flights}


def test_bus_factors_are_the_published_ones() -> None:
    assert {name: collective.bus_factor(4) for name, collective in COLLECTIVES.items()} == FACTORS


def test_what_arrives_was_sent_and_fills_each_block_once() -> None:
    for name, collective in COLLECTIVES.items():
        for rank, ranks in RANKS:
            moves = collective.moves(rank, ranks, ranks - 1)
            filled = sorted(block for block, _, _ in moves)
            assert filled in (list(range(collective.receive_blocks(ranks))), []), (name, rank, ranks)
            assert collective.reduces or REDUCED not in {source for _, source, _ in moves}, name
            for _, source, sent in moves:
                assert source == REDUCED or 0 <= source < ranks, (name, rank, ranks)
                assert 0 <= sent < collective.send_blocks(ranks), (name, rank, ranks)


def test_each_block_comes_from_where_the_collective_says() -> None:
    of_all = {
        "allgather": [(0, 0, 0), (1, 1, 0), (2, 2, 0)],
        "alltoall": [(0, 0, 1), (1, 1, 1), (2, 2, 1)],
        "reducescatter": [(0, REDUCED, 1)],
        "allreduce": [(0, REDUCED, 0)],
        "broadcast": [(0, 2, 0)],
        "scatter": [(0, 2, 1)],
        "sendrecv": [(0, 0, 0)],
        **{name: [] for name in ("reduce", "gather")},
    }
    assert {name: COLLECTIVES[name].moves(1, 3, 2) for name in of_all} == of_all
    assert COLLECTIVES["gather"].moves(2, 3, 2) == of_all["allgather"]


def test_in_place_buffers_fit_into_the_longer_one() -> None:
    for name, collective in COLLECTIVES.items():
        for rank, ranks in RANKS if collective.in_place else ():
            longest = max(collective.send_blocks(ranks), collective.receive_blocks(ranks))
            send, receive = collective.in_place(rank, ranks)
            assert send + collective.send_blocks(ranks) <= longest, (name, rank, ranks)
            assert receive + collective.receive_blocks(ranks) <= longest, (name, rank, ranks)


def test_names_from_nccl_tests_and_osu_are_understood() -> None:
    for collective in COLLECTIVES.values():
        for name in (collective.name, *collective.aliases):
            for word in (name, f"{name}_perf", f"osu_{name}"):
                assert find_collective(word) is collective, word
    with pytest.raises(UsageError, match=r"unknown collective 'alreduce'; .*choose from: allreduce, broadcast"):
        find_collective("alreduce")


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 9), st.sampled_from([1, 2, 4, 8]))
def test_chunks_cover_an_array_once_and_start_at_cache_lines(count: int, ranks: int, itemsize: int) -> None:
    bounds = list(chunk_bounds(count, ranks, itemsize))
    assert [element for first, length in bounds for element in range(first, first + length)] == list(range(count))
    assert len(bounds) == ranks
    assert all(first * itemsize % 128 == 0 or first == count for first, _ in bounds)


def sent(flight: Flight, ranks: int) -> set[tuple[int, int]]:
    targets = {rank: flight.to(rank, ranks) for rank in range(ranks)}
    return {(rank, target) for rank, target in targets.items() if target is not None}


def test_a_message_is_received_by_one_rank_that_expects_it_and_is_not_its_sender() -> None:
    for name, ranks in ((name, ranks) for name in PATTERNS for ranks in (1, 2, 3, 4, 5, 8)):
        for flight in PATTERNS[name]:
            received = {(source, rank) for rank in range(ranks) if (source := flight.source(rank, ranks)) is not None}
            assert received == sent(flight, ranks), (name, ranks)
            assert all(source != target and 0 <= target < ranks for source, target in received), (name, ranks)
            assert len({target for _, target in received}) == len(received), (name, ranks)


def test_messages_between_pairs_are_those_of_osu() -> None:
    assert [sent(flight, 4) for flight in PING_PONG] == [{(0, 1)}, {(1, 0)}]
    assert [sent(flight, 4) for flight in ONE_WAY] == [{(0, 1)}, {(1, 0)}]
    assert [sent(flight, 4) for flight in BOTH_WAYS] == [{(0, 1), (1, 0)}]
    assert [sent(flight, 5) for flight in MANY_PAIRS] == [{(0, 2), (1, 3)}, {(2, 0), (3, 1)}]
    assert [flight.count for flights in PATTERNS.values() for flight in flights] == [1, 1, 64, 1, 64, 64, 1]
    assert WINDOW == 64
    for name, flights in PATTERNS.items():
        assert COLLECTIVES[name].parts == sum(flight.count for flight in flights if not flight.bare), name
        assert COLLECTIVES[name].least_ranks == 2, name
    assert [arrivals(ONE_WAY, rank, 2) for rank in range(2)] == [[], [(0, 0, 0)]], "an answer has no data"
    assert [arrivals(PING_PONG, rank, 3) for rank in range(3)] == [[(0, 1, 0)], [(0, 0, 0)], []]
