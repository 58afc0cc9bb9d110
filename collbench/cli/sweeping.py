"""A sweep as the user sees it, measured or predicted: its table row by row, and what it says below."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import click

from collbench.algorithms import implementations, is_library, is_path, libraries
from collbench.analysis.crossover import (
    best_of,
    contests,
    disturbed_rivals,
    fastest_by_size,
    fastest_in_words,
    handicaps,
    in_words,
    library_of,
    rivals,
    winners,
)
from collbench.analysis.roofline import measured_roofline, share
from collbench.analysis.wires import tradeoffs
from collbench.cli import results_table
from collbench.cli.options import option
from collbench.cli.progress import LiveTable
from collbench.cli.running import Outputs, run_session, say_where
from collbench.measure.disturbance import MachineWatch, disturbed_in_words
from collbench.measure.session import Session, exit_status
from collbench.platforms import platforms
from collbench.present.terminal import Table, left_out_in_words
from collbench.requests.sessions import predicting_session
from collbench.requests.sweeps import SweepRequest, default_folder, folder_name
from collbench.results import Measurement, Result, family
from collbench.topology.system import System
from collbench.units import counted

WIDE = 0.10  # half an interval over the median, from which on a row is called noisy
FEWEST = 6  # samples that have an interval
NO_PATHS = "NCCL has faster ways for buffers that it knows beforehand: --impl all,paths, with a process for each GPU"
PLOT = option("--plot/--no-plot", "Draw the plots at the end.", default=True)


def show_prediction(system: System, request: SweepRequest, outputs: Outputs, remarks: Iterable[str] = ()) -> int:
    """Predict a sweep on a described system, and print all of it; the exit status."""
    session = predicting_session(system, request, lambda part, sweep: default_folder(sweep, folder_name(part)))
    return show_sweep(session, outputs, remarks)


def show_sweep(session: Session, outputs: Outputs, remarks: Iterable[str] = (), extra: Collection[str] = ()) -> int:
    """Run a sweep that is measured or predicted, and print all of it; the exit status.

    `extra` has the columns of results_table.EXTRAS that the table has.
    """
    watch = MachineWatch()
    table = SweepTable(session, extra, outputs.quiet)
    if interrupted := run_session(session, table, remarks, outputs.quiet):
        outputs.write(session)
        return interrupted
    if session.leader:
        _print_below(session, table, watch, outputs)
    outputs.write(session)
    return exit_status(session.results)


def _print_below(session: Session, table: "SweepTable", watch: MachineWatch, outputs: Outputs) -> None:
    """Print what stands below the table: who wins where, bounds, noise, what the numbers mean, and the files."""
    facts, wires = list(findings(session.results, session.modelled)), tradeoffs(session.results)
    if facts or not wires:
        click.echo("\n".join(["", *facts]))
    lines = [disturbed_in_words(session.results), noise(session.results, watch)]
    if wires:
        click.echo("\n".join(results_table.wires_table(wires)))
        lines.append(results_table.WIRES_LEGEND)
    lines.append(results_table.EXPECTED_LEGEND if session.modelled else results_table.LEGEND)
    lines += results_table.extra_legends(table.extra, session.results)
    lines.append(table.left_out())
    print_end(session, lines, outputs)


class SweepTable(LiveTable):
    """The table of a sweep, row by row."""

    def __init__(self, session: Session, extra: Collection[str], quiet: bool) -> None:
        names = session.sweep.implementations
        super().__init__(0 if quiet else len(list(session.sweep.cases())) * len(names))
        self._session, self.extra = session, extra
        self._compared = [name for name in libraries() if name in map(family, names)]
        self._estimated = set().union(*(implementations()[family(name)].estimates for name in names))
        self._library = ""
        if sum(map(is_library, names)) > 1:
            self._library = "best"
        elif self._compared and len(names) > 1:
            self._library = self._compared[0]

    def columns(self, estimates: bool) -> Table[results_table.Compared]:
        """Return the table as it is now; `estimates` says whether the library expects something itself."""
        form = partial(
            results_table.timed_table,
            library=self._library,
            modelled=self._session.modelled,
            extra=self.extra,
            estimates=estimates,
            ran=bool(self._estimated),
            bus=not self._session.header.topology.shared,
        )
        # Names have the versions of libraries, which the ranks report, where all columns have room.
        whole = form(width=max([results_table.NAME, *map(len, self._session.labels)]))
        return form() if whole.left_out() else whole

    def add(self, result: Result) -> None:
        """Print a result."""
        table = self.columns(result.case.collective.name in self._estimated)
        rival = None
        if not is_library(result.implementation):
            rival = library_of(self._session.results, self._compared, result)
        self.show(result.case.title, table.heading(), [(result, results_table.row(result, rival, table))])

    def left_out(self) -> str:
        """Return which columns the terminal is too narrow for."""
        return left_out_in_words(self.columns(bool(self._estimated)))


def findings(results: Sequence[Result], expected: bool = False) -> Iterator[str]:
    """Yield for each kind of case who wins at which sizes, the best kernel against libraries, and what memory allows.

    An implementation that is alone has no rivals.  What libraries lack where ranks share a GPU comes last.
    """
    compared = rivals(results)
    ranges = {case.kind: winning for case, winning in winners(compared, disturbed_rivals(results))}
    best = best_of(contests(compared, libraries()))
    kinds = dict.fromkeys(result.case.kind for result in results)
    for kind in kinds:
        lines = [in_words(contest) for contest in best if contest.case.kind == kind]
        if len({result.implementation for result in compared}) > 1 and kind in ranges:
            lines.insert(0, fastest_in_words(ranges[kind], expected))

        # At the largest size: how much of what memory allows the fastest implementation reaches.
        if limit := measured_roofline(results, kind):
            case = replace(kind, nbytes=max(limit.copy_times))
            for row in fastest_by_size(row for row in compared if row.case == case).values():
                reached = f"{100 * share(row, limit, row.typical):.0f} %"
                lines.append(f"{limit}; {row.implementation} reaches {reached} of it")
        if lines and len(kinds) > 1:
            yield f"{kind.title}:"
        yield from lines
    yield from handicaps(results)
    names = {result.implementation for result in results if result.platform == "gpu"}
    if "nccl" in names and not expected and not any(map(is_path, names)) and not all(map(is_library, names)):
        yield NO_PATHS


def noise(results: Sequence[Result], watch: MachineWatch) -> str:
    """Return how many rows are uncertain, the likeliest reason, and what helps; nothing if all rows are sharp."""
    rows = [row for row in results if isinstance(row, Measurement) and row.right and not row.disturbed]
    few = sum(len(row.times) < FEWEST for row in rows)
    wide = sum(WIDE < row.relative_halfwidth < math.inf for row in rows)
    if not few and not wide:
        return ""
    counts = []
    if wide:
        counts.append(f"{wide} of {counted(len(rows), 'row')} uncertain by more than {100 * WIDE:.0f} %")
    if few:
        counts.append(f"{few} of {counted(len(rows), 'row')} without an interval: fewer than {FEWEST} samples")
    kinds = {row.platform for row in rows}
    ranks = max((row.case.ranks for row in rows if row.platform == "cpu"), default=1)
    helps = [kind.steadier for name, kind in platforms().items() if name in kinds and kind.steadier]
    helps.append("-n 15" if few else "--budget 5s")
    clauses = [", ".join(counts), *islice(watch.reasons(ranks), 1)]
    return f"noise: {'; '.join(clauses)}; what helps: {', '.join(helps)}"


def print_end(session: Session, lines: Iterable[str], outputs: Outputs) -> None:
    """Print lines on what the numbers mean, and where everything is."""
    if not outputs.quiet:
        click.echo("\n".join(filter(None, [*lines, *results_table.legend_lines(session.results)])), err=True)
    say_where(session, outputs.plot)
