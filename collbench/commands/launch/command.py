"""Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it.

For example:
  collbench launch --go -- sweep --op allreduce,broadcast -e 64M
  collbench launch --hosts node1,node2 --ranks-per-node 8 -- check
  collbench launch --all --hosts node1:8,node2:4
"""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from collbench.cli import TOGETHER
from collbench.cli.options import PATH, option
from collbench.errors import UsageError
from collbench.host.sanitize import read_lines
from collbench.platforms import on_auto

_OPTIONS = [
    click.Argument(["words"], nargs=-1, metavar="[-- COMMAND...]"),
    option("--hosts", "Hosts, with their numbers of ranks if these differ.", metavar="HOST[:N],..."),
    option("--hostfile", "A file of hosts, in lines: `node slots=8` or `node:8`.", type=PATH, metavar="FILE"),
    option("--ranks-per-node", "Ranks of every host; default: one a GPU.", type=click.IntRange(1), metavar="N"),
    option("--launcher", "What starts the ranks; --all lists the names.", default="auto", metavar="auto|mpirun|NAME"),
    option("--all every", "Print a command for each launcher, or why it cannot be used here.", is_flag=True),
    option("--go", "Run the command.", is_flag=True),
]


@click.command("launch", params=_OPTIONS)
def command(words: tuple[str, ...], launcher: str, every: bool, go: bool, **where: Any) -> None:
    """Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it.

    The ranks carry out what stands behind `--`, by default `sweep --op allreduce`.  Hosts are those of the batch system
    (Slurm, PBS, LSF), or this machine.
    """
    from collbench.commands.launch import jobs

    if words and Path(words[0]).name == "collbench":
        words = words[1:]
    words = words or ("sweep", "--op", "allreduce")
    if not words[0].endswith("_perf") and not any(" ".join((*words, "")).startswith(f"{name} ") for name in TOGETHER):
        raise UsageError(f"ranks do not carry out {words[0]!r} together; choose from: {', '.join(TOGETHER)}")
    program = [sys.executable, "-P", "-m", "collbench", *words]
    on = re.search(r"(?<= --on[= ])\S+", shlex.join(words))
    ranks_per_node, lines = where["ranks_per_node"], _lines(where["hosts"], where["hostfile"])
    job = jobs.job_of(program, on[0] if on else "auto", lines, ranks_per_node, os.environ)
    if lines and not on and not ranks_per_node and on_auto() == "cpu" and None in jobs.hosts_of(lines).values():
        click.echo("no GPU is seen here, so 2 ranks a host; --ranks-per-node 8 for nodes of 8 GPUs", err=True)
    usable, refused = jobs.commands(job, launcher)
    if not usable:
        raise UsageError(f"no launcher can be used: {'; '.join(f'{name}: {why}' for name, why in refused.items())}")
    first = next(iter(usable))
    if not every:
        usable, refused = {first: usable[first]}, {}
    for name, made in usable.items():
        about = "binds no rank, since collbench does (--bind)" + "; give it on each host" * (name == "torchrun")
        click.echo(f"{name}: {about}", err=True)
        click.echo(shlex.join(made), err=go)
    for name, why in refused.items():
        click.echo(f"{name}: {why}", err=True)
    if go:
        os.execvp(usable[first][0], usable[first])


def _lines(hosts: str | None, hostfile: Path | None) -> list[str] | None:
    """Return a line for each host that the command line names; None where it names none."""
    lines = None if hosts is None else hosts.split(",")
    if hostfile:
        lines = (lines or []) + [line.decode(errors="replace") for _, line in read_lines(hostfile, UsageError)]
    return lines
