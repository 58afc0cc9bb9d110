"""Rows of run files: who takes part in a scan, what the groups of each of its rounds took, and what every pair did."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

from msgspec import Meta

from collbench.cases import Work
from collbench.records import Record
from collbench.results.base import CaseResult, Observed
from collbench.units import Count, Seconds, counted

Groups = tuple[tuple[Count, ...], ...]


@dataclass(frozen=True)
class Scan(Work):
    """Groups of members exchange messages, chosen anew in every round."""

    FIELD: ClassVar = "scan"
    MODULE: ClassVar = "collbench.commands.scan.measured"
    several: ClassVar = True
    resumable: ClassVar = True

    group: Annotated[int, Meta(ge=2, le=1023)] = 2  # members of a group
    slower: float = 0.1  # share of the usual time that is too much
    sizes: tuple[Count, ...] = ()  # bytes of the messages, round by round in turn; none: those of the case
    slow: tuple[tuple[Count, float], ...] = ()  # ranks that are made slower on purpose, and how many times

    # Groups, their seconds, whether one way, seconds of the round, bytes: of a scan that goes on, the rounds so far.
    before: tuple[tuple[Groups, tuple[Seconds, ...], bool, Seconds, Count], ...] = field(default=(), compare=False)

    lost: tuple[Count, ...] = field(default=(), compare=False)  # ranks that died, without which it goes on

    def resumed(self, results: Sequence[Any], lost: int | None = None) -> Self:
        """Return the scan that goes on after these rounds, without a rank that was lost."""
        of = [row for row in results if isinstance(row, Round)]
        rounds = [(row.groups, row.seconds, row.one_way, row.took, row.case.nbytes) for row in of]
        without = self.lost if lost is None else (*self.lost, lost)
        return replace(self, before=(*self.before, *rounds), lost=without)

    @property
    def words(self) -> tuple[str, ...]:
        """What it does."""
        return ("scan",)


class MemberLevel(Record, frozen=True):
    """The nodes, leaf switches or rails that members are parts of."""

    kind: str
    units: tuple[str, ...]  # of each member the name of its node, leaf, ...


class Members(CaseResult, frozen=True, tag="members"):
    """The members of a scan, and their levels from the innermost to the outermost."""

    platform: str
    names: tuple[str, ...] = ()
    levels: tuple[MemberLevel, ...] = ()

    @property
    def right(self) -> bool:
        """Whether there are any."""
        return bool(self.names)

    @property
    def check(self) -> str:
        """How many they are."""
        return counted(len(self.names), "member")


class Round(CaseResult, frozen=True, tag="round"):
    """The times of groups that were measured at once."""

    platform: str
    number: Count
    groups: Groups  # of members, each of which sends to the next and the last to the first
    seconds: tuple[Seconds, ...]  # of each group's slowest member, for a message
    took: Seconds  # of all, with what starts and ends the round
    one_way: bool = False  # only the first of a pair sends

    @property
    def right(self) -> bool:
        """Whether groups were measured."""
        return bool(self.groups)

    @property
    def contradiction(self) -> str:
        """Groups without times, of several sizes, or of members twice."""
        members = [member for group in self.groups for member in group]
        sizes = {len(group) for group in self.groups}
        whole = len(self.groups) == len(self.seconds) and len(sizes) <= 1 and sizes != {0}
        return "" if whole and len(set(members)) == len(members) else "groups that are none"

    @property
    def check(self) -> str:
        """How many groups there were."""
        return counted(len(self.groups), "group")


LATENCY, ONE_WAY, BOTH_WAYS = "latency", "one way", "both ways"
PATTERNS = LATENCY, ONE_WAY, BOTH_WAYS
"""A small message there and back, halved; large ones from the first to the second; large ones in both directions."""
LATENCY_BYTES = 8  # of a small message


@dataclass(frozen=True)
class PairMessages(Work):
    """Messages between two ranks; of a run that has not begun, of all pairs."""

    FIELD: ClassVar = "pair"
    MODULE: ClassVar = "collbench.commands.scan.every_pair"
    several: ClassVar = True

    sender: Count = 0
    receiver: Count = 0
    pattern: str = ""  # of PATTERNS; of a run several, with commas, or "" for all
    at_once: bool = False  # whether the other ranks exchange messages too, in pairs of their own
    alone: bool = field(default=True, compare=False)  # of a run: whether pairs are measured alone too

    @property
    def words(self) -> tuple[str, ...]:
        """The sender and the receiver, and the pattern."""
        if self.sender == self.receiver:
            return ("pairs",)
        arrow, when = ">" if self.pattern == ONE_WAY else "-", "at once" if self.at_once else "alone"
        return "pairs", f"rank {self.sender} {arrow} rank {self.receiver}", self.pattern, when


class PairTimes(Observed, frozen=True, tag="pair"):
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
