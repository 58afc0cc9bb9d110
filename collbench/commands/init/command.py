"""Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

For example:
  collbench init
  collbench init --ranks 1,2,4 --starts 6
  collbench init --on cpu --ranks 2 --json -
"""

from pathlib import Path
from typing import Any

import click

from collbench.cli.options import RENDEZVOUS_FOLDER, json_option, made, options_of, try_output
from collbench.cli.progress import ResultTable
from collbench.cli.running import Outputs, finish, run_session, say_where
from collbench.commands.init.columns import COLUMNS, LEGEND, InitLine, answer, lines_of, record
from collbench.commands.init.library import InitRequest, init_session
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.present.terminal import Table
from collbench.results import Result


class _Lives(ResultTable[InitLine]):
    """A table with two lines for each result."""

    def add(self, result: Result) -> None:
        rows = [(result, self._table.row(line)) for line in lines_of(result)]
        self.show(self._title_of(result), self._table.heading(), rows)


@click.command(params=[*options_of(InitRequest), RENDEZVOUS_FOLDER, json_option("medians and results")])
def command(as_json: Path | None, **options: Any) -> int:
    """Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

    The first communicator of a process is told apart from those that it makes again: at first a library loads and
    connects.  On GPUs it is NCCL's, and CUDA has started before.  On a CPU it is a duplicate of MPI's (MPI_Comm_dup),
    which has no id; MPI_Init is over before anything is timed.
    """
    try_output(as_json, "--json FILE", options["out"])
    session = init_session(made(InitRequest, options), launched(), stored=True)
    outputs = Outputs(plot=False, quiet=False, json=as_json)
    with outputs.aside():
        status = _shown(session)
    lines = [line for result in session.results for line in lines_of(result)]
    outputs.write(session, lives=[record(line) for line in lines])
    return status


def _shown(session: Session) -> int:
    """Measure and show everything; the exit status."""
    lives = Table(COLUMNS, lambda line: line.problem, names=1)
    table = _Lives(lambda result: f"life of a communicator of {result.implementation}", lives)
    interrupted = run_session(session, table)
    if interrupted:
        return interrupted
    if session.leader:
        for sentence in answer(session.results):
            click.echo(f"\nanswer: {sentence}")
        click.echo(f"\n{LEGEND}", err=True)
        say_where(session, plot=False)
    return finish([session])
