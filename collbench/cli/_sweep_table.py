"""What a sweep prints, measured or predicted: the table as rows arrive, who is fastest, and where everything is."""

from collections.abc import Iterable
from pathlib import Path

import click

from collbench import interrupts
from collbench.analysis.crossover import contests, in_words, library_of, rivals, winners
from collbench.cli._live_table import LiveTable
from collbench.cli._patience import started
from collbench.cli._table import ESTIMATE, EXPECTED_LEGEND, LEGEND, expected_heading, heading, row
from collbench.errors import RunFileError, StorageError
from collbench.implementations import implementations, libraries
from collbench.measure.session import Session, exit_status
from collbench.measurement import Measurement
from collbench.runs.file import read
from collbench.units import format_size


def carry_out(session: Session, remarks: Iterable[str], spread: bool, plot: bool) -> int:
    """Run it to its end or until Ctrl-C, and print all of it; the exit status."""
    try:
        with started(session):
            if session.leader:
                for line in (session.topology, *remarks):
                    click.echo(line, err=True)
            _show(session, spread)
    except KeyboardInterrupt as cause:
        where = f"what was measured is in {session.path}" if session.results else "nothing was measured"
        click.echo(f"\ninterrupted: {where}", err=True)
        return interrupts.status(cause)
    if session.leader:
        _fastest(session)
        close(session, EXPECTED_LEGEND if session.modelled else LEGEND, plot)
    return exit_status(session.results)


def _show(session: Session, spread: bool) -> None:
    """The table, row by row as results arrive."""
    wanted = session.sweep.implementations
    compared = [name for name in wanted if name in libraries()]
    estimated = {collective for name in wanted for collective in implementations()[name].estimates}
    library = compared[0] if compared else ""
    table = LiveTable(len(list(session.sweep.cases())) * len(wanted))
    for result in session.run():
        if not session.leader:
            continue
        estimates = result.case.collective.name in estimated
        names = expected_heading(library) if session.modelled else heading(library, spread, estimates)
        line = row(result, library_of(session.results, compared, result), spread, estimates)
        table.show(result.case.title, names, [(result, line)])
    table.close()


def _fastest(session: Session) -> None:
    """Who wins from which size on; one implementation alone has no rivals."""
    own = rivals(session.results)
    alone = len({result.implementation for result in own}) < 2
    for case, ranges in [] if alone else winners(own):
        told = [f"{name} {_span(first, last)}" for first, last, name in ranges]
        click.echo(f"\nfastest, {case.title}: {'; '.join(told)}")
        for contest in contests(own, libraries()):
            if contest.case.title == case.title:
                click.echo(f"  {in_words(contest)}")


def _span(first: int, last: int) -> str:
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


def close(session: Session, legend: str, plot: bool) -> None:
    """What the numbers mean, and where everything is."""
    click.echo(f"\n{legend}", err=True)
    if any(isinstance(result, Measurement) and result.estimate is not None for result in session.results):
        click.echo(ESTIMATE, err=True)
    assert session.path
    click.echo(f"run file: {session.path}")
    if plot:
        draw_plots(session.path)


def draw_plots(path: Path) -> None:
    """The plots of a run file, beside it; StorageError if they, or it, cannot be there any more."""
    from collbench.figures.curves import draw

    try:
        pictures = draw([read(path)], path.parent)
    except (OSError, RunFileError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot draw into {path.parent}: {reason}; {_kept(path)}") from None
    for picture in pictures:
        click.echo(f"plot: {picture}")


def _kept(path: Path) -> str:
    return f"all that was measured is in {path}" if path.exists() else "the run file was taken away after its end"
