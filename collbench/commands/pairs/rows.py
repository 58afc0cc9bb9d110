"""Rows of run files: what messages between two ranks took, in one of the patterns, alone or beside other pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, ClassVar, Self

from msgspec import Meta

from collbench.cases import Work
from collbench.results.base import Sampled
from collbench.units import Count, Seconds

LATENCY, ONE_WAY, BOTH_WAYS = "latency", "one way", "both ways"
PATTERNS = LATENCY, ONE_WAY, BOTH_WAYS
"""A small message there and back, halved; large ones from the first to the second; large ones in both directions."""


@dataclass(frozen=True)
class PairMessages(Work):
    """Messages between two ranks; of a run that has not begun, of all pairs."""

    FIELD: ClassVar = "pair"
    MODULE: ClassVar = "collbench.commands.pairs.measured"
    several: ClassVar = True

    sender: Count = 0
    receiver: Count = 0
    pattern: str = ""  # of PATTERNS
    at_once: bool = False  # whether the other ranks exchange messages too, in pairs of their own
    alone: bool = True  # of a run: whether pairs are measured alone too

    @property
    def words(self) -> tuple[str, ...]:
        """Who sends to whom, and how."""
        if not self.pattern:
            return ("pairs",)
        arrow = ">" if self.pattern == ONE_WAY else "-"
        return "pairs", f"rank {self.sender} {arrow} rank {self.receiver}", self.pattern, self.when

    @property
    def when(self) -> str:
        """Whether other pairs were at work."""
        return "at once" if self.at_once else "alone"


class PairTimes(Sampled, frozen=True, tag="pair"):
    """Seconds of a message between two ranks; of a latency, of half the way there and back."""

    seconds: Annotated[tuple[Seconds, ...], Meta(min_length=1)]

    @property
    def pair(self) -> PairMessages:
        """Whose messages they are."""
        assert isinstance(self.case.work, PairMessages)
        return self.case.work

    @property
    def times(self) -> tuple[float, ...]:
        """The samples."""
        return self.seconds

    @property
    def rate(self) -> float:
        """Bytes per second in one direction."""
        return self.case.nbytes / self.typical

    @property
    def busbw(self) -> float:
        """Bytes per second in one direction: each message crosses the link once."""
        return self.rate

    def joined(self, results: Sequence[Self]) -> Self:
        """Return the samples of all rounds as one row."""
        return replace(self, seconds=tuple(chain.from_iterable(result.seconds for result in results)))


ROWS = (PairTimes,)
WORKS = (PairMessages,)
