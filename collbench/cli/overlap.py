"""Measure what overlapping communication with computing hides: exposed communication, the best size of bucket.

For example:
  collbench overlap
  collbench overlap --on dgx-h100 --compute 20ms --gradients 1G
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli.options import ANYWHERE, MATRIX, NOISE, SLOW, USUAL, shared, writes

if TYPE_CHECKING:
    from collbench.cli.progress import ResultTable
    from collbench.measure.session import Session
    from collbench.results import Result

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
    from collbench.cli._overlap import make_session
    from collbench.cli.running import finish, run_session

    session = make_session(options)
    if interrupted := run_session(session, _table(session)):
        return interrupted
    _close(session, options["formats"])
    return finish([session])


def _table(session: "Session") -> "ResultTable":
    """Return the table, which gets a row as each result arrives."""
    from collbench.analysis.overlap import overlaps
    from collbench.cli._overlap_table import heading, overlap_row
    from collbench.cli.progress import ResultTable

    def row(result: "Result") -> str:
        found = next((one for one in overlaps(session.results) if one.row is result), None)
        return overlap_row(result, found)

    return ResultTable(_title, heading, row)


def _title(result: "Result") -> str:
    from collbench.units import format_size

    case = result.case
    assert case.step
    work = case.step.words[0]
    return f"{work}; {format_size(case.nbytes)} of {case.dtype.name} all-reduced, {case.ranks} ranks"


def _close(session: "Session", formats: tuple[str, ...]) -> None:
    """The verdicts, what the columns mean, and where everything is."""
    from collbench.analysis.overlap import verdicts
    from collbench.cli._overlap_table import LEGEND, PREDICTED
    from collbench.cli.running import say_where
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
