"""Measure collectives over a sweep of message sizes: table, run file and plots.

For example:
  collbench sweep
  collbench sweep --op allreduce,broadcast -b 1K -e 1G -f 2 -d bfloat16
  collbench sweep --impl mpi,two-shot -m 8:64K --json - | jq .results
  mpirun -n 16 collbench sweep --op allreduce
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from collbench.algorithms import implementations, is_library, libraries
from collbench.analysis.crossover import contests, fastest_in_words, in_words, library_of, rivals, winners
from collbench.analysis.roofline import measured_roofline, share_in_words
from collbench.analysis.wires import tradeoffs
from collbench.api.measuring import measuring_session, predicting_session
from collbench.api.requests import SweepRequest, default_folder, find_system, folder_name
from collbench.cli import results_table
from collbench.cli.options import (
    MEASURING,
    NCCL_NAMES,
    SWEEP_OPTIONS,
    nccl_options,
    nccl_remarks,
    sweep_request,
    without_nccl_options,
)
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import NAME
from collbench.cli.running import Outputs, finish, run_session, say_where
from collbench.host.launcher import launched
from collbench.measure.disturbance import Watch
from collbench.measure.session import Session
from collbench.platforms import platforms
from collbench.results import Measurement, Result, family, observed, timed
from collbench.topology.system import System
from collbench.units import format_size

WIDE = 0.10  # half an interval over the median, from which on a row is called noisy
FEWEST = 6  # samples that have an interval


@click.command(context_settings={"show_default": True}, params=[*SWEEP_OPTIONS.values(), *nccl_options()])
def command(**options: Any) -> int:
    """Measure collectives over a sweep of message sizes: table, run file and plots."""
    outputs = Outputs.of(options)
    with outputs.aside():
        remarks = list(nccl_remarks(options))
        options = without_nccl_options(options, launched())
        request = sweep_request(options)
        if options["ab"]:
            from collbench.cli import ab

            return ab.measure_pair(request, options["ab"], outputs, options["out"], options["percentiles"])
        if not request.measured:
            system = find_system(request.on, ("auto", *platforms()))
            return show_prediction(system, request, options, outputs, _without_effect())
        session, more = measuring_session(request, lambda sweep: options["out"] or default_folder(sweep))
        return show_sweep(session, outputs, [*remarks, *more], options["percentiles"])


def _without_effect() -> list[str]:
    """Return a line for the options of measuring that the command line has, which are of no use to a prediction."""
    context = click.get_current_context()
    spelled = {option.name: max(option.opts, key=len) for option in context.command.params}
    unused = [
        spelled[name]
        for name in (*MEASURING, *NCCL_NAMES)
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    return [f"nothing is measured, so without effect: {', '.join(unused)}"] if unused else []


def show_prediction(
    system: System, request: SweepRequest, options: Mapping[str, Any], outputs: Outputs, remarks: Iterable[str] = ()
) -> int:
    """Predict a sweep on a described system, and print all of it; the exit status."""
    session = predicting_session(
        system, request, lambda part, sweep: options["out"] or default_folder(sweep, folder_name(part))
    )
    return show_sweep(session, outputs, remarks)


def show_sweep(session: Session, outputs: Outputs, remarks: Iterable[str] = (), spread: bool = False) -> int:
    """Run a sweep that is measured or predicted, and print all of it; the exit status.

    `spread` adds percentiles of the samples to the table.
    """
    watch = Watch()
    table = SweepTable(session, spread, outputs.quiet)
    if interrupted := run_session(session, table, remarks, outputs.quiet):
        outputs.write(session)
        return interrupted
    if session.leader:
        if not outputs.quiet and (gone := table.left_out()):
            click.echo(f"too narrow for all columns, so without: {', '.join(gone)}", err=True)
        _print_fastest(session)
        _print_bounds(session)
        if found := tradeoffs(session.results):
            click.echo("\n".join(results_table.wires_table(found)))
            click.echo(results_table.WIRES_LEGEND, err=True)
        if not outputs.quiet:
            for line in noise(session.results, watch):
                click.echo(line, err=True)
        legend = results_table.EXPECTED_LEGEND if session.modelled else results_table.LEGEND
        print_end(session, f"{legend}\n{results_table.spread_legend(session.results)}" if spread else legend, outputs)
    status = finish([session])
    outputs.write(session)
    return status


class SweepTable(LiveTable):
    """The table of a sweep, row by row."""

    def __init__(self, session: Session, spread: bool, quiet: bool) -> None:
        names = session.sweep.implementations
        super().__init__(0 if quiet else len(list(session.sweep.cases())) * len(names))
        self._session, self._spread = session, spread
        self._compared = [name for name in libraries() if name in map(family, names)]
        self._estimated = {name for one in names for name in implementations()[family(one)].estimates}
        self._library = self._compared[0] if self._compared else ""
        if len([name for name in names if is_library(name)]) > 1:
            self._library = "best"

    @property
    def _width(self) -> int:
        """Characters of a name: with the version of its library, which the ranks say, where all columns have room."""
        longest = max([NAME, *map(len, self._session.labels)])
        return NAME if self._left_out(longest) else longest

    def add(self, result: Result) -> None:
        """Print a result."""
        estimates = result.case.collective.name in self._estimated
        if self._session.modelled:
            names = results_table.expected_heading(self._library)
        else:
            names = results_table.heading(self._library, self._spread, estimates, self._width)
        rival = None
        if not is_library(result.implementation):
            rival = library_of(self._session.results, self._compared, result)
        line = results_table.row(result, rival, self._spread, estimates, self._width)
        self.show(result.case.title, names, [(result, line)])

    def left_out(self) -> list[str]:
        """Return the columns that the terminal is too narrow for."""
        return self._left_out(self._width)

    def _left_out(self, width: int) -> list[str]:
        modelled = self._session.modelled
        return results_table.left_out(self._library, self._spread, bool(self._estimated), width, modelled)


def _print_fastest(session: Session) -> None:
    """Print who wins in which range of sizes; an implementation that is alone has no rivals."""
    compared = rivals(session.results)
    names = {result.implementation for result in compared}
    if len(names) < 2:
        return
    with_time = {result.implementation for result in timed(session.results)}
    left = [name for name in session.sweep.implementations if name not in names and name in with_time]
    aside = f" (not counted: {', '.join(left)})" if left else ""
    against_libraries = contests(compared, libraries())
    for case, ranges in winners(compared):
        click.echo(f"\n{fastest_in_words(case, ranges, session.modelled)}{aside}")
        for contest in against_libraries:
            if contest.case.title == case.title:
                click.echo(f"  {in_words(contest)}")


def _print_bounds(session: Session) -> None:
    """Print what memory allows, and who comes nearest to it, for each kind of case that is larger than the caches."""
    for kind in dict.fromkeys(case.kind for case in session.sweep.cases()):
        if limit := measured_roofline(session.results, kind):
            case = replace(kind, nbytes=max(limit.copy_times))
            rows = [result for result in observed(session.results) if result.case == case]
            best = min(rows, key=lambda result: result.typical)
            click.echo(f"{limit}; {best.implementation} reaches {share_in_words(best)}")


def noise(results: Sequence[Result], watch: Watch) -> Iterator[str]:
    """Yield how wide intervals are, what else the machine did, and what helps; nothing if all rows are sharp."""
    rows = [result for result in results if isinstance(result, Measurement) and result.right and not result.disturbed]
    few = [row for row in rows if len(row.times) < FEWEST]
    if few:
        yield (
            f"{len(few)} of {len(rows)} rows have fewer than {FEWEST} samples, and so no interval; "
            "nothing is said of who is faster there (more: -n, or a larger --budget)"
        )
    wide = [row for row in rows if WIDE < row.relative_halfwidth < math.inf]
    if not wide:
        return
    worst = max(wide, key=lambda row: row.relative_halfwidth)
    yield (
        f"noise: {len(wide)} of {len(rows)} rows are known to more than ± {WIDE:.0%} only, "
        f"the worst to ± {worst.relative_halfwidth:.0%} ({worst.implementation} at {format_size(worst.case.nbytes)}); "
        "what is not distinguishable is not called faster"
    )
    on_cores = max((row.case.ranks for row in rows if row.platform == "cpu"), default=1)
    for reason in watch.reasons(on_cores):
        yield f"  {reason}"
    kinds = [platforms()[name] for name in dict.fromkeys(row.platform for row in wide) if name in platforms()]
    helps = [kind.steadier for kind in kinds if kind.steadier]
    yield f"  what helps: {', '.join([*helps, '--budget 5 or --starts 5'])}, and a second run"


def print_end(session: Session, legend: str, outputs: Outputs) -> None:
    """Print what the numbers mean, and where everything is."""
    if not outputs.quiet:
        click.echo("\n".join([f"\n{legend}", *results_table.legend_lines(session.results)]), err=True)
    say_where(session, ("png",) if outputs.plot else ())
