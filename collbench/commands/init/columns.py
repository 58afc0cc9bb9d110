"""The table of communicators, two lines for a row, and what is said of it."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from collbench.commands.init.rows import PHASES, InitTimes, Life
from collbench.present.columns import Column
from collbench.results import Result
from collbench.stats import Estimate
from collbench.units import counted, format_range, format_seconds

LEGEND = (
    "first: the first communicator of a process; again: others in the same processes; medians, of the slowest rank\n"
    "95 %: interval of the sum's median, from six communicators on"
)


class Line(NamedTuple):
    """A line of the table; without lives where the row has no times."""

    row: Result
    made: str = ""
    lives: Sequence[Life] = ()

    @property
    def sum(self) -> Estimate:
        """Seconds of all phases together."""
        return Estimate.of_median([sum(life.values()) for life in self.lives])

    def of(self, phase: str) -> float:
        """Return the median seconds of a phase; 0 where the library has no such phase."""
        return median(life.get(phase, 0.0) for life in self.lives)


def lines_of(row: Result) -> Sequence[Line]:
    """Return the lines of a row: the first communicators and those made again, or one line without times."""
    if isinstance(row, InitTimes) and row.right:
        return [Line(row, made, lives) for made, lives in (("first", row.first), ("again", row.again)) if lives]
    return [Line(row)]


def _phase(phase: str) -> Column[Line]:
    def text(line: Line) -> str:
        return format_seconds(line.of(phase)) if phase in line.lives[0] else "-"

    return Column(_name(phase), text, form=">", importance=20)


def _name(phase: str) -> str:
    return phase.replace("_", " ")


COLUMNS = (
    Column[Line]("ranks", lambda line: line.row.case.ranks, form=">"),
    Column[Line]("made", lambda line: line.made),
    *map(_phase, PHASES),
    Column[Line]("sum", lambda line: line.sum.value, format_seconds, form=">"),
    Column[Line]("95 %", lambda line: format_range(*line.sum.interval, format_seconds), importance=5),
    Column[Line]("number", lambda line: len(line.lives), form=">", importance=5),
    Column[Line]("check", lambda line: line.row.check),
)


def answer(results: Sequence[Result]) -> list[str]:
    """Return what the first communicator of the most ranks takes, mostly for what, and others in their processes."""
    right = [row for row in results if isinstance(row, InitTimes) and row.right]
    if not right:
        return []
    row = max(right, key=lambda row: row.case.ranks)
    first, *again = lines_of(row)
    longest, seconds = max(PHASES, key=first.of), first.sum.value
    sentence = (
        f"{row.label}: the first communicator of {counted(row.case.ranks, 'rank')} takes {format_seconds(seconds)}, "
        f"{first.of(longest) / seconds:.0%} of it for `{_name(longest)}`"
    )
    return ["; ".join([sentence, *(f"made again {format_seconds(line.sum.value)}" for line in again)])]
