"""Messages between pairs: whatever is sent is received, by whom OSU's tests say."""

import pytest

from collbench.collectives import COLLECTIVES
from collbench.messages import BOTH_WAYS, MANY_PAIRS, ONE_WAY, PING_PONG, WINDOW, Flight, arrivals

PATTERNS = {name: collective.flights for name, collective in COLLECTIVES.items() if collective.flights}


def sent(flight: Flight, ranks: int) -> set[tuple[int, int]]:
    """(sender, receiver) of every message of a flight."""
    targets = {rank: flight.to(rank, ranks) for rank in range(ranks)}
    return {(rank, target) for rank, target in targets.items() if target is not None}


@pytest.mark.parametrize("flights", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_what_is_sent_is_received_and_nobody_sends_to_itself(flights: tuple[Flight, ...], ranks: int) -> None:
    """In every flight a rank that receives has one sender, and that one sends to it."""
    for flight in flights:
        received = {(flight.source(rank, ranks), rank) for rank in range(ranks)}
        assert {(source, rank) for source, rank in received if source is not None} == sent(flight, ranks)
        assert all(source != target and 0 <= target < ranks for source, target in sent(flight, ranks))
        assert len({target for _, target in sent(flight, ranks)}) == len(sent(flight, ranks))


def test_the_patterns_are_those_of_osu() -> None:
    """Two ranks of four, but for the message rate, of which the first half sends to the second."""
    assert [sent(flight, 4) for flight in PING_PONG] == [{(0, 1)}, {(1, 0)}]
    assert [sent(flight, 4) for flight in ONE_WAY] == [{(0, 1)}, {(1, 0)}]
    assert [sent(flight, 4) for flight in BOTH_WAYS] == [{(0, 1), (1, 0)}]
    assert [sent(flight, 5) for flight in MANY_PAIRS] == [{(0, 2), (1, 3)}, {(2, 0), (3, 1)}]
    assert [flight.count for flights in PATTERNS.values() for flight in flights] == [1, 1, 64, 1, 64, 64, 1]
    assert WINDOW == 64


def test_an_answer_leaves_nothing_behind() -> None:
    """The sender of one way holds nothing new, and of a ping-pong both do."""
    assert arrivals(ONE_WAY, 0, 2) == []
    assert arrivals(ONE_WAY, 1, 2) == [(0, 0, 0)]
    assert [arrivals(PING_PONG, rank, 3) for rank in range(3)] == [[(0, 1, 0)], [(0, 0, 0)], []]


@pytest.mark.parametrize("name", PATTERNS)
def test_times_are_of_one_message(name: str) -> None:
    """An operation is as many as are timed: a message there and one back, or a window of them."""
    flights = PATTERNS[name]
    data = [flight.count for flight in flights if not flight.bare]
    assert COLLECTIVES[name].parts == sum(data)
    assert COLLECTIVES[name].least_ranks == 2
