"""The table of `collbench init`: two lines for a row, the first communicators and those made again; and its answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from collbench.commands.init.rows import COLLECTIVE, COMMUNICATOR, DESTROY, IDENTITY, PHASES, InitTimes, Life
from collbench.present.columns import Column
from collbench.results import Result
from collbench.stats import Estimate
from collbench.units import counted, format_range, format_seconds

FIRST, AGAIN = "first", "again"
LEGEND = (
    "first: the first communicator of a process; again: others in the same processes; medians, of the slowest rank\n"
    "95 %: interval of the sum's median, from six communicators on"
)


@dataclass(frozen=True)
class InitLine:
    """A line of the table; without lives where the row has no times."""

    row: Result
    made: str = ""
    lives: Sequence[Life] = ()

    @property
    def problem(self) -> str:
        """Why there are no numbers."""
        return "" if self.lives else self.row.describe()

    @property
    def seconds(self) -> Estimate:
        """All phases together, with the interval of the median."""
        return Estimate.of_median([life.seconds for life in self.lives])

    def of(self, phase: str) -> float | None:
        """Return the median seconds of a phase; None where the library has no such phase."""
        seconds = [getattr(life, phase) for life in self.lives]
        return None if None in seconds else median(seconds)

    @property
    def check(self) -> str:
        """The verdict of the check, how many communicators there were, and once what makes their times special."""
        note = str(self.row.note.brief) if self.made == FIRST else ""
        return ", ".join(filter(None, (self.row.check, counted(len(self.lives), "communicator"), note)))


def lines_of(row: Result) -> Iterator[InitLine]:
    """Yield the lines of a row; one line where there are no times."""
    if not isinstance(row, InitTimes) or not row.right:
        yield InitLine(row)
        return
    yield InitLine(row, FIRST, row.first)
    if row.again:
        yield InitLine(row, AGAIN, row.again)


def _phase(name: str, importance: int) -> Column[InitLine]:
    def cell(line: InitLine) -> str:
        seconds = line.of(name)
        return "-" if seconds is None else format_seconds(seconds)

    return Column(PHASES[name], cell, importance=importance, form=f">{max(8, len(PHASES[name]))}")


def _interval(line: InitLine) -> str:
    return format_range(*line.seconds.interval, format_seconds)


COLUMNS = (
    Column[InitLine]("ranks", lambda line: line.row.case.ranks, form=">5"),
    Column[InitLine]("made", lambda line: line.made, form="<5"),
    _phase(IDENTITY, 20),
    _phase(COMMUNICATOR, 50),
    _phase(COLLECTIVE, 40),
    _phase(DESTROY, 30),
    Column[InitLine]("sum", lambda line: line.seconds.value, format_seconds, form=">8"),
    Column("95 %", _interval, form="<20", importance=5),
    Column[InitLine]("check", lambda line: line.check, importance=10),
)


def record(line: InitLine) -> dict[str, Any]:
    """Return a line for JSON: medians in seconds by phase and of all together, with the interval of these."""
    fields: dict[str, Any] = {
        "ranks": line.row.case.ranks,
        "implementation": line.row.implementation,
        "library": line.row.library,
        "made": line.made,
        "outcome": line.row.outcome.value,
        "reason": line.problem,
        "communicators": len(line.lives),
    }
    if not line.lives:
        return fields
    return fields | {phase: line.of(phase) for phase in PHASES} | line.seconds.fields("seconds")


def answer(results: Sequence[Result]) -> list[str]:
    """Return a sentence about the most ranks: what their first communicator takes, mostly for what, and the next."""
    right = [row for row in results if isinstance(row, InitTimes) and row.right]
    if not right:
        return []
    first, *again = lines_of(max(right, key=lambda row: row.case.ranks))
    seconds, longest = first.seconds.value, max(PHASES, key=lambda phase: first.of(phase) or 0.0)
    words = (
        f"the first communicator of {counted(first.row.case.ranks, 'rank')} takes {format_seconds(seconds)}, "
        f"{(first.of(longest) or 0.0) / seconds:.0%} of it for the phase `{PHASES[longest]}`"
    )
    return ["; ".join((words, *(f"made again, {format_seconds(line.seconds.value)}" for line in again)))]
