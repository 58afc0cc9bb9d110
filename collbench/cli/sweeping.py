"""Printed output of sweeps, measured or predicted, and side-by-side tables of interconnects.

`collbench predict A,B,...` prints such tables for its systems, `collbench compare` for runs of different machines.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import click

from collbench.algorithms import choose, implementations, is_library, is_path, libraries, references
from collbench.analysis import crossover, interconnects
from collbench.analysis.roofline import measured_roofline, share
from collbench.cli import results_table
from collbench.cli.options import given, made, option, print_answer, print_basis
from collbench.cli.progress import LiveTable
from collbench.cli.running import Outputs, run_session, say_where, software
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.machine_watch import MachineWatch
from collbench.measure.session import Session, exit_status
from collbench.platforms import platforms
from collbench.present.notices import is_leader
from collbench.present.terminal import Table, left_out_in_words, lines
from collbench.requests.sessions import predicting_session
from collbench.requests.sweeps import SweepRequest, default_folder, find_system, folder_name
from collbench.results import Measurement, Result, family, timed
from collbench.results.base import WIDEST
from collbench.results.disturbed import disturbed_in_words
from collbench.topology.system import System, launched_in_graph
from collbench.units import counted, format_list, printable

WIDE = 0.10  # a row is noisy if half its interval over the median is larger
FEWEST = 6  # samples that an interval needs
NO_PATHS = (
    "NCCL has faster paths for registered buffers (nccl-tests -G should equal nccl@registered): "
    "--impl all,paths, with a process for each GPU"
)
PLOT = option("--plot/--no-plot", "Draw the plots at the end.", default=True)


def show_prediction(system: System, request: SweepRequest, outputs: Outputs, remarks: Iterable[str] = ()) -> int:
    """Predict a sweep on a described system, print it, and return the exit status."""
    session = predicting_session(system, request, lambda part, sweep: default_folder(sweep, folder_name(part)))
    return show_sweep(session, outputs, remarks)


def show_sweep(session: Session, outputs: Outputs, remarks: Iterable[str] = (), extra: Collection[str] = ()) -> int:
    """Print a sweep, measured or predicted, with `extra` columns (results_table.EXTRAS); return the exit status."""
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
    facts, wires = list(findings(session.results, session.modelled)), crossover.tradeoffs(session.results)
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
        """Return the table with its present columns; `estimates` adds the library's own estimates."""
        form = partial(
            results_table.timed_table,
            library=self._library,
            modelled=self._session.modelled,
            extra=self.extra,
            estimates=estimates,
            ran=bool(self._estimated),
            bus=not self._session.header.topology.shared,
        )
        # Show versions of libraries, which the ranks report, only if all columns still fit.
        whole = form(width=max([results_table.NAME, *map(len, self._session.labels)]))
        return form() if whole.left_out() else whole

    def add(self, result: Result) -> None:
        """Print a result."""
        table = self.columns(result.case.collective.name in self._estimated)
        rival = None
        if not is_library(result.implementation):
            rival = crossover.library_of(self._session.results, self._compared, result)
        self.show(result.case.title, table.heading(), [(result, results_table.row(result, rival, table))])

    def left_out(self) -> str:
        """Return a line on the columns that do not fit into the terminal."""
        return left_out_in_words(self.columns(bool(self._estimated)))


