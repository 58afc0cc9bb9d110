"""`collbench sweep --ab`: from its words to two settings, and the table of one beside the other."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from collbench.analysis import gate
from collbench.analysis.compare import compare
from collbench.api.wanted import cut_short, default_folder, make_sweep, of_described
from collbench.cases import USUAL_STARTS
from collbench.cli._carried_out import draw_plots
from collbench.cli._live_table import LiveTable
from collbench.cli._progress import awaited, begun
from collbench.cli._table import PAIRED_LEGEND, explained, label, paired_heading, paired_rows
from collbench.errors import UsageError
from collbench.host import signals
from collbench.host.launcher import launched
from collbench.measure import protocol
from collbench.measure.disturbance import disturbed_in_words
from collbench.measure.interleave import ratios
from collbench.measure.session import COPIES, PairedSession, exit_status
from collbench.platforms import find_platform, platforms
from collbench.results import Measurement, Result
from collbench.runfile import store
from collbench.runfile.environment import Setting
from collbench.runfile.store import Run

AS_IS = "as-is"  # the folder of the environment as it is
LETTERS = ("A", "B")
_FORM = "write NAME=VALUE, NAME= (empty) or -NAME (not set), as in --ab 'NCCL_ALGO=Ring NCCL_PROTO=LL'"
_WORD = re.compile(r"(?:-(?P<unset>[A-Za-z_]\w*)|(?P<name>[A-Za-z_]\w*)=(?P<value>.*))", re.ASCII | re.DOTALL)
_OURS = (protocol.FOLDER, protocol.SUPERVISOR, protocol.PLATFORM)
_LONGEST_NAME = 100  # characters of a folder


def carry_out_pair(options: Mapping[str, Any]) -> int:
    """Measure the sweep of these options under two settings, and print all of it; the exit status."""
    texts = _texts(options)
    settings = [to_setting(text) for text in texts]
    platform, sweep = make_sweep(options, None, COPIES)
    if not sweep.starts:
        usual = USUAL_STARTS if find_platform(platform).process_per_rank else 1
        sweep = replace(sweep, starts=usual)
    folder = options["out"] or default_folder(sweep)
    places = [folder / name for name in folders(texts)]
    session = PairedSession(platform, sweep, list(zip(settings, texts, places, strict=True)))
    remarks = [
        "" if options["maxbytes"] else cut_short(sweep, platform),
        _same(settings),
        "-I is without effect: the run files have all samples" if options["percentiles"] else "",
    ]
    paths = [one.path for one in session.sessions]
    try:
        with begun(session, sweep.ranks, options["quiet"]):
            _begin(session, texts, remarks)
            _show(session, (label(LETTERS[0], texts[0]), label(LETTERS[1], texts[1])), options["quiet"])
    except KeyboardInterrupt as cause:
        where = " and ".join(map(str, paths)) if session.sessions[0].results else ""
        click.echo(
            f"\ninterrupted: {f'what was measured is in {where}' if where else 'nothing was measured'}", err=True
        )
        return signals.status(cause)
    _close([path for path in paths if path], options["plot"])
    if advice := disturbed_in_words([result for one in session.sessions for result in one.results]):
        click.echo(advice, err=True)
    return max(exit_status(one.results) for one in session.sessions)


def _texts(options: Mapping[str, Any]) -> list[str]:
    """The two settings in words, the environment as it is being ""; UsageError where there cannot be two."""
    texts = [" ".join(text.split()) for text in options["ab"]]
    if len(texts) > len(LETTERS):
        raise UsageError(f"--ab is given {len(texts)} times, but compares two settings; leave some out")
    if options["on"] not in (places := ("auto", *platforms())):
        choices = ", ".join(places)
        raise UsageError(f"--ab measures, and on --on {options['on']} nothing runs; choose from: {choices}")
    if of_described(options):
        raise UsageError(
            f"{of_described(options)} goes with a described system, on which --ab has nothing to measure; leave it out"
        )
    if options["mpi"]:
        raise UsageError("--mpi and --ab both measure in turn, but each on its own; leave one out")
    if launched():
        raise UsageError(
            "--ab starts ranks of its own for each setting, which it cannot do under a launcher (mpirun, srun); "
            "start collbench without one, or run it once for each setting"
        )
    return texts if len(texts) == len(LETTERS) else ["", *texts]


def to_setting(text: str) -> Setting:
    """`NAME=VALUE NAME= -NAME` as a setting, quotes as in a shell; nothing is the environment as it is."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--ab {text!r}: {error}; close the quotes") from None
    changes: dict[str, str | None] = {}
    for word in words:
        if not (match := _WORD.fullmatch(word)):
            raise UsageError(f"--ab {word!r} sets no variable; {_FORM}")
        name = match["unset"] or match["name"]
        if name in _OURS:
            raise UsageError(f"--ab cannot set {name}: collbench sets it itself")
        if name in changes:
            raise UsageError(f"--ab {text!r} names {name} twice; leave one out")
        changes[name] = None if match["unset"] else match["value"]
    return Setting(tuple(changes.items()))


