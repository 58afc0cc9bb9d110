"""Rows of run files: what communicators took from their id to their end, the first of a process and those after it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

from collbench.commands.init.work import Init
from collbench.results.base import Sampled
from collbench.units import FASTEST, SLOWEST, Duration

IDENTITY, COMMUNICATOR, COLLECTIVE, DESTROY = "identity", "communicator", "collective", "destroy"
PHASES = {IDENTITY: "id", COMMUNICATOR: "communicator", COLLECTIVE: "first collective", DESTROY: "destroy"}
"""The phases of a communicator's life in their order, and how people read them."""


@dataclass(frozen=True)
class Life:
    """Seconds that the slowest rank took for each phase of a communicator's life."""

    identity: Duration | None  # to make the id and to hand it to all; None where the library has none
    communicator: Duration
    collective: Duration  # the first one, to its end
    destroy: Duration

    @property
    def seconds(self) -> float:
        """All phases together."""
        return (self.identity or 0.0) + self.communicator + self.collective + self.destroy


class InitTimes(Sampled, frozen=True, tag="init"):
    """Communicators of so many ranks, each with a checked first collective."""

    first: tuple[Life, ...]  # the first communicator of each start of the ranks
    again: tuple[Life, ...] = ()  # those that the same processes made afterwards, of all starts

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of the first communicators, all phases together."""
        return tuple(life.seconds for life in self.first)

    @property
    def launches(self) -> int:
        """Return 1: each communicator is timed by itself."""
        return 1

    @property
    def contradiction(self) -> str:
        """A communicator that took no time, or longer than any run."""
        if all(FASTEST < life.seconds < SLOWEST for life in (*self.first, *self.again)):
            return ""
        return "a time that is none: less than 1e-15 s, or more than 1e9 s"

    def joined(self, results: Sequence[Self]) -> Self:
        """Return the rows of all starts as one row."""
        return replace(
            self,
            first=tuple(chain.from_iterable(result.first for result in results)),
            again=tuple(chain.from_iterable(result.again for result in results)),
        )


ROWS = (InitTimes,)
WORKS = (Init,)
