"""Measure or predict training steps: scaling, late ranks, overlap and synchronisation strategies.

For example:
  collbench step scale --ranks 1,2
  collbench step scale --ranks 2 --slow-rank 1
  collbench step overlap --on dgx-h100 --compute 20ms --gradients 1G
  collbench step strategies --strategy ring,asynchronous
"""

from collections.abc import Sequence
from typing import Any

import click

from collbench.cli.options import ANYWHERE, HERE, given, made, options_of
from collbench.cli.progress import LiveTable, ResultTable
from collbench.cli.running import finish, refuse_launcher, run_session, say_where
from collbench.commands.step import section as step_tables
from collbench.commands.step import sessions
from collbench.commands.step.rows import StepTimes
from collbench.commands.step.section import PROBLEM, StepResult, StepTable
from collbench.commands.step.sessions import StepRequest
from collbench.commands.step.work import Step
from collbench.host.launcher import launched
from collbench.measure.interleave import LEAST
from collbench.measure.session import Session
from collbench.present.notices import renamed
from collbench.present.terminal import Table, lines
from collbench.requests.declared import takes
from collbench.requests.sessions import run_to_end
from collbench.results import by_key
from collbench.results.disturbed import all_disturbed
from collbench.runfile.store import Run
from collbench.units import counted, format_size


class _Parts(click.Group):
    """The commands of `collbench step`, and an unlisted one under its old name."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of that name; for the old name, print the new one."""
        if name != "stragglers":
            return super().get_command(context, name)
        renamed("step stragglers", "step scale --ranks N")
        return stragglers


@click.group(cls=_Parts, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure or predict training steps: scaling, late ranks, overlap and synchronisation strategies."""
    if not context.invoked_subcommand:
        click.echo(context.get_help())


_WORDS = "counts mode impl compute gradients steps slow_rank budget out"
_SCALE = [ANYWHERE, *options_of(StepRequest, _WORDS)]
_OVERLAP = [ANYWHERE, *options_of(StepRequest, "ranks impl compute gradients buckets out", budget="10s")]
_STRATEGIES = options_of(StepRequest, "strategy ranks slow_rank seeds updates staleness target out")
_STRAGGLERS = [
    HERE,
    *options_of(StepRequest, "op ranks impl steps slow_rank timeout out", compute="1ms", gradients="64K", budget="20s"),
]


@command.command(params=_SCALE, short_help="How well does a step scale, and which rank is late?")
def scale(**options: Any) -> int:
    """Measure how a step scales on 1, 2, 4, ... ranks: speed-up, efficiency, and what would help.

    With one measured number of ranks (`--ranks 4`), or under a launcher, find late ranks: how often, by how much, and
    at what cost to the others.  A common clock records arrivals, as a late rank and a waiting rank take equally long.
    """
    session = sessions.scale_session(made(StepRequest, options), launched())
    return _run(session, step_tables.STRAGGLERS if session.sweep.sampling.steps else step_tables.SCALING)


@takes(StepRequest, f"{_WORDS} on each")
def step(request: StepRequest) -> Run:
    """Measure how a training step scales, or predict it on a described system, as `collbench step scale` does.

    Returns:
        The run, with the times of a step on each number of ranks.

    >>> import collbench
    >>> run = collbench.step(counts="1,8,16", on="dgx-h100")
    >>> [row["ranks"] for row in run.rows()]
    [1, 8, 16]

    """
    return run_to_end(sessions.scale_session(request, launched(), lambda *_: None), request.each)


@click.command("stragglers", params=_STRAGGLERS)
def stragglers(**options: Any) -> int:
    """Find late ranks; now named `collbench step scale --ranks N`."""
    return _run(sessions.waiting_session(made(StepRequest, options), launched()), step_tables.STRAGGLERS)


@command.command(params=_OVERLAP, short_help="How much communication does overlap hide?")
def overlap(**options: Any) -> int:
    """Measure overlap of communication with computing: exposed communication and the best bucket size."""
    refuse_launcher("step overlap")
    return _run(sessions.overlap_session(made(StepRequest, options)), step_tables.OVERLAP)


@command.command(params=_STRATEGIES, short_help="Which synchronisation strategy trains fastest?")
def strategies(**options: Any) -> int:
    """Compare synchronisation strategies in training: ring, parameter server, local SGD, asynchronous.

    Every rank trains a small network; `--slow-rank 1` makes rank 1 compute four times as much.
    """
    return _run(sessions.strategies_session(made(StepRequest, options), launched()), step_tables.STRATEGIES)


def _answer(session: Session, lines: Sequence[str]) -> list[str]:
    """Return the lines with the first as the answer, and why it is uncertain or missing."""
    first, *others = lines or ["none"]
    unsure = all_disturbed(session.results) or ("" if lines else "no rows can be compared")
    return ["; ".join(filter(None, (f"answer: {first}", unsure))), *others]


def _assumed(session: Session) -> list[str]:
    """Return the default computing time and gradient size of a step, where the user gave none."""
    work = session.sweep.works[0]
    assert work
    amounts = {"compute": f"{work.words[0]} a step", "gradients": f"{format_size(session.sweep.sizes[0])} of gradients"}
    return [amounts[name] for name in amounts if isinstance(work, Step) and name not in given()]


def _run(session: Session, table: StepTable) -> int:
    """Measure or predict; show the answer, rows, conclusion and folder."""
    sweep = session.sweep
    total = len(sweep.works) * len(sweep.implementations)
    live = ResultTable(table.title, Table(table.columns, PROBLEM), StepResult, total) if table.live else LiveTable()
    interrupted = run_session(session, live, assumed=_assumed(session))
    results = session.results
    if session.leader and not table.live:
        click.echo("\n".join(_answer(session, table.findings(results))))
        for title, group in by_key(results, table.title).items():
            shown = [StepResult(result, results) for result in group]
            heading, *rows = lines(table.of(session.modelled), shown, PROBLEM)
            for result, row in zip(group, rows, strict=True):
                live.show(title, heading, [(result, row)])
    if interrupted:
        return interrupted
    if session.leader:
        for line in table.conclusion(results):
            click.echo(line)
        if table.live:
            click.echo("\n".join(["", *_answer(session, table.findings(results))]))
        series = [len(row.series) for row in results if isinstance(row, StepTimes) and row.right]
        if series and min(series) < LEAST and not sweep.sampling.steps:
            rounds, budget = counted(min(series), "round"), sweep.sampling.budget
            click.echo(f"no intervals: only {rounds} fit into the budget; give more, such as --budget {2 * budget:g}s")
        click.echo(f"\n{step_tables.PREDICTED if session.modelled else table.legend}", err=True)
        say_where(session)
    return finish([session])
