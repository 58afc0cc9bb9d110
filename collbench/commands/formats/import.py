"""`collbench import`: read results of other tools into run files.

For example:
  collbench import all_reduce.log
  mpirun -n 8 all_reduce_perf -b 8 -e 1G -f 2 | collbench import -
"""  # noqa: N999

from typing import Any

import click

from collbench.cli.options import PATH, made, option, options_of
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import REPORTED_LEGEND, row, timed_table
from collbench.commands.formats.imported import Imported
from collbench.commands.formats.importing import ImportRequest, first_few, folders, read_foreign, stored
from collbench.exits import BAD, GOOD
from collbench.results import Reported, by_key, timed
from collbench.runfile.store import Run
from collbench.units import counted, format_rate, format_size

_OPTIONS = [
    click.Argument(["files"], metavar="FILE...", nargs=-1, required=True, type=PATH),
    *options_of(ImportRequest),
    option("-v --verbose", "Print the rows of every table, also for several files.", is_flag=True),
]


@click.command("import", params=_OPTIONS)
def command(verbose: bool, **options: Any) -> int:
    """Read results of other tools into run files, for plot, check, compare and predict --fit.

    FILE is a log, a folder of logs, or `-` for standard input; its content tells the format (`collbench list formats`).
    Tests of one machine go into one run file.  `collbench check --fleet DIR` compares the runs of `--each --out DIR`.

    collbench did not check these numbers, so each row says what was reported, and which statistic it is.  For several
    files, a line each is printed.  Files that cannot be imported are named, and the exit status is 1.
    """
    request = made(ImportRequest, options)
    groups, messages, refused = read_foreign(request)
    for remark in messages:
        click.echo(remark, err=True)
    single = len({test.path for imported in groups for test in imported.tests}) == 1
    for imported, folder in zip(groups, folders(request, groups), strict=True):
        run = stored(imported, folder)
        if verbose or single:
            _show(run)
        else:
            _summarize(imported)
        click.echo(f"run file: {run.path}")
    for reason in refused:
        click.echo(f"not imported: {reason}", err=True)
    return BAD if refused else GOOD


def _show(run: Run) -> None:
    """Print a table for each collective, type and place, in their order in the file."""
    click.echo(f"{run.header.topology.name}, from {run.header.imported.file}", err=True)
    table, heading = LiveTable(), timed_table().heading()
    for title, results in by_key(run.results, lambda result: result.case.title).items():
        for result in results:
            table.show(title, heading, [(result, row(result))])
    reported = [result for result in run.results if isinstance(result, Reported)]
    figures = first_few({"median of the samples" if row.samples else row.statistic: None for row in reported})
    click.echo("\n" + REPORTED_LEGEND.format(figures=figures), err=True)


def _summarize(imported: Imported) -> None:
    """Print a line for each collective of each file: file, collective, ranks, GPUs and best bus bandwidth."""
    rows = [(test.path, row) for test in imported.tests for row in timed(test.results) if row.typical > 0]
    for (path, name), alike in by_key(rows, lambda pair: (pair[0], pair[1].case.collective.name)).items():
        best = max((row for _, row in alike), key=lambda row: row.busbw)
        where = f"{counted(best.case.ranks, 'rank')}, {imported.tests[0].machine.name}"
        rate = f"best {format_rate(best.busbw)} GB/s at {format_size(best.case.nbytes)}, as reported"
        click.echo(f"{path}: {name}, {where}, {rate}")