def folders(texts: Sequence[str]) -> list[str]:
    """A name for the folder of each setting that every file system takes; two names even for equal settings."""
    names: list[str] = []
    for text in texts:
        words = ["without-" + word[1:] if word.startswith("-") else word for word in shlex.split(text)]
        name = re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", ",".join(words))[:_LONGEST_NAME] or AS_IS
        names.append(f"{name},again" if name in names else name)
    return names


def _same(settings: Sequence[Setting]) -> str:
    """A sentence for the user if nothing differs between the settings."""
    first, second = (setting.applied(os.environ) for setting in settings)
    return "A and B are the same, so what differs is noise (an A/A test)" if first == second else ""


def _begin(session: PairedSession, texts: Sequence[str], remarks: Iterable[str]) -> None:
    for line in (session.sessions[0].topology, *filter(None, remarks)):
        click.echo(line, err=True)
    click.echo()
    for letter, text in zip(LETTERS, texts, strict=True):
        click.echo(f"{letter}: {text or 'the environment as it is'}")


def _show(session: PairedSession, labels: tuple[str, str], quiet: bool) -> None:
    """The table, row by row as results arrive."""
    table = LiveTable(len(list(session.sweep.cases())) * len(session.sweep.implementations))
    for pair in awaited(session.run(), quiet):
        lines = paired_rows(pair, labels, _ratios(*pair))
        table.show(pair[0].case.title, paired_heading(), list(zip(pair, lines, strict=False)))
    table.close()


def _ratios(base: Result, other: Result) -> list[float]:
    """Of the rounds, if both settings have a time."""
    if isinstance(base, Measurement) and isinstance(other, Measurement) and base.right and other.right:
        return ratios(base, other)
    return []


def _close(paths: Sequence[Path], plot: bool) -> None:
    """What came out, what the numbers mean, and where everything is."""
    base, new = (store.read(path) for path in paths)
    click.echo(f"\n{summary(base, new)}")
    for line in (f"\n{PAIRED_LEGEND}", *explained((*base.results, *new.results))):
        click.echo(line, err=True)
    for path in paths:
        click.echo(f"run file: {path}")
    for path in paths if plot else ():
        draw_plots(path)
    command = ["collbench", "compare", *(str(path.parent) for path in paths)]
    click.echo(f"more of it: {shlex.join(command)}")


def summary(base: Run, new: Run) -> str:
    """What `collbench compare` finds: intervals for all rows together, not one doubt a row."""
    comparison = compare(base, new)
    if not comparison.rows:
        return "no row has a time under both settings"
    rows = f"{len(comparison.rows)} row{'s' if len(comparison.rows) > 1 else ''}"
    typical = median(row.ratio for row in comparison.rows)
    return f"B against A, {rows}: {gate.counts_in_words(comparison)}; typical B / A {typical:.3f}x"
