"""`collbench export`: write a run file in the format of another tool.

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
    """Write a run in the format of another tool, for programs that read it.

    RUN is a run file or its folder.  nccl-tests gets the mean of the samples, with a table for each implementation; its
    JSON has only the first table.  Rows that a format cannot hold are counted on stderr.
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
