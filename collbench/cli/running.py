"""How a command that measures runs its session: what it prints around the rows, and what an interruption comes to."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import click

from collbench.cli.progress import awaited, begun
from collbench.errors import RunFileError, StorageError
from collbench.host import signals
from collbench.measure.disturbance import disturbed_in_words
from collbench.measure.session import PairedSession, Session, exit_status
from collbench.runfile.store import read


class Table(Protocol):
    """Prints results as they arrive."""

    def begin(self) -> None:
        """Print what stands above all rows, once the ranks are there."""

    def add(self, result: Any) -> None:
        """Print a result."""

    def close(self) -> None:
        """Take the line of progress away."""


def run_session(
    session: Session | PairedSession,
    table: Table,
    remarks: Iterable[str] = (),
    quiet: bool = False,
) -> int:
    """Run the session to its end or until Ctrl-C, and add each of its results to the table.

    Args:
        session: The session, which has not been entered yet; of a pair, each result is a pair too.
        table: What prints the results; of a launcher's processes only the first one uses it.
        remarks: Lines for stderr, once the ranks are there.
        quiet: Print nothing of where the session runs, and no progress.

    Returns:
        0, or the exit status of an interruption, after which nothing more is to be printed.

    """
    parts = [session] if isinstance(session, Session) else session.sessions
    first = parts[0]
    ranks = 0 if first.modelled else first.sweep.ranks
    try:
        with closing(table), begun(session, ranks, quiet):
            if first.leader and not quiet:
                for line in (first.topology, *_starts(first), *_unseen(first), *remarks):
                    click.echo(line, err=True)
            if first.leader:
                table.begin()
            for result in awaited(session.run(), quiet or first.modelled):
                if first.leader:
                    table.add(result)
    except KeyboardInterrupt as cause:
        click.echo(f"\ninterrupted: {_where_stored(parts)}", err=True)
        return signals.status(cause)
    return 0


def _where_stored(parts: Sequence[Session]) -> str:
    """Return where what was measured before an interruption is, in words."""
    if not parts[0].results:
        return "nothing was measured"
    paths = [str(part.path) for part in parts if part.path]
    return f"what was measured is in {' and '.join(paths)}" if paths else "nothing was stored"


def _starts(session: Session) -> Iterator[str]:
    """Yield how often the ranks were started, and on which cores they are bound; nothing of ranks without cores."""
    starts = session.header.sweep.starts
    words = [f"started {starts} times"] if starts > 1 else []
    if session.cores:
        words.append(f"bound to cores {', '.join(map(str, session.cores))}")
    if words:
        yield f"ranks: {', '.join(words)}"


def _unseen(session: Session) -> Iterator[str]:
    """Yield what the header cannot say of the machine, and why."""
    if unseen := session.header.topology.unseen:
        yield f"note: {unseen}"


def finish(sessions: Sequence[Session]) -> int:
    """Print what to do about disturbed rows; the exit status of all results."""
    results = [result for session in sessions for result in session.results]
    if sessions[0].leader and (advice := disturbed_in_words(results)):
        click.echo(advice, err=True)
    return exit_status(results)


def say_where(session: Session, formats: Sequence[str]) -> Path:
    """Print the paths of the run file and of its pictures, which are drawn here; the folder of both."""
    assert session.path
    click.echo(f"run file: {session.path}")
    if formats:
        draw_plots(session.path, tuple(dict.fromkeys(formats)))
    return session.path.parent


def draw_plots(path: Path, formats: Sequence[str] = ("png",)) -> None:
    """Draw the pictures of a run file next to it, as `collbench plot` does, and print their paths.

    Raises:
        StorageError: They cannot be written, or the run file is not there any more.

    """
    from collbench.plots.kinds import draw  # a run without pictures needs none of it

    try:
        pictures = draw([read(path)], path.parent, formats)
    except (OSError, RunFileError) as error:
        reason = getattr(error, "strerror", None) or error
        remedy = f"all that was measured is in {path}" if path.exists() else "the run file was taken away after its end"
        raise StorageError(f"cannot draw into {path.parent}: {reason}; {remedy}") from None
    for picture in pictures:
        click.echo(f"plot: {picture}")
