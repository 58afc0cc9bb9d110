"""Measure or predict training steps: scaling, overlap, stragglers, and strategies of synchronisation.

For example:
  collbench step scale --ranks 1,2
  collbench step overlap --on dgx-h100 --compute 20ms --gradients 1G
  collbench step stragglers --slow-rank 1
  collbench step strategies --strategy ring,asynchronous
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from collbench.analysis import overlap as overlaps
from collbench.analysis import scaling, step_tables
from collbench.analysis import stragglers as stragglers_of
from collbench.analysis.step_tables import PROBLEM, StepResult, StepTable
from collbench.analysis.strategies import verdicts
from collbench.cli import _step_sessions
from collbench.cli._step_sessions import StepRequest
from collbench.cli.options import ANYWHERE, HERE, RENDEZVOUS_FOLDER, made, options_of
from collbench.cli.progress import LiveTable, ResultTable
from collbench.cli.running import finish, run_session, say_where
from collbench.host.launcher import launched
from collbench.measure.disturbance import all_disturbed
from collbench.measure.interleave import LEAST
from collbench.measure.session import Session
from collbench.present.terminal import Table, lines
from collbench.results import Result, StepTimes, by_key
from collbench.units import counted


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure or predict training steps: scaling, overlap, stragglers, and strategies of synchronisation."""
    if not context.invoked_subcommand:
        click.echo(context.get_help())


_STEP = "impl compute gradients matrix slow_rank timeout out"
_SCALE = [ANYWHERE, *options_of(StepRequest, f"counts mode {_STEP}", budget="2s")]
_OVERLAP = [ANYWHERE, *options_of(StepRequest, f"ranks buckets {_STEP}", budget="10s")]
_STRAGGLERS = [
    HERE,
    *options_of(
        StepRequest,
        "op ranks impl steps slow_rank timeout out",
        compute="1ms",
        gradients="64K",
        budget="20s",
    ),
    RENDEZVOUS_FOLDER,
]
_STRATEGIES = [
    *options_of(StepRequest, "strategy ranks slow_rank seeds updates staleness target timeout out"),
    RENDEZVOUS_FOLDER,
]


@command.command(params=_SCALE, short_help="How much faster are more ranks?")
def scale(**options: Any) -> int:
    """Measure how a step scales on 1, 2, 4, ... ranks: speed-up, efficiency, and what would help."""

    def answer(results: Sequence[Result]) -> list[str]:
        return scaling.answer(scaling.curves(results))

    def conclusion(results: Sequence[Result]) -> Iterable[str]:
        for curve in scaling.curves(results):
            yield from ("", f"{curve.name}, {curve.mode}:", *scaling.verdict(curve)[1:])

    return _run(_step_sessions.scale_session(made(StepRequest, options)), step_tables.SCALING, answer, conclusion)


@command.command(params=_OVERLAP, short_help="What does communicating while computing hide?")
def overlap(**options: Any) -> int:
    """Measure what overlapping communication with computing hides: exposed communication, the best size of bucket."""
    session = _step_sessions.overlap_session(made(StepRequest, options))
    return _run(session, step_tables.OVERLAP, overlaps.verdicts)


@command.command(params=_STRAGGLERS, short_help="Which rank is late, and what does it cost?")
def stragglers(**options: Any) -> int:
    """Find ranks that are late: how often, by how much, and what it costs the others.

    Ranks multiply matrices, then carry out a collective, and again.  Arrivals are noted on one clock: durations cannot
    tell a late rank from those that wait for it.
    """
    session = _step_sessions.stragglers_session(made(StepRequest, options), launched())
    total, sections = len(session.sweep.implementations), step_tables.straggler_sections
    return _run(session, step_tables.STRAGGLERS, stragglers_of.verdicts, sections, total)


@command.command(params=_STRATEGIES, short_help="Which way of keeping weights in step is fastest?")
def strategies(**options: Any) -> int:
    """Compare strategies of synchronisation in training: ring, parameter server, groups, local SGD, asynchronous.

    A small network is trained on every rank; `--slow-rank 1` makes one compute four times as much.
    """
    session = _step_sessions.strategies_session(made(StepRequest, options), launched())
    total = len(session.sweep.jobs) * len(session.sweep.implementations)
    return _run(session, step_tables.STRATEGIES, verdicts, step_tables.ranking_table, total)


def _answer(session: Session, lines: Sequence[str]) -> list[str]:
    """Return the lines that a run says, the first as its answer, with what makes it unsure or why there is none."""
    first, *others = lines or ["none"]
    unsure = all_disturbed(session.results) or ("" if lines else "nothing here can be compared")
    return ["; ".join(filter(None, (f"answer: {first}", unsure))), *others]


def _run(
    session: Session,
    table: StepTable,
    said: Callable[[Sequence[Result]], list[str]],
    conclusion: Callable[[Sequence[Result]], Iterable[str]] = lambda _: (),
    total: int = 0,
) -> int:
    """Measure or predict everything, show the answer, rows and conclusion, and where everything is.

    With a total, rows are shown as they arrive, and the answer stands last.
    """
    live = ResultTable(table.title, Table(table.columns, PROBLEM), StepResult, total) if total else LiveTable()
    interrupted = run_session(session, live)
    results = session.results
    if session.leader and not total:
        click.echo("\n".join(_answer(session, said(results))))
        for title, group in by_key(results, table.title).items():
            heading, *rows = lines(table.of(session.modelled), [StepResult(one, results) for one in group], PROBLEM)
            for result, row in zip(group, rows, strict=True):
                live.show(title, heading, [(result, row)])
    if interrupted:
        return interrupted
    if session.leader:
        answer = ("", *_answer(session, said(results))) if total else ()
        for line in (*conclusion(results), *answer):
            click.echo(line)
        series = [len(row.series) for row in results if isinstance(row, StepTimes) and row.right]
        if series and min(series) < LEAST and not session.sweep.sampling.steps:
            rounds, budget = counted(min(series), "round"), session.sweep.sampling.budget
            click.echo(f"no intervals: only {rounds} fit into the budget; give more, such as --budget {2 * budget:g}s")
        click.echo(f"\n{step_tables.PREDICTED if session.modelled else table.legend}", err=True)
        say_where(session)
    return finish([session])
