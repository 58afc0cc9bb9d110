"""Rows of run files with the times of communicators from start to end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, ClassVar, Self

from msgspec import Meta

from collbench.cases import Work
from collbench.results.base import Sampled
from collbench.units import Seconds

PHASES = ID, COMMUNICATOR, COLLECTIVE, DESTROY = "id", "communicator", "first_collective", "destroy"
"""The phases of a communicator in order.  Not every library has an id, which is made and sent to all ranks."""

Life = Annotated[Mapping[str, Seconds], Meta(min_length=1)]
"""Seconds of the slowest rank in each phase."""


@dataclass(frozen=True)
class Init(Work):
    """The life of a communicator; the case is its first collective."""

    FIELD: ClassVar = "init"
    MODULE: ClassVar = "collbench.commands.startup.measured"
    words: ClassVar = ("life of a communicator",)


class InitTimes(Sampled, frozen=True, tag="init"):
    """Times of communicators on one number of ranks, each with a checked first collective."""

    first: tuple[Life, ...]  # the first communicator of each start of the ranks
    again: tuple[Life, ...] = ()  # later ones of the same processes

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of the first communicators, all phases together."""
        return tuple(sum(life.values()) for life in self.first)

    def joined(self, results: Sequence[Self]) -> Self:
        """Return the rows of all starts as one row."""
        again = tuple(chain.from_iterable(result.again for result in results))
        return replace(self, first=tuple(chain.from_iterable(result.first for result in results)), again=again)
