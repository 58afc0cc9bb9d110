"""`collbench sweep --ab`: two settings of the environment, measured in turn."""

import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from collbench.analysis.compare import compare, ran_otherwise
from collbench.analysis.comparison import Comparison
from collbench.analysis.crossover import handicaps
from collbench.cases import USUAL_STARTS
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import NAME, Compared, legend_lines, row, timed_table
from collbench.cli.running import Outputs, draw_plots, finish, run_session
from collbench.commands.compare.command import legend, rows
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure import protocol
from collbench.measure.session import COPIES, PairedSession, Session
from collbench.platforms import find_platform
from collbench.present.terminal import Table
from collbench.requests.sweeps import SweepRequest, cut_short, default_folder, measured_sweep
from collbench.requests.words import places
from collbench.results import Result, Skipped
from collbench.runfile.schema import Changes, changed

AS_IS = "as-is"  # the folder of the environment as it is
LETTERS = ("A", "B")
LEGEND = "time: median of one operation on the slowest rank, ± half its 95 % interval; BASE is A, NEW is B"
_FORM = "write NAME=VALUE, NAME= (empty) or -NAME (not set), as in --ab 'NCCL_ALGO=Ring NCCL_PROTO=LL'"
_WORD = re.compile(r"(?:-(?P<unset>[A-Za-z_]\w*)|(?P<name>[A-Za-z_]\w*)=(?P<value>.*))", re.ASCII | re.DOTALL)
_RESERVED = (protocol.FOLDER, protocol.SUPERVISOR, protocol.PLATFORM)
_LONGEST_NAME = 100  # characters of a folder's name


def measure_pair(
    request: SweepRequest, words: Sequence[str], outputs: Outputs, out: Path | None, extra: Collection[str]
) -> int:
    """Measure the request under two settings, print the tables, and return the exit status.

    `words` are two settings, or one to compare with the environment as it is.
    """
    _refuse(request, words, outputs)
    texts = [" ".join(text.split()) for text in words]
    if len(texts) < len(LETTERS):
        texts.insert(0, "")  # the environment as it is
    settings = [parse_setting(text) for text in texts]
    platform, sweep = measured_sweep(request, None, COPIES)
    if not sweep.starts:
        sweep = replace(sweep, starts=USUAL_STARTS if find_platform(platform).process_per_rank else 1)
    folder = out or default_folder(sweep)
    run_folders = [folder / name for name in folders(texts)]
    session = PairedSession(platform, sweep, list(zip(settings, texts, run_folders, strict=True)))
    remarks = cut_short(request, sweep, platform)
    # Different settings may have the same effect, for example X= where X is already empty.
    first, second = (changed(os.environ, changes) for changes in settings)
    if first == second:
        remarks.append("A and B are the same, so all differences are noise (an A/A test)")
    if extra:
        remarks.append("-I, -C and -M have no effect with --ab: the run files have their values")
    if interrupted := run_session(session, PairedTable(session, texts), remarks, outputs.quiet):
        return interrupted
    _print_end(session.sessions, outputs.plot)
    return finish(session.sessions)


def _refuse(request: SweepRequest, words: Sequence[str], outputs: Outputs) -> None:
    if outputs.json:
        raise UsageError("--json holds one run, but --ab makes two; leave it out, and read the run files")
    if len(words) > len(LETTERS):
        raise UsageError(f"--ab is given {len(words)} times, but compares two settings; give it at most twice")
    if not request.measured:
        choices = ", ".join(places())
        raise UsageError(f"--ab measures, but --on {request.on} is a model; choose from: {choices}")
    if request.mpi or request.nccl:
        option = "--nccl" if request.nccl else "--mpi"
        raise UsageError(f"{option} and --ab cannot be combined, since both interleave; leave one out")
    if launched():
        raise UsageError(
            "--ab starts its own ranks for each setting, which it cannot do under a launcher (mpirun, srun); "
            "start collbench without one, or run it once for each setting"
        )


def parse_setting(text: str) -> Changes:
    """Return changes of the environment from `NAME=VALUE NAME= -NAME`, with quotes as in a shell."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--ab {text!r}: {error}; close the quotes") from None
    changes: dict[str, str | None] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if not match:
            raise UsageError(f"--ab {word!r} sets no variable; {_FORM}")
        name = match["unset"] or match["name"]
        if name in _RESERVED:
            raise UsageError(f"--ab cannot set {name}: collbench sets it itself")
        if name in changes:
            raise UsageError(f"--ab {text!r} names {name} twice; leave one out")
        changes[name] = match["value"]  # None where it is to be unset
    return changes


def folders(texts: Sequence[str]) -> list[str]:
    """Return a portable name of a folder for each setting; names differ even for equal settings."""
    names: list[str] = []
    for text in texts:
        words = ",".join(re.sub("^-", "without-", word) for word in shlex.split(text))
        name = re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", words)[:_LONGEST_NAME] or AS_IS
        if name in names:
            name += ",again"
        names.append(name)
    return names


class PairedTable(LiveTable):
    """The table of two settings, row by row, below their names."""

    def __init__(self, session: PairedSession, texts: Sequence[str]) -> None:
        super().__init__(len(list(session.sweep.cases())) * len(session.sweep.implementations))
        self._session, self._settings = session, list(zip(LETTERS, texts, strict=True))

    def begin(self) -> None:
        """Print the settings."""
        click.echo()
        for letter, text in self._settings:
            click.echo(f"{letter}: {text or 'the environment as it is'}")

    def add(self, pair: tuple[Result, Result]) -> None:
        """Print the results of both settings."""
        shared = self._session.sessions[0].header.topology.shared
        table = timed_table(bus=not shared, ran=any(result.method for result in pair), width=NAME + len("A "))
        self.show(pair[0].case.title, table.heading(), list(zip(pair, paired_rows(pair, table), strict=False)))


def paired_rows(pair: tuple[Result, Result], table: Table[Compared]) -> list[str]:
    """Return a row for each setting after its letter, or one row if both are skipped for the same reason."""
    if isinstance(pair[0], Skipped) and pair[0] == pair[1]:
        return [row(pair[0], table=table)]
    rows = []
    for letter, result in zip(LETTERS, pair, strict=True):
        rows.append(row(replace(result, implementation=f"{letter} {result.implementation}"), table=table))
    return rows


def _print_end(sessions: Sequence[Session], plot: bool) -> None:
    base, new = (session.as_run() for session in sessions)
    comparison = compare(base, new)
    click.echo("\n".join(verdicts(comparison)))
    both = (*base.results, *new.results)
    legends = (*legend([comparison]), *legend_lines(both), *handicaps(both))
    click.echo("\n".join([f"\n{LEGEND}", *legends]), err=True)
    for run in (base, new):
        click.echo(f"run file: {run.path}")
    if plot:
        for session in sessions:
            draw_plots(session)
    command = shlex.join(["collbench", "compare", str(base.path.parent), str(new.path.parent)])
    click.echo(f"more: {command}")


def verdicts(comparison: Comparison) -> Iterator[str]:
    """Yield the rows as `collbench compare` prints them; their intervals need all rows."""
    if not comparison.rows:
        yield "\nno row has a time under both settings"
        return
    yield "\nB (NEW) against A (BASE)"
    yield from rows(comparison)
    yield from ran_otherwise(comparison.rows)
    yield f"\nrows: {comparison.counts}"
