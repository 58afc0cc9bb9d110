"""What a sweep prints, measured or predicted: the table as rows arrive, who is fastest, and where everything is."""

from collections.abc import Iterable
from dataclasses import replace

import click

from collbench.algorithms import implementations, is_library, libraries
from collbench.analysis.crossover import contests, fastest_in_words, library_of, rivals, winners
from collbench.analysis.crossover import in_words as contest_in_words
from collbench.analysis.roofline import measured_roofline, share_in_words
from collbench.analysis.wires import tradeoffs
from collbench.cli._carried_out import carried_out, say_where
from collbench.cli._live_table import LiveTable
from collbench.cli._noise import words as noise
from collbench.cli._outputs import Outputs
from collbench.cli._progress import awaited
from collbench.cli._table import EXPECTED_LEGEND, LEGEND, NAME, expected_heading, explained, heading, left_out, row
from collbench.cli._wires_table import WIRES_LEGEND, lines
from collbench.measure.disturbance import Watch
from collbench.measure.session import Session
from collbench.results import family, observed, timed


def carry_out(session: Session, remarks: Iterable[str], spread: bool, outputs: Outputs) -> int:
    """Run it to its end or until Ctrl-C, and print all of it; the exit status."""
    watch = Watch()
    legend = EXPECTED_LEGEND if session.modelled else LEGEND

    def end() -> None:
        _fastest(session)
        _bounds(session)
        _wires(session)
        for line in () if outputs.quiet else noise(session.results, watch):
            click.echo(line, err=True)
        close(session, legend, outputs)

    status = carried_out(session, lambda: _show(session, spread, outputs.quiet), end, remarks, outputs.quiet)
    outputs.write(session)
    return status


def _show(session: Session, spread: bool, quiet: bool = False) -> None:
    """The table, row by row as results arrive."""
    wanted = session.sweep.implementations
    compared = [name for name in libraries() if name in map(family, wanted)]
    estimated = {collective for name in wanted for collective in implementations()[family(name)].estimates}
    several = len([name for name in wanted if is_library(name)]) > 1
    library = "best" if several else compared[0] if compared else ""
    width = max(NAME, *map(len, session.labels))
    table = LiveTable(0 if quiet else len(list(session.sweep.cases())) * len(wanted))
    for result in awaited(session.run(), quiet):
        if not session.leader:
            continue
        estimates = result.case.collective.name in estimated
        names = expected_heading(library) if session.modelled else heading(library, spread, estimates, width)
        rival = None if is_library(result.implementation) else library_of(session.results, compared, result)
        line = row(result, rival, spread, estimates, width)
        table.show(result.case.title, names, [(result, line)])
    table.close()
    gone = left_out(library, spread, bool(estimated), width, session.modelled)
    if gone and session.leader and not quiet:
        click.echo(f"too narrow for all columns, so without: {', '.join(gone)}", err=True)


def _fastest(session: Session) -> None:
    """Who wins from which size on; one implementation alone has no rivals."""
    own = rivals(session.results)
    names = {result.implementation for result in own}
    alone = len(names) < 2
    left = [name for name in session.sweep.implementations if name not in names and name in _timed(session)]
    aside = f" (not counted: {', '.join(left)})" if left else ""
    for case, ranges in [] if alone else winners(own):
        click.echo(f"\n{fastest_in_words(case, ranges, session.modelled)}{aside}")
        for contest in contests(own, libraries()):
            if contest.case.title == case.title:
                click.echo(f"  {contest_in_words(contest)}")


def _timed(session: Session) -> set[str]:
    """Names of what has a time."""
    return {result.implementation for result in timed(session.results)}


def _bounds(session: Session) -> None:
    """What memory allows, and who comes nearest to it, for each kind of case that is larger than the caches."""
    for kind in dict.fromkeys(case.kind for case in session.sweep.cases()):
        if not (limit := measured_roofline(session.results, kind)):
            continue
        size = max(limit.copy_times)
        rows = [result for result in observed(session.results) if result.case == replace(kind, nbytes=size)]
        best = min(rows, key=lambda result: result.typical)
        click.echo(f"{limit}; {best.implementation} reaches {share_in_words(best)}")


def _wires(session: Session) -> None:
    """What narrower wires bring and take, if some were measured."""
    if found := tradeoffs(session.results):
        for line in lines(found):
            click.echo(line)
        click.echo(WIRES_LEGEND, err=True)


def close(session: Session, legend: str, outputs: Outputs) -> None:
    """What the numbers mean, and where everything is."""
    if not outputs.quiet:
        click.echo(f"\n{legend}", err=True)
    for line in () if outputs.quiet else explained(session.results):
        click.echo(line, err=True)
    say_where(session, ("png",) if outputs.plot else ())
