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
from typing import TYPE_CHECKING

import click

from collbench.cli.options import PATH, Renamed

if TYPE_CHECKING:
    from collbench.formats.imported import Imported, ImportedTest
    from collbench.results import Result


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option(
    "--as",
    "name",
    metavar="FORMAT",
    help="nccl-tests, nccl-tests-json, rccl, osu or csv.  [default: as the content shows]",
)
@click.option("--ranks", type=int, metavar="N", help="Number of ranks, where a file does not tell it.")
@click.option("--op", default="", metavar="NAME", help="Collective, where a file does not tell it.")
@click.option(
    "-o",
    "--out",
    cls=Renamed,
    type=PATH,
    metavar="DIR",
    help="Folder to make for the run file.  [default: results/runs/...]",
)
def command(files: tuple[Path, ...], name: str | None, ranks: int | None, op: str, out: Path | None) -> int:
    """Read what other tools printed into a run file, which plot, fit, diagnose and compare then take.

    FILE is a log, `-` standard input.  Tests of one machine go into one run file, others into one each.  Nobody here
    checked these numbers, so each row says what was reported and of what it is a statistic.
    """
    from collbench.collectives import find_collective
    from collbench.formats import read_tests
    from collbench.formats.imported import Hints, grouped, remarks
    from collbench.formats.source import load

    hints = Hints(ranks, find_collective(op).name if op else "")
    tests = [test for path in files for test in read_tests(load(path), hints, name)]
    for remark in remarks(tests):
        click.echo(remark, err=True)
    groups = grouped(tests)
    _refuse(groups, tests)
    for number, imported in enumerate(groups, 1):
        _store(imported, _folder(imported, out, number if len(groups) > 1 else 0))
    return 0


def _refuse(groups: "Sequence[Imported]", tests: "Sequence[ImportedTest]") -> None:
    """Raise RunFileError, with the reasons, if no row is left."""
    from collbench.errors import RunFileError

    if not groups:
        reasons = [reason for test in tests for reason in test.left_out]
        shown = "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")
        raise RunFileError(f"{tests[0].file}: nothing that a run file can hold: {shown or 'no rows'}")


def _folder(imported: "Imported", out: Path | None, number: int) -> Path:
    """Return the folder of --out, with a folder in it for each run where there are several; else one as of a sweep."""
    from collbench.api.requests import new_folder

    names = [collective.name for collective in imported.collectives]
    if out:
        return out / f"{number}-{names[0]}" if number else out
    host = re.sub(r"[^A-Za-z0-9.-]+", "_", imported.tests[0].machine.host).strip("._")[:60]
    return new_folder(names, f"{host or imported.tests[0].tool.split()[0]}-imported")


def _store(imported: "Imported", folder: Path) -> None:
    """Write the run file and print its rows."""
    from collbench.cli.results_table import REPORTED_LEGEND
    from collbench.runfile.store import Writer

    results = imported.results
    with Writer(folder) as writer:
        writer.header(imported.header(["collbench", *sys.argv[1:]]))
        for result in results:
            writer.append(result)
        writer.end(datetime.now(UTC).isoformat(timespec="seconds"), 0)
    click.echo(imported.tests[0].machine.name, err=True)
    _print_rows(results)
    click.echo("\n" + REPORTED_LEGEND.format(figures=_figures(results)), err=True)
    click.echo(f"run file: {writer.path}")


def _figures(results: "Sequence[Result]") -> str:
    """Return what the times are: of a few kinds in words, of more by their kind only."""
    from collbench.results.collectives import Reported

    reported = [result for result in results if isinstance(result, Reported)]
    statistics = dict.fromkeys("median of the samples" if row.samples else row.statistic for row in reported)
    if len(statistics) < 4:
        return "; ".join(statistics)
    return ", ".join(dict.fromkeys(row.figure for row in reported))


def _print_rows(results: "Sequence[Result]") -> None:
    """Print a table for each collective, type and place, in the order in which they come."""
    from collbench.cli.progress import LiveTable
    from collbench.cli.results_table import heading, row

    table = LiveTable()
    titles = list(dict.fromkeys(result.case.title for result in results))
    for result in sorted(results, key=lambda result: titles.index(result.case.title)):
        table.show(result.case.title, heading(""), [(result, row(result, None))])
