"""Compare styles of synchronisation on a training job: ring, parameter server, groups, local SGD, asynchronous.

For example:
  collbench styles
  collbench styles --style ring,asynchronous --slow-rank 1
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli._sweep_options import DEFAULTS, HERE, shared, writes

if TYPE_CHECKING:
    from collbench.measure.session import Session

_OPTIONS = [
    click.Option(["--style"], default="all", metavar="NAME[,NAME]|all", help="Styles to compare."),
    HERE,
    *shared("ranks"),
    click.Option(
        ["--slow-rank"], multiple=True, metavar="R[:FACTOR]", help="Rank that computes FACTOR times as much; 4."
    ),
    click.Option(["--seeds"], type=int, default=8, help="Runs of every style, each from other first weights."),
    click.Option(["--steps"], type=int, default=120, help="Steps of a rank, if all make as many."),
    click.Option(["--every"], type=int, default=8, metavar="K", help="local-sgd: steps between two averages."),
    click.Option(
        ["--staleness"],
        type=int,
        default=256,
        metavar="S",
        help="asynchronous: steps that a rank may be ahead of the slowest; 0: synchronous.",
    ),
    click.Option(["--group"], type=int, default=2, metavar="G", help="hierarchical: ranks of a group."),
    click.Option(["--rate"], type=float, default=0.4, help="Learning rate, for the mean of all ranks' gradients."),
    click.Option(["--target"], type=float, help="Loss to race to; default: the lowest that all get to."),
    *shared("timeout", "spin", "bind"),
    *writes("run file and picture"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Compare styles of synchronisation on a training job: ring, parameter server, groups, local SGD, asynchronous.

    A small network is trained on every rank; `--slow-rank 1` makes one compute four times as much.
    """
    from collbench.api.wanted import new_folder
    from collbench.cli._carried_out import carried_out
    from collbench.cli._styles_options import here, make_styles
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    joined = launched()
    platform, sweep = make_styles(DEFAULTS | options, joined)
    session = Session(platform, sweep, joined, options["out"] or new_folder(["styles"], here()))
    return carried_out(session, lambda: _show(session), lambda: _close(session, options["formats"]))


def _show(session: "Session") -> None:
    """The table of runs, row by row as they arrive."""
    from collbench.cli._live_table import LiveTable
    from collbench.cli._progress import awaited
    from collbench.cli._styles_table import heading, row

    table = LiveTable(len(session.sweep.jobs) * len(session.sweep.implementations))
    for result in awaited(session.run()):
        if session.leader:
            table.show(result.case.title, heading(), [(result, row(result))])
    table.close()


def _close(session: "Session", formats: tuple[str, ...]) -> None:
    """Who was first, what the columns mean, and where everything is."""
    from collbench.analysis.race import race
    from collbench.analysis.standings import verdict
    from collbench.cli._carried_out import say_where
    from collbench.cli._styles_table import LEGEND, overall

    click.echo(f"\n{LEGEND}", err=True)
    if told := race(session.results):
        click.echo("")
        for line in (*overall(told), "", *verdict(told)):
            click.echo(line)
    say_where(session, formats)
