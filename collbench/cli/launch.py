"""Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it.

For example:
  collbench launch
  collbench launch --go -- sweep --op allreduce,broadcast -e 64M
  collbench launch --hosts node1,node2 --ranks-per-node 8 -- check
  collbench launch --all --hosts node1:8,node2:4
"""

import os
import re
import shlex
import sys
from pathlib import Path

import click

from collbench.cli import TOGETHER
from collbench.cli.options import PATH, option
from collbench.errors import UsageError
from collbench.host.sanitize import read_lines

_USUAL = ("sweep", "--op", "allreduce")
_OPTIONS = [
    click.Argument(["words"], nargs=-1, metavar="[-- COMMAND...]"),
    option("--hosts", "Hosts, with their numbers of ranks if these differ.", metavar="HOST[:N],..."),
    option("--hostfile", "A file of hosts, in lines: `node slots=8` or `node:8`.", type=PATH, metavar="FILE"),
    option("--ranks-per-node", "Ranks of every host; default: one a GPU.", type=click.IntRange(min=1), metavar="N"),
    option("--ranks", "Ranks of all hosts; default: on CPUs 2 a host.", type=click.IntRange(min=2), metavar="N"),
    option(
        "--launcher",
        "What starts the ranks; default: the first that can be used.",
        default="auto",
        metavar="auto|srun|mpirun|openmpi|mpich|intel|cray|mvapich|torchrun",
    ),
    option("--all every", "Print a command for each launcher, or why it cannot be used here.", is_flag=True),
    option("--go", "Run the command.", is_flag=True),
]


@click.command("launch", params=_OPTIONS)
def command(
    words: tuple[str, ...],
    hosts: str | None,
    hostfile: Path | None,
    ranks_per_node: int | None,
    ranks: int | None,
    launcher: str,
    every: bool,
    go: bool,
) -> None:
    """Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it.

    The ranks carry out what stands behind `--`, by default `sweep --op allreduce`.  Hosts are those of the batch system
    (Slurm, PBS, LSF), or this machine.
    """
    from collbench.api import launching

    words = words or _USUAL
    if not words[0].endswith("_perf") and not any(" ".join((*words, "")).startswith(f"{name} ") for name in TOGETHER):
        raise UsageError(f"ranks do not carry out {words[0]!r} together; choose from: {', '.join(TOGETHER)}")
    script = Path(sys.executable).with_name("collbench")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "collbench"]
    on = re.search(r"(?<= --on[= ])\S+", shlex.join(words))
    lines = None if hosts is None else hosts.split(",")
    if hostfile:
        lines = [*(lines or ()), *(line.decode(errors="replace") for _, line in read_lines(hostfile, UsageError))]
    job = launching.job_of([*program, *words], on[0] if on else "auto", lines, ranks_per_node, ranks)
    found = launching.commands(job, launching.choices(launcher))
    usable = {name: made for name, made in found.items() if made.words}
    for name, made in found.items() if every else list(usable.items())[:1]:
        click.echo(f"{name}: {made.why}", err=True)
        if made.words:
            click.echo(shlex.join(made.words), err=go)
    if not usable:
        raise UsageError(f"no launcher can be used: {'; '.join(f'{name}: {made.why}' for name, made in found.items())}")
    if go:
        chosen = next(iter(usable.values())).words
        sys.stdout.flush()
        os.execvp(chosen[0], chosen)
