"""Measure what overlapping communication with computing hides: exposed communication, the best size of bucket.

For example:
  collbench overlap
  collbench overlap --on dgx-h100 --compute 20ms --gradients 1G
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli._sweep_options import ANYWHERE, MATRIX, NOISE, SLOW, USUAL, shared, writes

if TYPE_CHECKING:
    from collbench.measure.session import Session

_OPTIONS = [
    ANYWHERE,
    *shared("ranks"),
    USUAL,
    click.Option(["--compute"], metavar="TIME|FLOP", help="Of a rank in a step: 10ms, 2GFLOP; default 10ms, or 100ms."),
    click.Option(["--gradients"], metavar="SIZE", help="Bytes to all-reduce in a step; default 8M, predicted 1G."),
    click.Option(["--buckets"], metavar="SIZE[,SIZE]", help="Sizes to hand over at once; default: a 16th, a 4th, all."),
    click.Option(
        ["--ctas"], metavar="N[,N]", help="On GPUs: CTAs for NCCL to use at most, besides as many as it likes."
    ),
    MATRIX,
    SLOW,
    NOISE,
    *shared("datatype", "timeout", "spin", "bind", budget=10.0),
    *writes("run file, pictures and trace"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Measure what overlapping communication with computing hides: exposed communication, the best size of bucket."""
    from collbench.cli._carried_out import carried_out
    from collbench.cli._overlap import make_session

    session = make_session(options)
    return carried_out(session, lambda: _show(session), lambda: _close(session, options["formats"]))


def _show(session: "Session") -> None:
    """The table, row by row as results arrive."""
    from collbench.analysis.overlap import overlaps
    from collbench.cli._live_table import LiveTable
    from collbench.cli._overlap_table import heading, overlap_row
    from collbench.cli._progress import awaited
    from collbench.units import format_size

    table = LiveTable()
    for result in awaited(session.run()):
        found = next((one for one in overlaps(session.results) if one.row is result), None)
        case = result.case
        assert case.step
        work = case.step.words[0]
        title = f"{work}; {format_size(case.nbytes)} of {case.dtype.name} all-reduced, {case.ranks} ranks"
        table.show(title, heading(), [(result, overlap_row(result, found))])


def _close(session: "Session", formats: tuple[str, ...]) -> None:
    """The verdicts, what the columns mean, and where everything is."""
    from collbench.analysis.overlap import verdicts
    from collbench.cli._carried_out import say_where
    from collbench.cli._overlap_table import LEGEND, PREDICTED
    from collbench.plots import perfetto
    from collbench.results import StepTimes

    click.echo()
    for line in verdicts(session.results):
        click.echo(line)
    click.echo(f"\n{PREDICTED if session.modelled else LEGEND}", err=True)
    folder = say_where(session, formats)
    looked_at = [result for result in session.results if isinstance(result, StepTimes) and result.activities]
    if looked_at:
        perfetto.write_steps(looked_at, folder / "trace.json")
        click.echo(f"trace: {folder / 'trace.json'} (open it at ui.perfetto.dev)")
