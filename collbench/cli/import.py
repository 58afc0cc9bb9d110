"""Read results of other tools into run files: nccl-tests, rccl-tests, OSU, CSV.

For example:
  collbench import all_reduce.log
  mpirun -n 8 all_reduce_perf -b 8 -e 1G -f 2 | collbench import -
"""  # noqa: N999

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from collbench.api.requests import new_folder
from collbench.cli.options import PATH, option, out_option
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import REPORTED_LEGEND, heading, row
from collbench.collectives import find_collective
from collbench.errors import RunFileError
from collbench.formats import read_tests
from collbench.formats.imported import Hints, Imported, grouped, remarks
from collbench.formats.source import load
from collbench.results import Reported, Result
from collbench.runfile.store import Writer

_OPTIONS = [
    click.Argument(["files"], metavar="FILE...", nargs=-1, required=True, type=PATH),
    option(
        "--as name", "nccl-tests, nccl-tests-json, rccl, osu or csv.  [default: as the content shows]", metavar="FORMAT"
    ),
    option("--ranks", "Number of ranks, where a file does not tell it.", type=int, metavar="N"),
    option("--op", "Collective, where a file does not tell it.", default="", metavar="NAME"),
    out_option("Folder to make for the run file.  [default: results/runs/...]", "DIR"),
]


@click.command("import", params=_OPTIONS)
def command(files: tuple[Path, ...], name: str | None, ranks: int | None, op: str, out: Path | None) -> int:
    """Read what other tools printed into a run file, which plot, fit, diagnose and compare then take.

    FILE is a log, `-` standard input.  Tests of one machine go into one run file, others into one each.  Nobody here
    checked these numbers, so each row says what was reported and of what it is a statistic.
    """
    hints = Hints(ranks, find_collective(op).name if op else "")
    tests = [test for path in files for test in read_tests(load(path), hints, name)]
    for remark in remarks(tests):
        click.echo(remark, err=True)
    groups = grouped(tests)
    if not groups:
        reasons = [reason for test in tests for reason in test.left_out]
        shown = "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")
        raise RunFileError(f"{tests[0].file}: nothing that a run file can hold: {shown or 'no rows'}")
    for number, imported in enumerate(groups, 1):
        _store(imported, _folder(imported, out, number if len(groups) > 1 else 0))
    return 0


def _folder(imported: Imported, out: Path | None, number: int) -> Path:
    """Return the folder of --out, with a folder in it for each run where there are several; else one as of a sweep."""
    names = [collective.name for collective in imported.collectives]
    if out:
        return out / f"{number}-{names[0]}" if number else out
    host = re.sub(r"[^A-Za-z0-9.-]+", "_", imported.tests[0].machine.host).strip("._")[:60]
    return new_folder(names, f"{host or imported.tests[0].tool.split()[0]}-imported")


def _store(imported: Imported, folder: Path) -> None:
    """Write the run file, and print a table for each collective, type and place, in the order in which they come."""
    results = imported.results
    with Writer(folder) as writer:
        writer.header(imported.header(["collbench", *sys.argv[1:]]))
        for result in results:
            writer.append(result)
        writer.end(datetime.now(UTC).isoformat(timespec="seconds"), 0)
    click.echo(imported.tests[0].machine.name, err=True)
    table = LiveTable()
    titles = list(dict.fromkeys(result.case.title for result in results))
    for result in sorted(results, key=lambda result: titles.index(result.case.title)):
        table.show(result.case.title, heading(""), [(result, row(result, None))])
    click.echo("\n" + REPORTED_LEGEND.format(figures=_figures(results)), err=True)
    click.echo(f"run file: {writer.path}")


def _figures(results: Sequence[Result]) -> str:
    """Return what the times are: of a few kinds in words, of more by their kind only."""
    reported = [result for result in results if isinstance(result, Reported)]
    statistics = dict.fromkeys("median of the samples" if row.samples else row.statistic for row in reported)
    if len(statistics) < 4:
        return "; ".join(statistics)
    return ", ".join(dict.fromkeys(row.figure for row in reported))
