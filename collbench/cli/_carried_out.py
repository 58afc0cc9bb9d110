"""How a command that measures goes on from its session to its exit status, and says where everything is."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click

from collbench.cli._progress import begun
from collbench.errors import RunFileError, StorageError
from collbench.host import signals
from collbench.measure.disturbance import disturbed_in_words
from collbench.measure.session import Session, exit_status
from collbench.runfile.store import read


def carried_out(
    session: Session,
    show: Callable[[], None],
    close: Callable[[], None],
    remarks: Iterable[str] = (),
    quiet: bool = False,
) -> int:
    """Run it to its end or until Ctrl-C; the exit status.

    `show` takes every result and prints the rows, `close` says what they come to; every process of a launcher calls
    `show`, and only the one that speaks for all calls `close`.  What is quiet says nothing of where it runs.
    """
    try:
        with begun(session, 0 if session.modelled else session.sweep.ranks, quiet):
            if session.leader and not quiet:
                for line in (session.topology, *_starts(session), *_unseen(session), *remarks):
                    click.echo(line, err=True)
            show()
    except KeyboardInterrupt as cause:
        where = f"what was measured is in {session.path}" if session.path else "nothing was stored"
        where = where if session.results else "nothing was measured"
        click.echo(f"\ninterrupted: {where}", err=True)
        return signals.status(cause)
    if session.leader:
        close()
        if advice := disturbed_in_words(session.results):
            click.echo(advice, err=True)
    return exit_status(session.results)


def _starts(session: Session) -> Iterator[str]:
    """How often the ranks were started, and on which cores they are bound; nothing of ranks that have no cores."""
    cores, starts = session.cores, session.header.sweep.starts
    words = [f"bound to cores {', '.join(map(str, cores))}"] if cores else []
    if starts > 1:
        words = [f"started {starts} times", *words]
    if words:
        yield f"ranks: {', '.join(words)}"


def _unseen(session: Session) -> Iterator[str]:
    """What the header cannot say of the machine, and why."""
    if unseen := session.header.topology.unseen:
        yield f"note: {unseen}"


def say_where(session: Session, formats: Sequence[str]) -> Path:
    """The run file and the pictures of it, which are drawn here, none without a format; the folder of both."""
    assert session.path
    click.echo(f"run file: {session.path}")
    if formats:
        draw_plots(session.path, tuple(dict.fromkeys(formats)))
    return session.path.parent


def draw_plots(path: Path, formats: Sequence[str] = ("png",)) -> None:
    """The pictures of a run file, beside it; StorageError if they, or it, cannot be there any more.

    They are drawn of what is in the file, as `collbench plot` draws them.
    """
    from collbench.plots.kinds import draw  # here: a run without pictures needs none of it

    try:
        pictures = draw([read(path)], path.parent, formats)
    except (OSError, RunFileError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot draw into {path.parent}: {reason}; {_kept(path)}") from None
    for picture in pictures:
        click.echo(f"plot: {picture}")


def _kept(path: Path) -> str:
    return f"all that was measured is in {path}" if path.exists() else "the run file was taken away after its end"
