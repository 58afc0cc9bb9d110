"""Write a run file as another tool's output: nccl-tests or tidy CSV.

For example:
  collbench export results/runs/... --to nccl-tests
  collbench export run.jsonl --to csv --out run.csv
"""

from pathlib import Path

import click

from collbench.cli.options import RUN, STANDARD, option, out_option, write_text
from collbench.commands.formats.importing import select, writers
from collbench.errors import unknown
from collbench.runfile import store
from collbench.units import counted

_OPTIONS = [
    RUN,
    option("--to name", "nccl-tests, nccl-tests-json or csv.", required=True, metavar="FORMAT"),
    out_option("[default: standard output]"),
]


@click.command("export", params=_OPTIONS)
def command(run: Path, name: str, out: Path | None) -> None:
    """Write a run as another tool would have printed it, for what reads that tool's output.

    RUN is a run file or the folder that holds it.  Of measured rows, nccl-tests gets the mean of the samples, with a
    table for each implementation; its JSON holds the first table alone.  What a format cannot hold is said on stderr.
    """
    if name not in writers():
        raise unknown("format", name, writers())
    stored = store.read(run)
    selection = select(stored.header, stored.results, stored.path)
    text = writers()[name](selection)
    for reason, count in selection.left_out.items():
        click.echo(f"left out: {counted(count, 'row')}: {reason}", err=True)
    write_text(out or STANDARD, "-o FILE", text)
    if out:
        click.echo(f"file: {out}", err=out == STANDARD)
