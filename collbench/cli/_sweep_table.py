"""What a sweep prints, measured or predicted: the table as rows arrive, who is fastest, and where everything is."""

from collections.abc import Iterable
from pathlib import Path

import click

from collbench.analysis.crossover import contests, in_words, library_of, rivals, winners
from collbench.cli._patience import started
from collbench.cli._progress import Status
from collbench.cli._table import ESTIMATE, EXPECTED_LEGEND, LEGEND, expected_heading, heading, row
from collbench.implementations import implementations, libraries
from collbench.measure.session import Session, exit_status
from collbench.measurement import Measurement, Skipped
from collbench.runs.file import INTERRUPTED, read
from collbench.units import format_size


def carry_out(session: Session, remarks: Iterable[str], spread: bool, plot: bool) -> int:
    """Run it to its end or until Ctrl-C, and print all of it; the exit status."""
    try:
        with started(session):
            if session.leader:
                for line in (session.topology, *remarks):
                    click.echo(line, err=True)
            _show(session, spread)
    except KeyboardInterrupt:
        where = f"what was measured is in {session.path}" if session.results else "nothing was measured"
        click.echo(f"\ninterrupted: {where}", err=True)
        return INTERRUPTED
    if session.leader:
        _fastest(session)
        close(session, EXPECTED_LEGEND if session.modelled else LEGEND, plot)
    return exit_status(session.results)


def _show(session: Session, spread: bool) -> None:
    """The table, row by row as results arrive."""
    compared = [name for name in session.sweep.implementations if name in libraries()]
    estimated = {estimate for name in session.sweep.implementations for estimate in implementations()[name].estimates}
    status = Status(len(list(session.sweep.cases())) * len(session.sweep.implementations))
    above, said = "", set()
    for result in session.run():
        if not session.leader:
            continue
        status.clear()
        estimates = result.case.collective.name in estimated
        if result.case.title != above:
            above, library = result.case.title, compared[0] if compared else ""
            names = expected_heading(library) if session.modelled else heading(library, spread, estimates)
            click.echo(f"\n{above}\n{names}")
        if isinstance(result, Skipped) and (above, result.implementation, result.reason) in said:
            continue  # said once for all sizes; the run file has every one
        if isinstance(result, Skipped):
            said.add((above, result.implementation, result.reason))
        line = row(result, library_of(session.results, compared, result), spread, estimates)
        click.secho(line, fg="red" if result.outcome.bad else None)
        status.show(len(session.results), above)
    status.clear()


def _fastest(session: Session) -> None:
    """Who wins from which size on; one implementation alone has no rivals."""
    own = rivals(session.results)
    alone = len({each.implementation for each in own}) < 2
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
    """The plots of a run file, beside it."""
    from collbench.figures.curves import draw

    for picture in draw([read(path)], path.parent):
        click.echo(f"plot: {picture}")
