"""Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

For example:
  collbench init
  collbench init --ranks 1,2,4 --starts 6
  collbench init --on cpu --ranks 2 --json -
"""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click

from collbench.cli.options import RENDEZVOUS_FOLDER, json_option, made, options_of, print_answer, try_output
from collbench.cli.progress import LiveTable
from collbench.cli.running import finish, run_session, say_where
from collbench.commands.init.library import InitRequest, init_session
from collbench.commands.init.rows import PHASES, InitTimes, Life
from collbench.measure.session import Session
from collbench.present.columns import Column
from collbench.present.terminal import lines
from collbench.requests.sweeps import new_folder
from collbench.results import Result
from collbench.runfile.schema import to_line
from collbench.stats import Estimate
from collbench.units import format_range, format_seconds

_LEGEND = (
    "\nfirst: the first communicator of a process; again: others in the same processes; medians, of the slowest rank\n"
    "95 %: interval of the sum's median, from six communicators on"
)


@click.command(params=[*options_of(InitRequest), RENDEZVOUS_FOLDER, json_option("the rows of the run file")])
def command(as_json: Path | None, out: Path | None, **options: Any) -> int:
    """Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

    The first communicator of a process has a line of its own, since a library loads and connects with it.  On GPUs it
    is NCCL's, and CUDA has started before.  On a CPU it is a duplicate of MPI's (MPI_Comm_dup), which has no id;
    MPI_Init is over by then, and collbench has made a duplicate of its own.
    """
    try_output(as_json, "--json FILE", out)
    session = init_session(made(InitRequest, options), out or new_folder(["init"], socket.gethostname()))
    interrupted = run_session(session, LiveTable())
    if session.leader and not interrupted:
        print_answer(lambda: _show(session), as_json, [to_line(row) for row in session.results])
    return interrupted or finish([session])


class Line(NamedTuple):
    """A line of the table; without lives where the row has no times."""

    row: Result
    made: str
    lives: Sequence[Life]

    @property
    def sum(self) -> Estimate:
        """Seconds of all phases together."""
        return Estimate.of_median([sum(life.values()) for life in self.lives])


def lines_of(results: Sequence[Result]) -> Iterator[Line]:
    """Yield the lines of each row: the first communicators and those made again, or one line without times."""
    for row in results:
        if isinstance(row, InitTimes) and row.right:
            yield from (Line(row, "first", row.first), Line(row, "again", row.again))
        else:
            yield Line(row, "", ())


def _phase(phase: str) -> Column[Line]:
    def seconds(line: Line) -> float | None:
        return median(life[phase] for life in line.lives) if phase in line.lives[0] else None

    return Column(phase.replace("_", " "), seconds, format_seconds, form=">", importance=20)


COLUMNS = (
    Column[Line]("ranks", lambda line: line.row.case.ranks, form=">"),
    Column[Line]("made", lambda line: line.made),
    *map(_phase, PHASES),
    Column[Line]("sum", lambda line: line.sum.value, format_seconds, form=">"),
    Column[Line]("95 %", lambda line: format_range(*line.sum.interval, format_seconds), importance=5),
    Column[Line]("number", lambda line: len(line.lives), form=">", importance=5),
    Column[Line]("check", lambda line: line.row.check),
)


def _show(session: Session) -> None:
    texts = lines(COLUMNS, lines_of(session.results), lambda line: "" if line.lives else line.row.describe(), names=1)
    notes = dict.fromkeys(str(row.note) for row in session.results)
    texts += [f"note: {note}" for note in filter(None, notes)]
    click.echo("\n".join(texts))
    click.echo(_LEGEND, err=True)
    say_where(session, plot=False)
