"""Measure every pair of ranks: the earlier name of `collbench scan --pairs`, until 0.3.0.

For example:
  collbench pairs --on cpu --ranks 4 --impl mpi
"""

import socket
from pathlib import Path
from typing import Any

import click

from collbench.cli.options import json_option, made, options_of, try_output
from collbench.cli.running import measure_and_answer, say_where
from collbench.commands.scan.matrices import PairsRequest, lines, pairs_session
from collbench.requests.sweeps import new_folder


@click.command("pairs", params=[*options_of(PairsRequest), json_option("the rows of the run file")])
def command(as_json: Path | None, out: Path | None, **options: Any) -> int:
    """Measure every pair of ranks as `collbench scan --pairs` does, which is its name now; the exit status is 0."""
    try_output(as_json, "--json FILE", out)
    session = pairs_session(made(PairsRequest, options), out or new_folder(["pairs"], socket.gethostname()))

    def show() -> None:
        click.echo("\n".join(lines(session.results)))
        say_where(session)

    return measure_and_answer(session, show, as_json)
