"""Write a lesson with this machine's numbers: an offline page.

For example:
  collbench lesson
  collbench lesson results/cpu-2-ranks results/cpu-2-ranks-explained
"""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from collbench.cli.options import HERE, PATH, made, option, out_option
from collbench.cli.progress import LiveTable, waiting
from collbench.cli.running import refuse_launcher, run_session
from collbench.commands.explain import command as explain
from collbench.commands.lesson.content import Part
from collbench.commands.lesson.numbers import judged
from collbench.commands.sweep import command as sweep
from collbench.errors import RunFileError, UsageError, write_file, writing
from collbench.measure.resumed import ResumedRun
from collbench.measure.session import Session
from collbench.platforms import on_auto
from collbench.records import encoded
from collbench.requests.sessions import measuring_session, resuming_session
from collbench.requests.sweeps import SweepRequest
from collbench.runfile.schema import to_line
from collbench.runfile.store import NAME, Run, read

FOLDER = Path("results", "runs", "lesson")
BREAKS = "breaks.json"  # in the folder: outcomes of the broken kernels
MOST_RANKS = 4  # on a CPU; a drawing of more is crowded
PARTS = {
    "sweep": "sweep --impl library,ladder -b 8 -e 8M -f 4",
    "explain": "explain --impl ladder -b 2K -e 512K -f 256",
}
"""The runs of a lesson: arguments of `collbench` by the name of the folder."""
REPEATING = 8.0
"""Seconds during which disturbed rows of a part are measured again; a disturbance may last."""

_OPTIONS = [
    click.Argument(["runs"], nargs=-1, type=PATH, metavar="[RUN]..."),
    HERE,
    option("-g --ranks", "Ranks; default: every GPU, or 2 to 4 cores of a CPU.", type=click.IntRange(2, 8)),
    option("--fresh", "Measure everything again, even if the folder has it.", is_flag=True),
    out_option(f"Folder of page and runs, which are measured once; or a page.html.  [default: {FOLDER}]", "FOLDER"),
]


@click.command("lesson", params=_OPTIONS)
def command(runs: tuple[Path, ...], on: str, ranks: int | None, fresh: bool, out: Path | None) -> int:
    """Write a page that teaches when hand-written synchronisation wins, with numbers of this machine.

    Measures and traces the ladder of hand-written all-reduces, and breaks kernels on purpose to see which tool
    notices; that takes a minute on a quiet machine.  Disturbed rows are measured again, and left out if they stay
    disturbed.  RUNs of sweep and explain replace the measurements.
    """
    refuse_launcher("lesson")
    out = out or FOLDER
    folder, page = (FOLDER, out) if out.suffix in (".html", ".htm") else (out, out / "lesson.html")
    for place in (folder, page.parent):
        with writing(place, "--out FOLDER"):
            place.mkdir(parents=True, exist_ok=True)
    if fresh:
        for part in () if runs else PARTS:
            (folder / part / NAME).unlink(missing_ok=True)
        (folder / BREAKS).unlink(missing_ok=True)
    if runs:
        gathered = [read(run) for run in runs]
    else:
        gathered = []
        for number, (part, words) in enumerate(PARTS.items(), 1):
            session = _opened(part, folder / part, on, ranks)
            there = "" if session else "  (measured already)"
            click.echo(f"{number}/{len(PARTS)}  collbench {words}{there}", err=True)
            until = 0.0
            while session:
                if status := _measure(session, quiet=until > 0):
                    click.echo("run the same command again to continue", err=True)
                    return status
                until = until or time.monotonic() + REPEATING
                session = _again(folder / part) if time.monotonic() < until else None
            gathered.append(read(folder / part))
    click.echo(_write(gathered, _breaks(folder), page))
    click.echo("open the page in a browser; then solve the first puzzle: collbench exercise start 1", err=True)
    return 0


def _measure(session: Session, quiet: bool) -> int:
    """Measure the missing rows of a part, showing only progress; return 0 or the exit status of an interruption."""
    planned = len(list(session.sweep.cases())) * len(session.sweep.implementations)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
        return run_session(session, LiveTable(planned), quiet=quiet)


def _again(place: Path) -> Session | None:
    """Return a session that replaces the disturbed rows of a part; None if there are none."""
    run = read(place)
    rows = judged(run.results)
    calm = [(encoded(to_line(row)), seen) for row, seen in zip(run.results, rows, strict=True) if not seen.disturbed]
    if len(calm) == len(rows):
        return None
    click.echo(
        f"     {len(rows) - len(calm)} of {sum(not row.problem for row in rows)} rows were disturbed: measured again",
        err=True,
    )
    sweep = run.header.sweep
    existing = ResumedRun(
        run.path, run.header, sweep, tuple(line for line, _ in calm), tuple(row for _, row in calm), ended=True
    )
    return Session(run.header.topology.platform, sweep, None, None, existing=existing)


def _opened(part: str, place: Path, on: str, ranks: int | None) -> Session | None:
    """Return a session for the missing rows of a part; None if the part is whole."""
    found = _existing(place)
    if found and ranks not in (None, found.header.topology.ranks):
        raise UsageError(f"{found.path} has {found.header.topology.ranks} ranks; give another folder with --out")
    if found and found.whole:
        return None
    if found and part == "sweep":
        return resuming_session(found.path)
    (place / NAME).unlink(missing_ok=True)
    platform = on_auto() if on == "auto" else on

    # On a CPU one rank per core, limited by the room in a drawing.
    cores = max(2, min(MOST_RANKS, len(os.sched_getaffinity(0))))
    count = ranks or (cores if platform == "cpu" else None)
    words = [*PARTS[part].split()[1:], "--out", str(place), "--on", platform]
    if count:
        words += ["--ranks", str(count)]
    if part == "explain":
        request = made(explain.ExplainRequest, explain.command.make_context(part, words).params)
        return explain.explain_session(request)
    options = sweep.command.make_context(part, words).params
    return measuring_session(made(SweepRequest, options)).session


def _existing(place: Path) -> Run | None:
    """Return the run in a part's folder, perhaps cut off; None if there is none, UsageError if it is unreadable."""
    try:
        return read(place) if (place / NAME).exists() else None
    except RunFileError as error:
        raise UsageError(f"{error}; --fresh measures it again") from None


def _breaks(folder: Path) -> tuple[Part, ...]:
    from collbench.commands.lesson.breaks import KEYS, tried

    place = folder / BREAKS
    if place.exists():
        # The file may be another release's.
        with contextlib.suppress(msgspec.MsgspecError):
            known = msgspec.json.decode(place.read_bytes(), type=tuple[dict[str, Any], ...])
            if all(set(each) >= KEYS for each in known):
                return known
    click.echo("breaking kernels on purpose, to see which tool notices", err=True)
    with waiting("compiling and running them"):
        breaks = tried()
    write_file(place, msgspec.json.encode(breaks), "--out")
    return breaks


def _write(runs: Sequence[Run], breaks: tuple[Part, ...], page: Path) -> Path:
    from collbench.commands.lesson import screens
    from collbench.commands.report.analysed import safe_runs

    content = screens.content([safe.run for safe in safe_runs(runs)], breaks)
    if content.caution:
        click.echo(f"note: {content.caution}", err=True)
    write_file(page, screens.build(content), "--out")
    return page
