"""What a sweep prints, measured or predicted: the table as rows arrive, who is fastest, and where everything is."""

from collections.abc import Iterable
from dataclasses import replace

import click

from collbench.analysis.bound import in_words, measured_bound
from collbench.analysis.crossover import contests, library_of, rivals, winners
from collbench.analysis.crossover import in_words as contest_in_words
from collbench.analysis.wires import tradeoffs
from collbench.cli._carried_out import carried_out, say_where
from collbench.cli._live_table import LiveTable
from collbench.cli._table import ESTIMATE, EXPECTED_LEGEND, LEGEND, NAME, expected_heading, heading, row
from collbench.cli._wires_table import WIRES_LEGEND, lines
from collbench.implementations import implementations, is_library, libraries
from collbench.labels import family
from collbench.measure.session import Session
from collbench.measurement import Measurement, observed
from collbench.units import format_size


def carry_out(session: Session, remarks: Iterable[str], spread: bool, plot: bool) -> int:
    """Run it to its end or until Ctrl-C, and print all of it; the exit status."""

    def end() -> None:
        _fastest(session)
        _bounds(session)
        _wires(session)
        close(session, EXPECTED_LEGEND if session.modelled else LEGEND, plot)

    return carried_out(session, lambda: _show(session, spread), end, remarks)


def _show(session: Session, spread: bool) -> None:
    """The table, row by row as results arrive."""
    wanted = session.sweep.implementations
    compared = [name for name in libraries() if name in map(family, wanted)]
    estimated = {collective for name in wanted for collective in implementations()[family(name)].estimates}
    several = len([name for name in wanted if is_library(name)]) > 1
    library = "best" if several else compared[0] if compared else ""
    width = max(NAME, *map(len, session.labels))
    table = LiveTable(len(list(session.sweep.cases())) * len(wanted))
    for result in session.run():
        if not session.leader:
            continue
        estimates = result.case.collective.name in estimated
        names = expected_heading(library) if session.modelled else heading(library, spread, estimates, width)
        rival = None if is_library(result.implementation) else library_of(session.results, compared, result)
        line = row(result, rival, spread, estimates, width)
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
                click.echo(f"  {contest_in_words(contest)}")


def _bounds(session: Session) -> None:
    """What memory allows, and who comes nearest to it, for each kind of case that is larger than the caches."""
    for kind in dict.fromkeys(case.kind for case in session.sweep.cases()):
        if not (limit := measured_bound(session.results, kind)):
            continue
        size = max(limit.floors)
        rows = [result for result in observed(session.results) if result.case == replace(kind, nbytes=size)]
        best = min(rows, key=lambda result: result.typical)
        click.echo(f"{limit}; {best.implementation} reaches {in_words(best)}")


def _wires(session: Session) -> None:
    """What narrower wires bring and take, if some were measured."""
    if found := tradeoffs(session.results):
        for line in lines(found):
            click.echo(line)
        click.echo(WIRES_LEGEND, err=True)


def _span(first: int, last: int) -> str:
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


def close(session: Session, legend: str, plot: bool) -> None:
    """What the numbers mean, and where everything is."""
    click.echo(f"\n{legend}", err=True)
    if any(isinstance(result, Measurement) and result.estimate is not None for result in session.results):
        click.echo(ESTIMATE, err=True)
    say_where(session, ("png",) if plot else ())
