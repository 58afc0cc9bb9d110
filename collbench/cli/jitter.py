"""Find stragglers: who is late, how often, what it costs everybody, and what more ranks would pay for the noise.

For example:
  collbench jitter
  collbench jitter --slow-rank 1 --compute 1ms
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli._sweep_options import DEFAULTS, HERE, shared, writes

if TYPE_CHECKING:
    from collbench.measure.session import Session

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
    from collbench.api.wanted import default_folder
    from collbench.cli._carried_out import carried_out
    from collbench.cli._jitter_sweep import make_step_sweep
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    joined = launched()
    platform, sweep = make_step_sweep(DEFAULTS | options, joined)
    session = Session(platform, sweep, joined, options["out"] or default_folder(sweep))
    return carried_out(session, lambda: _show(session), lambda: _close(session, options["formats"]))


def _show(session: "Session") -> None:
    """The table, row by row as results arrive."""
    from collbench.cli._jitter_table import heading, row
    from collbench.cli._live_table import LiveTable
    from collbench.cli._progress import awaited
    from collbench.units import format_size

    table = LiveTable(len(session.sweep.implementations))
    for result in awaited(session.run()):
        if session.leader:
            case = f"{result.case.title}, {format_size(result.case.nbytes)}"
            table.show(case, heading(), [(result, row(result))])
    table.close()


def _close(session: "Session", formats: tuple[str, ...]) -> None:
    """Who was late, and where everything is."""
    from collbench.cli._carried_out import say_where
    from collbench.cli._jitter_table import LEGEND, sections

    click.echo(f"\n{LEGEND}", err=True)
    for line in sections(session.results):
        click.echo(line)
    say_where(session, formats)