def findings(results: Sequence[Result], expected: bool = False) -> Iterator[str]:
    """Yield findings for each kind of case: fastest by size, best kernel against libraries, share of memory's bound.

    Handicaps of libraries on shared GPUs come last, then a hint at registered buffers.
    """
    compared = crossover.rivals(results)
    ranges = {case.kind: winning for case, winning in crossover.winners(compared, crossover.unsure_rivals(results))}
    best = crossover.best_of(crossover.contests(compared, references()))
    kinds = dict.fromkeys(result.case.kind for result in results)
    for kind in kinds:
        lines = [crossover.in_words(contest) for contest in best if contest.case.kind == kind]
        if len({result.implementation for result in compared}) > 1 and kind in ranges:
            lines.insert(0, crossover.fastest_in_words(ranges[kind], expected))

        # At the largest size: the fastest implementation's share of the memory bound.
        if limit := measured_roofline(results, kind):
            case = replace(kind, nbytes=max(limit.copy_times))
            for row in crossover.fastest_by_size(row for row in compared if row.case == case).values():
                reached = f"{100 * share(row, limit, row.typical):.0f} %"
                lines.append(f"{limit}; {row.implementation} reaches {reached} of it")
        if lines and len(kinds) > 1:
            yield f"{kind.title}:"
        yield from lines
    yield from crossover.handicaps(results)
    names = {result.implementation for result in results if result.platform == "gpu"}
    if "nccl" in names and not expected and not any(map(is_path, names)) and not all(map(is_library, names)):
        yield NO_PATHS


def noise(results: Sequence[Result], watch: MachineWatch) -> str:
    """Return a line on uncertain rows, with the likeliest reason and remedies; empty if there are none."""
    rows = [row for row in results if isinstance(row, Measurement) and row.right and not row.disturbed]
    few = sum(len(row.times) < FEWEST for row in rows)
    wide, unsure = sum(WIDE < row.relative_halfwidth < math.inf for row in rows), sum(row.unsure for row in rows)
    if not few and not wide:
        return ""
    counts = []
    if wide:
        counts.append(f"{wide} of {counted(len(rows), 'row')} uncertain by more than {100 * WIDE:.0f} %")
    if unsure:
        counts.append(f"{unsure} by more than {100 * WIDEST:.0f} % and left out of comparisons")
    if few:
        counts.append(f"{few} of {counted(len(rows), 'row')} without an interval: fewer than {FEWEST} samples")
    kinds = {row.platform for row in rows}
    ranks = max((row.case.ranks for row in rows if row.platform == "cpu"), default=1)
    helps = [kind.steadier for name, kind in platforms().items() if name in kinds and kind.steadier]
    helps.append("-n 15" if few else "--budget 5s")
    clauses = [", ".join(counts), *islice(watch.reasons(ranks), 1)]
    return f"noise: {'; '.join(clauses)}; what helps: {', '.join(helps)}"


def print_end(session: Session, lines: Iterable[str], outputs: Outputs) -> None:
    """Print the legends, unless quiet, and the paths of the files."""
    if not outputs.quiet:
        click.echo("\n".join(filter(None, [*lines, *results_table.legend_lines(session.results)])), err=True)
    say_where(session, outputs.plot)


RATIOS_LEGEND = "vs: above 1 is faster, ~ intervals overlap; *: fastest, ?: perhaps fastest; by: lead over the next"
PREDICTED_LEGEND = "interval of a prediction: nine in ten measurements should fall into it; of a measurement: 95 %"


def side_by_side(
    names: Sequence[str], options: Mapping[str, Any], what_ifs: tuple[str, ...], graph: bool = False
) -> int:
    """Predict every system, print a table for each kind of case, and return the exit status."""
    if len(set(names)) < len(names):
        raise UsageError(f"{','.join(names)} names a system twice; name each once")
    systems = [launched_in_graph(system) if graph else system for system in map(find_system, names)]
    request = made(SweepRequest, options, on=",".join(names))
    ranks, ranks_in_words = _ranks(systems, request)
    every, sessions = [], []
    for name, system in zip(interconnects.short_names(names), systems, strict=True):
        if ranks:
            request = replace(request, ranks=ranks, nodes=math.ceil(ranks / system.gpus))
        if options["out"]:
            request = replace(request, out=options["out"] / name.replace("/", "-"))
        with predicting_session(system, request, what_ifs=what_ifs) as session:
            results = list(session.run())
        sessions.append(session)
        skipped = dict.fromkeys(f"{row.implementation} skipped: {row.reason}" for row in results if row.reason)
        title = f"{session.topology}; {', '.join(software(session))}"
        every.append(interconnects.Interconnect(name, title, tuple(timed(results)), tuple(skipped)))
    compared = interconnects.tables(every, _selected(request))
    reasons = interconnects.left_out(every, compared)
    if not compared:
        raise UsageError(f"nothing to compare: {'; '.join(reasons)}")
    if is_leader(launched()):

        def answer() -> None:
            print_basis(format_list(each.name for each in every))
            for session in filter(lambda session: session.path, sessions):
                say_where(session, options["plot"])
            show_interconnects(compared, what_ifs)

        for line in (ranks_in_words, *(f"left out: {reason}" for reason in reasons)):
            click.echo(line, err=True)
        rows = [record for table in compared for record in table.records()]
        document = {"measured": False, "tables": interconnects_as_json(compared)}
        print_answer(answer, options["as_json"], document, options["as_csv"], list(rows[0]), rows)
    return 0


