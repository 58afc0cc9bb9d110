"""Find stragglers: who is late, how often, what it costs everybody, and what more ranks would pay for the noise.

For example:
  collbench jitter
  collbench jitter --slow-rank 1 --compute 1ms
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli.options import HERE, shared, writes

if TYPE_CHECKING:
    from collbench.cli.progress import ResultTable
    from collbench.measure.session import Session
    from collbench.results import Result

_OPTIONS = [
    *shared("op"),
    click.Option(
        ["--impl"],
        metavar="NAME[,NAME]|library|ladder|all",
        help="Implementations; default: the library, and the rung that should be fastest (auto).",
    ),
    HERE,
    *shared("ranks"),
    click.Option(["-b", "--gradients"], metavar="SIZE", default="64K", help="What every step hands round."),
    click.Option(["--compute"], metavar="TIME|FLOP", default="1ms", help="What a rank computes in a step."),
    click.Option(["--steps"], type=int, metavar="N", help="Steps of each implementation; default: 4000."),
    click.Option(
        ["--slow-rank", "slow"],
        multiple=True,
        metavar="R[:FACTOR]",
        show_default=False,
        help="Have that rank compute FACTOR times as much, by default 2; may be given several times.",
    ),
    *shared("datatype", "timeout", "spin", "bind", budget=20.0),
    *writes("run file and pictures"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Find stragglers: who is late, how often, what it costs everybody, and what more ranks would pay for the noise.

    Ranks multiply matrices, then carry out a collective, and again: when each of them arrives and leaves is noted on
    one clock, since durations cannot tell a late rank from those that wait for it.
    """
    from collbench.api.requests import default_folder
    from collbench.cli._jitter_sweep import make_step_sweep
    from collbench.cli.running import finish, run_session
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    joined = launched()
    platform, sweep = make_step_sweep(options, joined)
    session = Session(platform, sweep, joined, options["out"] or default_folder(sweep))
    if interrupted := run_session(session, _table(session)):
        return interrupted
    if session.leader:
        _close(session, options["formats"])
    return finish([session])


def _table(session: "Session") -> "ResultTable":
    """Return the table, which gets a row as each result arrives."""
    from collbench.cli._jitter_table import heading, row
    from collbench.cli.progress import ResultTable
    from collbench.units import format_size

    def title(result: "Result") -> str:
        return f"{result.case.title}, {format_size(result.case.nbytes)}"

    return ResultTable(title, heading, row, len(session.sweep.implementations))


def _close(session: "Session", formats: tuple[str, ...]) -> None:
    """Who was late, and where everything is."""
    from collbench.cli._jitter_table import LEGEND, sections
    from collbench.cli.running import say_where

    click.echo(f"\n{LEGEND}", err=True)
    for line in sections(session.results):
        click.echo(line)
    say_where(session, formats)
