"""Run a command's session, and write its run file, plots and JSON."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import click

from collbench.cli._process import obeys
from collbench.cli.options import STANDARD, given, print_answer, print_basis, try_output, write_text
from collbench.cli.progress import LiveTable, waiting
from collbench.errors import StorageError, UsageError
from collbench.host import signals
from collbench.host.launcher import launched
from collbench.measure.session import PairedSession, Session, all_skipped, exit_status
from collbench.present.notices import RANKS, announced_if_slow
from collbench.results import Outcome, Result
from collbench.results.disturbed import disturbed_in_words
from collbench.runfile.schema import to_line
from collbench.units import counted, format_size

FIRST = "waiting for the first row: kernels are compiled once, then checked"
_FEWEST, _LATEST = 9, 30  # rows that decide about a warning before the end of a run


def refuse_launcher(command: str) -> None:
    """Raise UsageError under an outside launcher, for a command that starts its own ranks."""
    if launched():
        raise UsageError(f"collbench {command} starts its ranks itself; leave the launcher out")


def run_session(
    session: Session | PairedSession,
    table: LiveTable,
    remarks: Iterable[str] = (),
    quiet: bool = False,
    assumed: Sequence[str] = (),
) -> int:
    """Run a session to its end or until Ctrl-C, and add its results, or pairs of results, to the table.

    Returns 0, or the exit status of an interruption, after which the command prints nothing more.  The caller has not
    entered the session.  Under a launcher only rank 0 uses the table.  `remarks` are printed on stderr after the ranks
    have started.  `quiet` leaves out topology, assumptions and progress.
    """
    parts = [session] if isinstance(session, Session) else session.sessions
    first = parts[0]
    try:
        with closing(table), ExitStack() as stack:
            silent = quiet or first.modelled or not obeys(sys.stderr)
            with announced_if_slow(RANKS) if silent else waiting(f"starting {counted(first.sweep.ranks, 'rank')}"):
                stack.enter_context(session)
            if first.leader:
                print_basis(first.topology if first.modelled else "", [] if quiet else [*assumed, *software(first)])
            if first.leader and not quiet:
                for line in (*_about(first), *remarks):
                    click.echo(line, err=True)
            if first.leader:
                table.begin()
            # The first row has its own wait, since kernels are compiled before it.
            with waiting("" if quiet or first.modelled else FIRST) as tell:
                results = session.run(tell) if isinstance(session, Session) else session.pairs(tell)
                begun = list(islice(results, 1))
            warned = quiet or not first.leader
            for result in chain(begun, results):
                if first.leader:
                    table.add(result)
                if not warned and (warning := _busy(first.results)):
                    warned = True
                    table.close()
                    click.echo(warning, err=True)
        if first.leader and all_skipped(first.results):
            click.echo("no row has a time: all are skipped, for the reasons shown", err=True)
    except KeyboardInterrupt as cause:
        click.echo(f"\ninterrupted: {_what_is_left(parts)}", err=True)
        return signals.status(cause)
    return 0


def _busy(results: Sequence[Result]) -> str:
    """Return a warning if at least a third of the latest rows are unsure, else ""."""
    timed = [row for row in results[-_LATEST:] if row.outcome is not Outcome.SKIPPED]
    unsure = sum(row.unsure for row in timed)
    if len(timed) < _FEWEST or 3 * unsure < len(timed):
        return ""
    count = f"{unsure} of the last {len(timed)} rows are disturbed by other programs or uncertain by more than 100 %"
    return f"{count}: end other programs, or stop with Ctrl-C and run later"


def _what_is_left(sessions: Sequence[Session]) -> str:
    if not sessions[0].results:
        return "nothing was measured"
    paths = " and ".join(str(session.path) for session in sessions if session.path)
    return f"the finished rows are in {paths}" if paths else "nothing was stored"


def _about(session: Session) -> list[str]:
    lines, placed = [] if session.modelled else [session.topology], []
    if session.header.sweep.starts > 1:
        placed.append(f"started {session.header.sweep.starts} times")
    if session.cores:
        placed.append(f"bound to cores {', '.join(map(str, session.cores))}")
    if placed:
        lines.append(f"ranks: {', '.join(placed)}")
    if unseen := session.header.topology.unseen:
        lines.append(f"note: {unseen}")
    requested = session.sweep.requested
    if requested and "maxbytes" in given() and (last := requested.sizes[-1]) < requested.last:
        lines.append(f"sizes: the last is {format_size(last)}; the next step exceeds {format_size(requested.last)}")
    if rounded := session.sweep.rounded():
        lines.append(f"sizes: {rounded}")
    return lines


LAUNCHED = {"graph": "replayed from a CUDA graph", "torch": "launched one by one from PyTorch"}


def software(session: Session) -> list[str]:
    """Return a prediction's assumptions: how operations are launched, NCCL's release, and SHARP."""
    system = session.header.topology.system
    if not session.modelled or not system:
        return []
    assumed = [f"operations {LAUNCHED.get(system.launch, 'launched one by one')}", f"NCCL {system.nccl}"]
    if system.nics and system.nics.sharp and system.nodes > 1:
        assumed.append("switches between the nodes add (SHARP)")
    return assumed


def finish(sessions: Sequence[Session]) -> int:
    """Print advice on disturbed rows, and return the exit status of all results."""
    results = [result for session in sessions for result in session.results]
    if sessions[0].leader and (advice := disturbed_in_words(results)):
        click.echo(advice, err=True)
    return exit_status(results)


def measure_and_answer(
    session: Session,
    show: Callable[[], None],
    as_json: Path | None,
    table: LiveTable | None = None,
    quiet: bool = False,
) -> int:
    """Run a session with an optional `table`, call `show`, write the rows as JSON, and return the exit status."""
    interrupted = run_session(session, table or LiveTable(), quiet=quiet)
    if session.leader and not interrupted:
        print_answer(show, as_json, [to_line(row) for row in session.results])
    return interrupted or finish([session])


def say_where(session: Session, plot: bool = True) -> Path:
    """Print the path of the run file, draw its plots unless `plot` is false, and return their folder."""
    assert session.path
    click.echo(f"run file: {session.path}")
    if plot:
        draw_plots(session)
    return session.path.parent


def draw_plots(session: Session) -> None:
    """Draw the plots of a run next to its file, as `collbench plot` does, and print their paths."""
    from collbench.plots.kinds import draw  # imports Matplotlib

    run = session.as_run()
    path = run.path
    try:
        pictures = draw([run], path.parent, ("png",))
    except OSError as error:
        remedy = f"all rows are in {path}" if path.exists() else "the run file was deleted after the run"
        raise StorageError(f"cannot draw into {path.parent}: {error.strerror or error}; {remedy}") from None
    for picture in pictures:
        click.echo(f"plot: {picture}")


@dataclass(frozen=True)
class Outputs:
    """The outputs of a sweep, other than its run file, that the options ask for."""

    plot: bool
    quiet: bool  # print only rows and the run file's path
    json: Path | None
    standard: TextIO = field(default_factory=lambda: sys.stdout)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Outputs":
        """Return the outputs of a command's options; UsageError if one cannot be written."""
        try_output(options["as_json"], "--json FILE", options["out"])
        return cls(options["plot"], options["quiet"], options["as_json"])

    def aside(self) -> redirect_stdout[TextIO]:
        """Redirect the other output to standard error if JSON goes to standard output."""
        return redirect_stdout(sys.stderr if self.json == STANDARD else sys.stdout)

    def write(self, session: Session, **more: Any) -> None:
        """Write the requested JSON: all results so far, and the fields of `more`."""
        if session.leader and self.json:
            from collbench.runfile.schema import document

            text = document(session.header, session.results, assumed=software(session), **more)
            if self.json == STANDARD:
                click.echo(text, file=self.standard)
            else:
                write_text(self.json, "--json FILE", text)
