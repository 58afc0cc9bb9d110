"""Messages between pairs of ranks: who sends to whom, how many are in flight at once, and what answers them.

Patterns and the window of messages are those of the point-to-point tests of the OSU Micro-Benchmarks 7.
"""

from collections.abc import Callable
from dataclasses import dataclass

WINDOW = 64  # messages in flight: OSU's default (-W)

Peer = Callable[[int, int], int | None]
"""(rank, ranks) to the rank that it sends to; None for one that sends nothing."""


@dataclass(frozen=True)
class Flight:
    """Messages that are under way together: a rank that sends any sends all of them to one other."""

    to: Peer
    count: int = 1
    bare: bool = False  # without data: it says that everything before has arrived

    def source(self, rank: int, ranks: int) -> int | None:
        """Whose messages a rank receives."""
        return next((peer for peer in range(ranks) if self.to(peer, ranks) == rank), None)


def _first_to_second(rank: int, ranks: int) -> int | None:
    return 1 if rank == 0 and ranks > 1 else None


def _second_to_first(rank: int, ranks: int) -> int | None:
    return 0 if rank == 1 else None


def _between_both(rank: int, ranks: int) -> int | None:
    return 1 - rank if rank < 2 <= ranks else None


def _lower_to_upper(rank: int, ranks: int) -> int | None:
    """Rank r of the first half has the one behind it by half the ranks; of an odd number the last has nobody."""
    return rank + ranks // 2 if rank < ranks // 2 else None


def _upper_to_lower(rank: int, ranks: int) -> int | None:
    return rank - ranks // 2 if ranks // 2 <= rank < ranks // 2 * 2 else None


PING_PONG = Flight(_first_to_second), Flight(_second_to_first)
ONE_WAY = Flight(_first_to_second, WINDOW), Flight(_second_to_first, bare=True)
BOTH_WAYS = (Flight(_between_both, WINDOW),)
MANY_PAIRS = Flight(_lower_to_upper, WINDOW), Flight(_upper_to_lower, bare=True)


def arrivals(flights: tuple[Flight, ...], rank: int, ranks: int) -> list[tuple[int, int, int]]:
    """What a rank's receive buffer holds afterwards, as the moves of a Collective."""
    sources = (flight.source(rank, ranks) for flight in flights if not flight.bare)
    return [(0, source, 0) for source in sources if source is not None]
