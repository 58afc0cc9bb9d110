"""List the runs of a folder, newest first.

For example:
  collbench runs
  collbench runs results --op allreduce
  collbench runs --fleet NIGHT --exclude-file exclude.txt --plot fleet.png
"""

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from collbench.cli._process import coloured
from collbench.cli.options import PATH, SHARE, STANDARD, json_option, option, write_json
from collbench.cli.tables import grid
from collbench.collectives import find_collective
from collbench.errors import UsageError, unknown
from collbench.platforms import platforms
from collbench.runfile import DEFAULT
from collbench.runfile.listing import Entry, first_second, last_second, list_runs, passes, shown

PREDICTED = "model"  # the platform of predicted runs; what says so takes a while to import
_PLACES = "|".join((*platforms(), PREDICTED))
_BROKEN = 5  # broken files whose reasons are printed; --json has all
_NAMES = 3  # names up to which all are printed, and not only their number
_HEADS = ("started", "host", "topology", "collectives", "implementations", "notes", "run")
_FIRST_OUT = (2, 4, 3, 1, 5)  # of these columns, where a terminal has no room


_FLEET = [
    option("--against", "Of a fleet: what changed since this folder was made.", type=PATH, metavar="FOLDER"),
    option("--slower", "Share of time that does not matter.  [default: 5%]", type=SHARE),
    option("--exclude-file", "Write the names of nodes that are slow or FAIL, a line each.", type=PATH, metavar="FILE"),
    option("--plot", "Draw nodes by sizes (.png, .svg, .pdf).", type=PATH, metavar="FILE", multiple=True),
    option("--csv", "Write a row for each node and size.", type=PATH, metavar="FILE"),
    option("--parquet", "Write the same as Parquet (needs pyarrow).", type=PATH, metavar="FILE"),
]
_OPTIONS = [
    click.Argument(["folder"], required=False, type=PATH, metavar="[FOLDER]"),
    option("--host", "Runs of this host, or of all that match, as in 'node*'.", default="", metavar="HOST"),
    option("--op", "Runs with any of these collectives.", default="", metavar="NAME[,NAME]"),
    option("--on", "Runs on this platform; model: predicted.", default="", metavar=_PLACES),
    option("--topology", "Runs whose topology's name has this in it.", default="", metavar="TEXT"),
    option("--since", "Runs from 2026-11-01, 2026-11-01T12:00, or 12h, 7d, 2w ago on.", metavar="DATE"),
    option("--until", "Runs up to then; a day counts to its end.", metavar="DATE"),
    option("-n --limit", "The newest N of them.", type=click.IntRange(min=1), metavar="N"),
    json_option("everything known of them"),
    option("--fleet", "Which nodes stand out, by the check.json or run in FOLDER/NODE.", is_flag=True),
    *_FLEET,
]


@click.command("runs", params=_OPTIONS)
def command(folder: Path | None, limit: int | None, as_json: Path | None, fleet: bool, **options: Any) -> None:
    """List the runs in FOLDER (results/runs), newest first, each with its path.

    With --fleet: nodes that are slower than those alike, by the checks or runs that many nodes left in FOLDER.
    """
    of_fleet = {str(given.name): options.pop(str(given.name)) for given in _FLEET}
    others = options | {"limit": limit} if fleet else of_fleet
    if wrong := [name.replace("_", "-") for name, value in others.items() if value]:
        fix = "a list of runs; leave it out, or --fleet" if fleet else "a folder of nodes; give --fleet too"
        raise UsageError(f"--{wrong[0]} is for {fix}")
    if folder and not folder.exists():
        raise UsageError(f"there is no folder {folder}; runs are in {DEFAULT} unless a sweep had --out")
    if fleet:
        from collbench.cli._fleet import show  # SciPy, which a list of runs does not wait for

        show(folder or DEFAULT, as_json=as_json, **of_fleet)
        return
    chosen = _chosen(**options)
    entries = list_runs(folder or DEFAULT)
    matching = [entry for entry in entries if passes(entry, **chosen)]
    listed = matching[:limit]
    write_json(as_json, [entry.fields() for entry in listed])
    if listed and as_json != STANDARD:
        _print_table(listed)
    if not entries:
        make = "`collbench sweep --op allreduce` makes one, `collbench runs FOLDER` looks elsewhere"
        click.echo(f"no runs in {shown(folder or DEFAULT)} yet: {make}", err=True)
    elif not matching:
        what = f"its {len(entries)} runs match" if len(entries) > 1 else "its one run matches"
        click.echo(f"nothing to list in {shown(folder or DEFAULT)}: none of {what}", err=True)
    elif len(listed) < len(matching):
        left = len(matching) - len(listed)
        click.echo(f"{left} older runs are not listed; -n {len(matching)} lists them", err=True)
    broken = [entry for entry in listed if entry.broken] if as_json != STANDARD else []
    for entry in broken[:_BROKEN]:
        click.echo(f"broken: {shown(entry.path)}: {entry.broken}", err=True)
    if len(broken) > _BROKEN:
        click.echo(f"and {len(broken) - _BROKEN} more broken ones; --json says why", err=True)


def _chosen(op: str, on: str, since: str | None, until: str | None, **others: str) -> dict[str, Any]:
    """Return what runs must have to be listed."""
    if on not in ("", *platforms(), PREDICTED):
        raise unknown("--on", on, (*platforms(), PREDICTED))
    collectives = [find_collective(word.strip()).name for word in op.split(",") if word.strip()]
    first, last = first_second(since) if since else -math.inf, last_second(until) if until else math.inf
    return {"collectives": collectives, "platform": on, "since": first, "until": last, **others}


def _print_table(entries: Sequence[Entry]) -> None:
    """Print a row for each run, in as many columns as the terminal has room for next to the path."""
    lines = grid([_HEADS, *map(_cells, entries)], first_out=_FIRST_OUT)
    for line, entry in zip(lines, (None, *entries), strict=True):
        red = entry and (entry.broken or entry.status) and coloured()
        click.echo(click.style(line, fg="red") if red else line)


def _cells(entry: Entry) -> tuple[str, ...]:
    header = entry.header
    return (
        _moment(entry.age[0]) if header.started or not header.imported.tool else "",  # else of the import
        header.environment.host,
        header.topology.name,
        _names(header.sweep.collectives),
        _names(header.sweep.implementations),
        ", ".join(entry.notes),
        shown(entry.path.parent),
    )


def _moment(seconds: float) -> str:
    """Return local time to the minute."""
    try:
        return datetime.fromtimestamp(seconds).isoformat(sep=" ", timespec="minutes")
    except (ValueError, OverflowError, OSError):
        return "?"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMES else str(len(names))