def _ranks(systems: Sequence[System], request: SweepRequest) -> tuple[int | None, str]:
    """Return the common number of ranks, None if each system has its own, and a line that explains it."""
    if request.nodes or request.ranks_per_node:
        return None, "ranks as they were requested"
    if request.ranks:
        return request.ranks, "ranks as they were requested"
    ranks = interconnects.common_ranks(systems)
    if ranks is None:
        return None, "each system has its own number of ranks, since no number fits all; --ranks sets one"
    return ranks, f"{counted(ranks, 'rank')} on each system, the most that all can have; --ranks sets another number"


def _selected(request: SweepRequest) -> interconnects.Chosen | None:
    """Return a filter for the implementations that `--impl` names; None, without it, compares the libraries."""
    if "--impl" not in given():
        return None
    names: set[str] = set()
    for platform in ("gpu", "cpu"):
        # A name may exist on one platform only.
        with suppress(UsageError):
            names.update(choose(request.implementations, platform))
    return lambda implementation: implementation in names or implementation.partition("@")[0] in names


def show_interconnects(tables: Sequence[interconnects.InterconnectTable], what_ifs: Sequence[str] = ()) -> None:
    """Print the fastest interconnect with its lead, then every table, and the legend."""
    answer = f"answer: with {', '.join(what_ifs)} on all, " if what_ifs else "answer: "
    for table in tables:
        title = f"{table.title}: " if len(tables) > 1 else ""
        click.echo(f"{answer}{title}{table.verdict()[0]}")
    click.echo()
    printed: list[str] = []
    for table in tables:
        heads = list(_head(table))
        if heads != printed:
            printed = heads
            click.echo("\n".join([*heads, ""]))
        click.echo("\n".join([table.title, *lines(table.columns, table.cells), "", *table.verdict()[1:], ""]))
    click.echo(RATIOS_LEGEND, err=True)
    if any("predicted" in each.origin for table in tables for each in table.interconnects):
        click.echo(PREDICTED_LEGEND, err=True)


def _head(table: interconnects.InterconnectTable) -> Iterator[str]:
    width = max(len(each.name) for each in table.interconnects)
    for each in table.interconnects:
        yield f"{printable(each.name):<{width}}  {each.origin}: {printable(each.title)}"
    if table.unlike:
        yield f"note: {table.unlike}"
    for each in table.interconnects:
        for remark in (*each.remarks, *crossover.handicaps(each.results)):
            yield f"note: {each.name}: {remark}"


def interconnects_as_json(tables: Sequence[interconnects.InterconnectTable]) -> list[dict[str, Any]]:
    """Return a record for each table: its interconnects, rows and verdict."""
    records = []
    for table in tables:
        compared = [
            {"name": each.name, "title": each.title, "origin": each.origin, "ranks": count, "remarks": each.remarks}
            for each, count in zip(table.interconnects, table.ranks, strict=True)
        ]
        rows = {"interconnects": compared, "rows": table.records(), "verdict": table.verdict()}
        records.append({"case": table.title} | rows)
    return records
