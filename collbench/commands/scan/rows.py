"""Rows of run files of scans and pairs: members, rounds and times."""

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
    slower: float = 0.1  # tolerated slowdown, as a share of the usual time
    sizes: tuple[Count, ...] = ()  # message sizes in bytes, alternating by round; empty: the size of the case
    slow: tuple[tuple[Count, float], ...] = ()  # ranks that are slowed down on purpose, with their factors

    # Earlier rounds of a resumed scan: groups, their seconds, whether one way, seconds of the round, bytes.
    before: tuple[tuple[Groups, tuple[Seconds, ...], bool, Seconds, Count], ...] = field(default=(), compare=False)

    lost: tuple[Count, ...] = field(default=(), compare=False)  # ranks that died and are left out

    def resumed(self, results: Sequence[Any], lost: int | None = None) -> Self:
        """Return the scan that continues after these results, without the lost rank."""
        rows = [row for row in results if isinstance(row, Round)]
        rounds = [(row.groups, row.seconds, row.one_way, row.took, row.case.nbytes) for row in rows]
        without = self.lost if lost is None else (*self.lost, lost)
        return replace(self, before=(*self.before, *rounds), lost=without)

    @property
    def words(self) -> tuple[str, ...]:
        """The work in words."""
        return ("scan",)


class MemberLevel(Record, frozen=True):
    """A level of the topology: the node, leaf switch or rail of each member."""

    kind: str
    units: tuple[str, ...]  # the name of each member's node, leaf, ...


class Members(CaseResult, frozen=True, tag="members"):
    """The members of a scan, and their levels from the innermost to the outermost."""

    platform: str
    names: tuple[str, ...] = ()
    levels: tuple[MemberLevel, ...] = ()

    @property
    def right(self) -> bool:
        """Whether there are members."""
        return bool(self.names)

    @property
    def check(self) -> str:
        """The number of members in words."""
        return counted(len(self.names), "member")


class Round(CaseResult, frozen=True, tag="round"):
    """The times of groups that ran at once."""

    platform: str
    number: Count
    groups: Groups  # groups of members: each member sends to the next, the last to the first
    seconds: tuple[Seconds, ...]  # per message, of each group's slowest member
    took: Seconds  # duration of the round, with its start and end
    one_way: bool = False  # whether only the first member of a pair sends

    @property
    def right(self) -> bool:
        """Whether groups were measured."""
        return bool(self.groups)

    @property
    def contradiction(self) -> str:
        """The error of groups without times, of different lengths, or with a member twice; else empty."""
        members = [member for group in self.groups for member in group]
        sizes = {len(group) for group in self.groups}
        whole = len(self.groups) == len(self.seconds) and len(sizes) <= 1 and sizes != {0}
        return "" if whole and len(set(members)) == len(members) else "invalid groups"

    @property
    def check(self) -> str:
        """The number of groups in words."""
        return counted(len(self.groups), "group")


LATENCY, ONE_WAY, BOTH_WAYS = "latency", "one way", "both ways"
PATTERNS = LATENCY, ONE_WAY, BOTH_WAYS
"""Half the round trip of a small message; large messages from the first to the second rank; large ones both ways."""
LATENCY_BYTES = 8  # size of the small message


@dataclass(frozen=True)
class PairMessages(Work):
    """Messages between two ranks, or of all pairs before a run begins."""

    FIELD: ClassVar = "pair"
    MODULE: ClassVar = "collbench.commands.scan.every_pair"
    several: ClassVar = True

    sender: Count = 0
    receiver: Count = 0
    pattern: str = ""  # one of PATTERNS; before a run, several separated by commas, or "" for all
    at_once: bool = False  # whether other pairs exchange messages at the same time
    alone: bool = field(default=True, compare=False)  # before a run: whether pairs are also measured alone

    @property
    def words(self) -> tuple[str, ...]:
        """The sender, the receiver and the pattern."""
        if self.sender == self.receiver:
            return ("pairs",)
        arrow, when = ">" if self.pattern == ONE_WAY else "-", "at once" if self.at_once else "alone"
        return "pairs", f"rank {self.sender} {arrow} rank {self.receiver}", self.pattern, when


class PairTimes(Observed, frozen=True, tag="pair"):
    """Seconds per message between two ranks; a latency is half a round trip."""

    seconds: Annotated[tuple[Seconds, ...], Meta(min_length=1)]

    @property
    def pair(self) -> PairMessages:
        """The measured messages."""
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
