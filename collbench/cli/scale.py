"""Measure how a training step scales on 1, 2, 4, ... ranks: speed-up, efficiency, and what would help.

For example:
  collbench scale --ranks 1,2
  collbench scale --on dgx-h100 --ranks 8..4096 --compute 50ms --gradients 4G
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli._sweep_options import ANYWHERE, MATRIX, NOISE, SLOW, USUAL, shared, writes

if TYPE_CHECKING:
    from collbench.measure.session import Session
    from collbench.results import Result

_OPTIONS = [
    ANYWHERE,
    click.Option(
        ["-g", "--ranks"],
        metavar="N,N|N..N",
        help="Numbers of ranks; FIRST..LAST doubles. Default: 1,2; on a system 1 to all GPUs of 512 nodes.",
    ),
    click.Option(
        ["--mode"], type=click.Choice(["weak", "strong", "both"]), default="weak", help="What stays the same."
    ),
    USUAL,
    click.Option(
        ["--compute"], metavar="TIME|FLOP", help="Of one rank in a step: 10ms, 2GFLOP; default 10ms, or 100ms."
    ),
    click.Option(["--gradients"], metavar="SIZE", help="Bytes to all-reduce in a step; default 4M, predicted 1G."),
    MATRIX,
    SLOW,
    click.Option(["--threshold"], type=float, default=75.0, help="Per cent of efficiency from which on it is healthy."),
    NOISE,
    *shared("datatype", "timeout", "spin", "bind", budget=2.0),
    *writes("run file and plot"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Measure how a training step scales on 1, 2, 4, ... ranks: speed-up, efficiency, and what would help."""
    from collbench.cli._carried_out import carried_out
    from collbench.cli._scaling import make_session

    session = make_session(options)
    threshold = options["threshold"] / 100
    return carried_out(session, lambda: _show(session), lambda: _close(session, threshold, options["formats"]))


def _show(session: "Session") -> None:
    """The table, row by row as results arrive."""
    from collbench.analysis.scaling.points import curves
    from collbench.cli._live_table import LiveTable
    from collbench.cli._progress import awaited
    from collbench.cli._step_table import heading, scaling_row

    table = LiveTable()
    for result in awaited(session.run()):
        places = ((curve, point) for curve in curves(session.results) for point in curve.more if point.row is result)
        curve, point = next(places, (None, None))
        table.show(_title(result), heading(), [(result, scaling_row(result, curve, point))])


def _title(result: "Result") -> str:
    """What is carried out, above its rows."""
    from collbench.measure.scaled import MODES
    from collbench.units import format_size

    case = result.case
    assert case.step
    mode = case.step.mode
    return f"{mode} scaling ({MODES[mode]}); {format_size(case.nbytes)} of {case.dtype.name} all-reduced every step"


def _close(session: "Session", threshold: float, formats: tuple[str, ...]) -> None:
    """The verdicts, what the columns mean, and where everything is."""
    from collbench.analysis.scaling.points import curves
    from collbench.analysis.scaling.verdict import lines
    from collbench.cli._carried_out import say_where
    from collbench.cli._step_table import LEGEND, PREDICTED

    for curve in curves(session.results):
        click.echo()
        for line in lines(curve, threshold):
            click.echo(line)
    click.echo(f"\n{PREDICTED if session.modelled else LEGEND}", err=True)
    say_where(session, formats)
