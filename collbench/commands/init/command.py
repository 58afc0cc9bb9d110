"""Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

For example:
  collbench init
  collbench init --ranks 1,2,4 --starts 6
  collbench init --on cpu --ranks 2 --json -
"""

import socket
from itertools import chain
from pathlib import Path
from typing import Any

import click

from collbench.cli.options import RENDEZVOUS_FOLDER, json_option, made, options_of, print_answer, try_output
from collbench.cli.progress import LiveTable
from collbench.cli.running import finish, run_session, say_where
from collbench.commands.init.columns import COLUMNS, LEGEND, answer, lines_of
from collbench.commands.init.library import InitRequest, init_session
from collbench.measure.session import Session
from collbench.present.terminal import lines
from collbench.requests.sweeps import new_folder
from collbench.runfile.schema import to_line


@click.command(params=[*options_of(InitRequest), RENDEZVOUS_FOLDER, json_option("the rows of the run file")])
def command(as_json: Path | None, out: Path | None, **options: Any) -> int:
    """Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

    The first communicator of a process is told apart from those that it makes again: at first a library loads and
    connects.  On GPUs it is NCCL's, and CUDA has started before.  On a CPU it is a duplicate of MPI's
    (MPI_Comm_dup), which has no id; MPI_Init is over by then, and collbench has made a duplicate of its own.
    """
    try_output(as_json, "--json FILE", out)
    session = init_session(made(InitRequest, options), out or new_folder(["init"], socket.gethostname()))
    interrupted = run_session(session, LiveTable())
    if session.leader and not interrupted:
        print_answer(lambda: _show(session), as_json, [to_line(row) for row in session.results])
    return interrupted or finish([session])


def _show(session: Session) -> None:
    rows = chain.from_iterable(map(lines_of, session.results))
    texts = lines(COLUMNS, rows, lambda line: "" if line.lives else line.row.describe(), names=1)
    texts += [f"note: {note}" for note in dict.fromkeys(str(row.note) for row in session.results) if note]
    texts += [f"\nanswer: {sentence}" for sentence in answer(session.results)]
    click.echo("\n".join(texts))
    click.echo(f"\n{LEGEND}", err=True)
    say_where(session, plot=False)
