"""Read results of other tools into run files: nccl-tests, rccl-tests, OSU, NCCL Inspector, nvbandwidth, CSV.

For example:
  collbench import all_reduce.log
  mpirun -n 8 all_reduce_perf -b 8 -e 1G -f 2 | collbench import -
"""  # noqa: N999

from typing import Any

import click

from collbench.cli.options import PATH, made, options_of
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import REPORTED_LEGEND, row, timed_table
from collbench.commands.formats.importing import ImportRequest, first_few, folders, read_foreign, stored
from collbench.results import Reported, by_key
from collbench.runfile.store import Run

_OPTIONS = [
    click.Argument(["files"], metavar="FILE...", nargs=-1, required=True, type=PATH),
    *options_of(ImportRequest),
]


@click.command("import", params=_OPTIONS)
def command(**options: Any) -> int:
    """Read what other tools printed into a run file, which plot, fit, diagnose and compare then take.

    FILE is a log or a folder of logs, `-` standard input; the format is told from the content.  Tests of one machine
    go into one run file, others into one each; `collbench check --fleet DIR` compares those of `--each --out DIR`.
    Nobody here checked these numbers, so each row says what was reported and of what it is a statistic.  Files that
    cannot be imported are named: exit status 1.
    """
    request = made(ImportRequest, options)
    groups, said, refused = read_foreign(request)
    for remark in said:
        click.echo(remark, err=True)
    for imported, folder in zip(groups, folders(request, groups), strict=True):
        _show(stored(imported, folder))
    for reason in refused:
        click.echo(f"not imported: {reason}", err=True)
    return 1 if refused else 0


def _show(run: Run) -> None:
    """Print a table for each collective, type and place, in the order in which they come, and where the run is."""
    click.echo(f"{run.header.topology.name}, from {run.header.imported.file}", err=True)
    table, heading = LiveTable(), timed_table().heading()
    for title, results in by_key(run.results, lambda result: result.case.title).items():
        for result in results:
            table.show(title, heading, [(result, row(result))])
    reported = [result for result in run.results if isinstance(result, Reported)]
    figures = first_few({"median of the samples" if row.samples else row.statistic: None for row in reported})
    click.echo("\n" + REPORTED_LEGEND.format(figures=figures), err=True)
    click.echo(f"run file: {run.path}")
