"""Ten exercises: write kernels that synchronise ranks, and have them judged in seconds.

For example:
  collbench exercise list
  collbench exercise start 1
  collbench exercise check 1
"""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli._process import coloured
from collbench.cli.options import PATH
from collbench.commands.exercise import records
from collbench.commands.exercise.records import Exercise
from collbench.errors import UsageError
from collbench.exits import BAD
from collbench.present.columns import Column
from collbench.present.terminal import Table
from collbench.units import format_list, format_seconds, format_size, parse_size

if TYPE_CHECKING:
    from collbench.commands.exercise.judge import Judgement

_NUMBER = click.Argument(["number"], metavar="N", type=str)
_WHICH = click.Argument(["which"], metavar="[N|FOLDER]", required=False, type=str)
_LIST: Table[tuple[Exercise, str, str]] = Table(
    (
        Column("", lambda row: row[0].number, form=">3"),
        Column("exercise", lambda row: row[0].title, form="<18"),
        Column("state", lambda row: row[1], importance=1, form="<10"),
        Column("folder", lambda row: row[2]),
    )
)
_TIMES: Table[tuple[str, str, float, str]] = Table(
    (
        Column("size", lambda row: parse_size(row[0]), format_size, form=">8"),
        Column("", lambda row: row[1], form="<18"),
        Column("time", lambda row: row[2], format_seconds, form=">9"),
        Column("times yours", lambda row: row[3]),
    )
)
_LEVELS = {"builds": "it does not compile", "right": "it is wrong", "races": "it has races", "speed": "it is slow"}


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the exercises: kernels with a hole to fill in, judged on this machine's CPU."""
    if not context.invoked_subcommand:
        context.invoke(list_exercises)


@command.command("list")
def list_exercises() -> None:
    """List the exercises, and in which folder each was started or solved."""
    notes = records.notes()
    click.echo(_LIST.heading())
    following, gone = 1, set()
    for exercise in records.exercises():
        facts = notes.get(exercise.name, {})
        solved = "solved" in facts
        if solved and exercise.number == following:
            following += 1
        state = "solved" if solved else "started" if facts else ""
        folder = facts.get("folder", "")
        if folder and not Path(folder).is_dir():
            folder += " (no longer there)"
            gone.add(exercise.name)
        row = _LIST.row((exercise, state, folder))
        click.echo(_style(row, "green") if solved else row)
    if following <= len(records.exercises()):
        verb = "check" if records.exercises()[following - 1].name in notes.keys() - gone else "start"
        click.echo(f"\nNext: collbench exercise {verb} {following}")


@command.command(params=[_NUMBER, click.Option(["--folder"], type=PATH, metavar="FOLDER", help="Folder to write to.")])
def start(number: str, folder: Path | None) -> None:
    """Write a kernel with a hole, and a page that explains it, to a folder."""
    exercise = records.find(number)
    made = records.start(exercise, folder)
    click.echo(f"Exercise {exercise.number}, {exercise.title}: read {made}/README.md")
    click.echo(f"fill in the hole:  {made}/{exercise.kernel}.cu")
    which = exercise.number if made == Path(records.default(exercise)) else made
    click.echo(f"check the kernel:  collbench exercise check {which}")


@command.command(
    params=[_WHICH, click.Option(["--time/--no-time"], default=True, help="Time a right kernel, too.  [default: time]")]
)
def check(which: str | None, time: bool) -> int:
    """Judge a kernel: mistakes, races, then its time.

    N may be left out in an exercise's folder.
    """
    exercise, folder = _chosen(which)
    from collbench.commands.exercise import judge

    click.echo(f"Exercise {exercise.number}, {exercise.title}: {folder / exercise.kernel}.cu")
    verdict = judge.judge(exercise, folder)
    if verdict.passed:
        notes, remark = verdict.notes, verdict.remark
        no_races = "" if notes else ", and no races"  # notes name missing checks
        click.echo(_style(f"right with {format_list(exercise.ranks)} ranks", "green") + no_races)
        if time or exercise.beats:
            click.echo("timing ...", err=True)
            verdict = replace(judge.timed(exercise, folder), notes=notes, remark=remark)
            if verdict.table:
                _print_times(exercise, verdict)
    for line in filter(None, (*verdict.notes, verdict.remark)):
        click.echo(line)
    if not verdict.passed:
        _print_fault(exercise, verdict)
        return BAD
    records.note(exercise, folder=str(folder.absolute()), solved=date.today().isoformat())
    click.echo(_style("solved", "green"))
    if exercise.number < len(records.exercises()):
        click.echo(f"Next: collbench exercise start {exercise.number + 1}")
    return 0


@command.command(params=[_NUMBER])
def hint(number: str) -> None:
    """Print the hints of an exercise, one for each way to fail."""
    exercise = records.find(number)
    for level, fault in _LEVELS.items():
        click.echo(f"if {fault}: {exercise.hints[level]}")


def _chosen(which: str | None) -> tuple[Exercise, Path]:
    folder = Path(which or ".")
    if folder.is_file():
        folder = folder.parent
    if exercise := records.within(folder):
        return exercise, folder
    if which is None:
        raise UsageError("this folder has no exercise: give a number or a folder, as in `collbench exercise check 1`")
    if folder.is_dir():
        raise UsageError(f"{folder} has no exercise: `collbench exercise start N` makes one")
    exercise = records.find(which)
    noted = records.notes().get(exercise.name, {}).get("folder", ".")
    for folder in (Path(records.default(exercise)), Path(noted)):
        if records.within(folder) is exercise:
            return exercise, folder
    raise UsageError(f"exercise {exercise.number} is not started here: collbench exercise start {exercise.number}")


def _print_times(exercise: Exercise, verdict: "Judgement") -> None:
    from collbench.commands.exercise.judge import unsteady

    click.echo(_TIMES.heading())
    for size, rows in verdict.table.items():
        mine = rows[exercise.kernel]
        for name in (exercise.kernel, exercise.rung, records.LIBRARY):
            if name in rows:
                time = rows[name].typical
                ratio = "" if name == exercise.kernel or unsteady(mine) else f"{time / mine.typical:.2f}x"
                label = {exercise.kernel: "yours", records.LIBRARY: "mpi, the library"}.get(name, name)
                click.echo(_TIMES.row((size, label, time, unsteady(rows[name]) or ratio)))


def _print_fault(exercise: Exercise, verdict: "Judgement") -> None:
    click.echo(_style("not yet: ", "red") + verdict.says)
    for line in verdict.evidence:
        click.echo(f"  {line}")
    for line in verdict.picture:
        click.echo(f"      {line}")
    if verdict.mistake:
        click.echo(_style("mistake: ", "red") + verdict.mistake)
    # The hint of a level may speak of another mistake than the one that was recognised.
    if text := verdict.hint if verdict.mistake else exercise.hints[verdict.level]:
        click.echo(f"hint: {text}")


def _style(text: str, colour: str) -> str:
    return click.style(text, fg=colour) if coloured() else text
