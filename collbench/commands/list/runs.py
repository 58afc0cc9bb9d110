"""`collbench list runs`: the runs of a folder, newest first."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from collbench.cli._process import coloured
from collbench.cli.options import PATH, STANDARD, json_option, option, write_json
from collbench.errors import UsageError
from collbench.present.columns import Column
from collbench.present.terminal import lines
from collbench.runfile import DEFAULT
from collbench.runfile.listing import Entry, list_runs, shown

_BROKEN = 5  # broken files printed with reasons; --json has all
_NAMES = 2  # names to print; of more, only the number is printed


def _started(entry: Entry) -> str:
    """Return the local start time to the minute; empty for an imported run without one."""
    if not entry.header.started and entry.header.imported.tool:
        return ""
    try:
        return datetime.fromtimestamp(entry.age[0]).isoformat(sep=" ", timespec="minutes")
    except (ValueError, OverflowError, OSError):
        return "?"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMES else str(len(names))


COLUMNS: tuple[Column[Entry], ...] = (
    Column("started", _started, importance=3),
    Column("host", lambda entry: entry.header.environment.host, importance=7),
    Column("topology", lambda entry: entry.header.topology.name, importance=1),
    Column("collectives", lambda entry: _names([each.name for each in entry.header.sweep.collectives]), importance=6),
    Column("ranks", lambda entry: entry.fields()["ranks"] or "", importance=5, form=">"),
    Column("implementations", lambda entry: _names(entry.header.sweep.implementations), importance=2),
    Column("notes", lambda entry: ", ".join(entry.notes), importance=4),
    Column("run", lambda entry: shown(entry.path.absolute().parent).rpartition("/")[2], form="<"),
)
PATHS: Column[Entry] = Column("path", lambda entry: shown(entry.path.parent), form="<")
_OPTIONS = [
    click.Argument(["folder"], required=False, type=PATH, metavar="[FOLDER]"),
    json_option("all fields of the runs"),
    option("-v --verbose", "Show the path of each run, not only its name.", is_flag=True),
]


@click.command("runs", params=_OPTIONS, short_help="The runs of a folder, newest first.")
def command(folder: Path | None, as_json: Path | None, verbose: bool) -> int:
    """List the runs in FOLDER (default: results/runs), newest first."""
    if folder and not folder.exists():
        raise UsageError(f"there is no folder {folder}; runs are in {DEFAULT} unless a sweep had --out")

    listed = list_runs(folder or DEFAULT)
    write_json(as_json, [entry.fields() for entry in listed])
    if listed and as_json != STANDARD:
        table = lines([*COLUMNS[:-1], PATHS] if verbose else COLUMNS, listed)
        for line, run in zip(table, (None, *listed), strict=True):
            red = run and (run.broken or run.status) and coloured()
            click.echo(click.style(line, fg="red") if red else line)
    if not listed:
        make = "`collbench sweep --op allreduce` makes one, `collbench list runs FOLDER` looks elsewhere"
        click.echo(f"no runs in {shown(folder or DEFAULT)} yet: {make}", err=True)
    broken = [entry for entry in listed if entry.broken] if as_json != STANDARD else []
    for entry in broken[:_BROKEN]:
        click.echo(f"broken: {shown(entry.path)}: {entry.broken}", err=True)
    if len(broken) > _BROKEN:
        click.echo(f"and {len(broken) - _BROKEN} more broken ones; --json says why", err=True)
    return 0
