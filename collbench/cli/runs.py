"""List the runs of a folder, tag them, and pick the one to compare another with.

For example:
  collbench runs
  collbench runs results --op allreduce
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.cli.options import PATH, STANDARD, JsonCommand, into, json_option
from collbench.errors import UsageError
from collbench.platforms import platforms

if TYPE_CHECKING:
    from collbench.runfile.listing import Entry, Filter, History

SLOW = 500  # files to be read that are worth a word
PREDICTED = "model"  # the platform of predicted runs; what says so takes a while to import
_PLACES = "|".join((*platforms(), PREDICTED))
NAMED = 5  # broken files whose reasons are told; --json tells all


@click.command("runs", cls=JsonCommand)
@click.argument("folder", required=False, type=PATH, metavar="[FOLDER]")
@click.option("--host", default="", metavar="HOST", help="Runs of this host, or of all that match, as in 'node*'.")
@click.option("--op", default="", metavar="NAME[,NAME]", help="Runs with any of these collectives.")
@click.option("--on", default="", metavar=_PLACES, help="Runs on this platform; model: predicted.")
@click.option("--topology", default="", metavar="TEXT", help="Runs whose topology's name has this in it.")
@click.option("--since", metavar="DATE", help="Runs from 2026-11-01, 2026-11-01T12:00, or 12h, 7d, 2w ago on.")
@click.option("--until", metavar="DATE", help="Runs up to then; a day counts to its end.")
@click.option("--tag-is", default="", metavar="TAG", help="Runs that have this tag.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="So many of them, the newest.")
@json_option("everything known of them")
@click.option("--tag", nargs=2, metavar="TAG RUN", help="Give a run a tag, instead of listing.")
@click.option("--untag", nargs=2, metavar="TAG RUN", help="Take a tag from a run.")
@click.option(
    "--baseline", nargs=2, metavar="last|best|TAG RUN", help="Print the path of the run to compare this one with."
)
def command(folder: Path | None, **options: Any) -> int:
    """List the runs in FOLDER (results/runs), newest first, each with its path; or tag them, or pick a baseline.

    RUN is a run file, the folder that holds it, or its name within FOLDER.  `--baseline last RUN`: the last complete
    run before it on the same topology with a case in common; `best`: the fastest of these.
    """
    from collbench.runfile import DEFAULT

    jobs = [name for name in ("tag", "untag", "baseline") if options[name]]
    if len(jobs) > 1:
        raise UsageError(f"--{jobs[0]} and --{jobs[1]} are two jobs; give one of them at a time")
    if folder and not folder.exists():
        raise UsageError(f"there is no folder {folder}; runs are in {DEFAULT} unless a sweep had --out")
    where = folder or DEFAULT
    if jobs:
        name, run = options[jobs[0]]
        (_baseline if jobs[0] == "baseline" else _tag)(jobs[0], name, _place(run, where), where)
    else:
        _list(where, options)
    return 0


def _place(run: str, folder: Path) -> Path:
    """A run as the user names it: by its path, or by its name in the folder."""
    path = Path(run)
    return path if path.exists() or not (folder / run).exists() else folder / run


def _tag(job: str, name: str, run: Path, folder: Path) -> None:
    from collbench.runfile import tags
    from collbench.runfile.scan_folder import shown

    place = run.parent if run.is_file() else run
    left = (tags.add if job == "tag" else tags.remove)(name, place)
    click.echo(f"{shown(place)}: {', '.join(left) or 'no tags'}")


def _baseline(job: str, word: str, run: Path, folder: Path) -> None:
    from collbench.runfile import file
    from collbench.runfile.baseline import pick

    click.echo(os.fsencode(pick(word, file.read(run), folder, _Reading())))


def _list(folder: Path, options: dict[str, Any]) -> None:
    from collbench.runfile.listing import History

    chosen, reading = _filter(options), _Reading()
    history = History(folder, reading)
    reading.clear()
    matching = [entry for entry in history.entries if chosen(entry)]
    shown = matching[: options["limit"]]
    if options["as_json"]:
        with into(options["as_json"]):
            click.echo(json.dumps([entry.fields() for entry in shown], indent=2))
    if shown and options["as_json"] != STANDARD:
        _print(shown)
    _remark(history, matching, shown, options["as_json"] == STANDARD)


def _filter(options: dict[str, Any]) -> "Filter":
    from collbench.collectives import find_collective
    from collbench.errors import unknown
    from collbench.runfile.listing import Filter, first_second, last_second

    if options["on"] not in ("", *platforms(), PREDICTED):
        raise unknown("--on", options["on"], (*platforms(), PREDICTED))
    return Filter(
        host=options["host"],
        collectives=tuple(find_collective(word.strip()).name for word in options["op"].split(",") if word.strip()),
        platform=options["on"],
        topology=options["topology"],
        since=first_second(options["since"]) if options["since"] else None,
        until=last_second(options["until"]) if options["until"] else None,
        tag=options["tag_is"],
    )


def _print(entries: "list[Entry]") -> None:
    """Cut to the terminal, where it is one; whole for whoever else reads."""
    from collbench.cli._runs_table import lines

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    heading, *rows = lines(entries, width)
    click.secho(heading, dim=True)
    for entry, row in zip(entries, rows, strict=True):
        bad = entry.facts.broken or entry.facts.wrong or entry.facts.failed
        click.secho(row, fg="red" if bad else None)


def _remark(history: "History", matching: "list[Entry]", shown: "list[Entry]", as_json: bool) -> None:
    """On stderr: what the list does not say."""
    from collbench.runfile.scan_folder import shown as text

    folder, count = text(history.folder), len(history.entries)
    if not count:
        click.echo(
            f"no runs in {folder} yet: `collbench sweep --op allreduce` makes one, "
            "`collbench runs FOLDER` looks elsewhere",
            err=True,
        )
    elif not matching:
        what = f"its {count} runs match" if count > 1 else "its one run matches"
        click.echo(f"nothing to list in {folder}: none of {what}", err=True)
    elif len(shown) < len(matching):
        click.echo(f"{len(matching) - len(shown)} older ones are left out; -n {len(matching)} lists them too", err=True)
    broken = [] if as_json else [entry for entry in shown if entry.facts.broken]
    for entry in broken[:NAMED]:
        click.echo(f"broken: {text(entry.path)}: {entry.facts.broken}", err=True)
    if len(broken) > NAMED:
        click.echo(f"and {len(broken) - NAMED} more broken ones; --json says why", err=True)


class _Reading:
    """Progress on a terminal while many files are read for the first time."""

    def __init__(self) -> None:
        self._status: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Every so often, since drawing takes longer than reading."""
        from collbench.cli.progress import Status

        if total > SLOW and done % 100 == 0:
            self._status = self._status or Status(total)
            self._status.show(done, "reading runs that are new or have changed")

    def clear(self) -> None:
        """Take it away."""
        if self._status:
            self._status.clear()
