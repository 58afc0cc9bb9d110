"""Measure or predict training steps: scaling, overlap, stragglers, and strategies of synchronisation.

For example:
  collbench step scale --ranks 1,2
  collbench step overlap --on dgx-h100 --compute 20ms --gradients 1G
  collbench step stragglers --slow-rank 1
  collbench step strategies --strategy ring,asynchronous
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli.options import ANYWHERE, HERE, shared, writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from collbench.cli._step_tables import StepTable
    from collbench.measure.session import Session


@click.group()
def command() -> None:
    """Measure or predict training steps: scaling, overlap, stragglers, and strategies of synchronisation."""


def _implementations(default: str) -> click.Option:
    return click.Option(["--impl"], metavar="NAME[,NAME]", help=f"Implementations; default: {default}.")


def _compute(default: str) -> click.Option:
    words = f"What a rank computes in a step, such as 10ms or 2GFLOP; default: {default}."
    return click.Option(["--compute"], metavar="TIME|FLOP", help=words)


def _gradients(default: str) -> click.Option:
    words = f"Bytes that every step hands round; default: {default}."
    return click.Option(["-b", "--gradients"], metavar="SIZE", help=words)


def _slow_rank(factor: int) -> click.Option:
    words = f"A rank that computes FACTOR times as much, {factor} if not given; several times for several ranks."
    return click.Option(["--slow-rank"], multiple=True, metavar="R[:FACTOR]", show_default=False, help=words)


def _number(name: str, default: int, most: int, words: str, metavar: str | None = None, least: int = 1) -> click.Option:
    return click.Option([name], type=click.IntRange(least, most), default=default, metavar=metavar, help=words)


_MOST_SEEDS, _MOST_STEPS = 1000, 10_000  # of training
_MATRIX = click.Option(
    ["--matrix"],
    type=click.IntRange(1, 2**15),
    metavar="ROWS",
    help="Of the products; default: 256 on a CPU, 4096 on a GPU.",
)
_PER_CENT = click.FloatRange(0, 100)
_NOISE = click.Option(
    ["--noise"], type=_PER_CENT, default=0.22, help="Predicted: spread of computing times, in per cent."
)
_SETTINGS = {"show_default": True}
_SCALE = [
    ANYWHERE,
    click.Option(
        ["-g", "--ranks"],
        metavar="N,N|N..N",
        help="Numbers of ranks; FIRST..LAST doubles. Default: 1,2; on a system 1 to all GPUs of 512 nodes.",
    ),
    click.Option(
        ["--mode"], type=click.Choice(["weak", "strong", "both"]), default="weak", help="What stays the same."
    ),
    _implementations("the library and auto"),
    _compute("10ms, predicted 100ms"),
    _gradients("4M, predicted 1G"),
    _MATRIX,
    _slow_rank(2),
    click.Option(
        ["--threshold"], type=_PER_CENT, default=75.0, help="Per cent of efficiency from which on it is healthy."
    ),
    _NOISE,
    *shared("datatype", "timeout", "spin", "bind", budget=2.0),
    *writes("run file and plot"),
]
_OVERLAP = [
    ANYWHERE,
    *shared("ranks"),
    _implementations("the library and auto"),
    _compute("10ms, predicted 100ms"),
    _gradients("8M, predicted 1G"),
    click.Option(["--buckets"], metavar="SIZE[,SIZE]", help="Sizes to hand over at once; default: a 16th, a 4th, all."),
    click.Option(
        ["--ctas"], metavar="N[,N]", help="On GPUs: CTAs for NCCL to use at most, besides as many as it likes."
    ),
    _MATRIX,
    _slow_rank(2),
    _NOISE,
    *shared("datatype", "timeout", "spin", "bind", budget=10.0),
    *writes("run file, pictures and trace"),
]
_STRAGGLERS = [
    *shared("op"),
    HERE,
    *shared("ranks"),
    _implementations("the library, and what should be the fastest of the others (auto)"),
    _compute("1ms"),
    _gradients("64K"),
    click.Option(["--steps"], type=int, metavar="N", help="Steps of each implementation; default: 4000."),
    _slow_rank(2),
    *shared("datatype", "timeout", "spin", "bind", budget=20.0),
    *writes("run file and pictures"),
]
_STRATEGIES = [
    click.Option(
        ["--strategy", "--style", "strategy"], default="all", metavar="NAME[,NAME]|all", help="Strategies to compare."
    ),
    HERE,
    *shared("ranks"),
    _slow_rank(4),
    _number("--seeds", 8, _MOST_SEEDS, "Runs of every strategy, each from other first weights."),
    _number("--steps", 120, _MOST_STEPS, "Steps of a rank, if all make as many."),
    _number("--every", 8, _MOST_STEPS, "local-sgd: steps between two averages.", "K"),
    _number(
        "--staleness",
        256,
        _MOST_STEPS,
        "asynchronous: steps that a rank may be ahead of the slowest; 0: synchronous.",
        "S",
        least=0,
    ),
    _number("--group", 2, _MOST_STEPS, "hierarchical: ranks of a group.", "G"),
    click.Option(["--rate"], type=float, default=0.4, help="Learning rate, for the mean of all ranks' gradients."),
    click.Option(["--target"], type=float, help="Loss to reach; default: the lowest that all get to."),
    *shared("timeout", "spin", "bind"),
    *writes("run file and picture"),
]


@command.command(context_settings=_SETTINGS, params=_SCALE, short_help="How much faster are more ranks?")
def scale(ranks: str | None, mode: str, threshold: float, **options: Any) -> int:
    """Measure how a step scales on 1, 2, 4, ... ranks: speed-up, efficiency, and what would help."""
    from collbench.analysis.scaling import curves, verdict
    from collbench.cli._step_sessions import StepOptions, scale_session
    from collbench.cli._step_tables import SCALING

    request = StepOptions(**options)
    session = scale_session(request, ranks, mode)

    def conclusion() -> "Iterable[str]":
        for curve in curves(session.results):
            yield ""
            yield from verdict(curve, threshold / 100)

    return _run(session, SCALING, conclusion, request.formats)


@command.command(
    context_settings=_SETTINGS, params=_OVERLAP, short_help="What does communicating while computing hide?"
)
def overlap(ranks: int | None, buckets: str | None, ctas: str | None, **options: Any) -> int:
    """Measure what overlapping communication with computing hides: exposed communication, the best size of bucket."""
    from collbench.analysis.overlap import verdicts
    from collbench.cli._step_sessions import StepOptions, overlap_session
    from collbench.cli._step_tables import OVERLAP

    request = StepOptions(**options)
    session = overlap_session(request, ranks, buckets, ctas)
    return _run(session, OVERLAP, lambda: ["", *verdicts(session.results)], request.formats)


@command.command(
    context_settings=_SETTINGS, params=_STRAGGLERS, short_help="Which rank is late, and what does it cost?"
)
def stragglers(ranks: int | None, steps: int | None, **options: Any) -> int:
    """Find ranks that are late: how often, what it costs the others, and what more ranks would pay for the noise.

    Ranks multiply matrices, then carry out a collective, and again: when each of them arrives and leaves is noted on
    one clock, since durations cannot tell a late rank from those that wait for it.
    """
    from collbench.cli._step_sessions import StepOptions, stragglers_session
    from collbench.cli._step_tables import STRAGGLERS, straggler_sections
    from collbench.host.launcher import launched

    request = StepOptions(**options)
    session = stragglers_session(request, ranks, steps, launched())
    total = len(session.sweep.implementations)
    return _run(session, STRAGGLERS, lambda: straggler_sections(session.results), request.formats, total)


@command.command(
    context_settings=_SETTINGS, params=_STRATEGIES, short_help="Which way of keeping weights in step is fastest?"
)
def strategies(**options: Any) -> int:
    """Compare strategies of synchronisation in training: ring, parameter server, groups, local SGD, asynchronous.

    A small network is trained on every rank; `--slow-rank 1` makes one compute four times as much.
    """
    from collbench.analysis.strategies import ranking, verdict
    from collbench.cli._step_sessions import StrategyOptions, strategies_session
    from collbench.cli._step_tables import STRATEGIES, ranking_table
    from collbench.host.launcher import launched

    request = StrategyOptions(**options)
    session = strategies_session(request, launched())

    def conclusion() -> "Iterable[str]":
        if found := ranking(session.results):
            yield from ("", *ranking_table(found), "", *verdict(found))

    total = len(session.sweep.jobs) * len(session.sweep.implementations)
    return _run(session, STRATEGIES, conclusion, request.formats, total)


def _run(
    session: "Session",
    table: "StepTable",
    conclusion: "Callable[[], Iterable[str]]",
    formats: tuple[str, ...],
    total: int = 0,
) -> int:
    """Measure or predict everything, show each row as it arrives, then the conclusion and where everything is."""
    from collbench.cli.progress import ResultTable
    from collbench.cli.running import finish, run_session

    rows = ResultTable(table.title, table.heading, lambda result: table.row(result, session.results), total)
    if interrupted := run_session(session, rows):
        return interrupted
    if session.leader:
        _close(session, table, conclusion, formats)
    return finish([session])


def _close(
    session: "Session", table: "StepTable", conclusion: "Callable[[], Iterable[str]]", formats: tuple[str, ...]
) -> None:
    from collbench.cli._step_tables import PREDICTED
    from collbench.cli.running import say_where
    from collbench.plots import perfetto
    from collbench.results import StepTimes

    for line in conclusion():
        click.echo(line)
    click.echo(f"\n{PREDICTED if session.modelled else table.legend}", err=True)
    folder = say_where(session, formats)
    traced = [result for result in session.results if isinstance(result, StepTimes) and result.activities]
    if table.traced and traced:
        perfetto.write_steps(traced, folder / "trace.json")
        click.echo(f"trace: {folder / 'trace.json'} (open it at ui.perfetto.dev)")
