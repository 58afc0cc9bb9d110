"""Show where the time of an operation goes: the parts of each implementation, a timeline, a trace for Perfetto.

For example:
  collbench explain -b 8
  collbench explain --impl ring-flags,one-shot-ll -b 8 -e 2M
"""

from dataclasses import replace
from typing import Any

import click

from collbench.api.requests import default_folder, measured_sweep
from collbench.cli.options import HERE, shared, sweep_request, writes
from collbench.cli.progress import ResultTable
from collbench.cli.results_table import EXPLAIN_LEGEND, explain_heading, row
from collbench.cli.running import finish, run_session, say_where
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.results import Explanation, Result
from collbench.units import format_size

_OPTIONS = [
    *shared("op", impl="all"),
    HERE,
    *shared("ranks", minbytes="64K"),
    click.Option(["-e", "--maxbytes"], metavar="SIZE", help="Largest message; default: the smallest, so one."),
    *shared(
        "datatype", "redop", "root", "in_place", "cudagraph", "no_graph", "timeout", "spin", "bind", stepfactor=16.0
    ),
    *writes("run file, pictures and trace"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Show where the time of an operation goes: the parts of each implementation, a timeline, a trace for Perfetto.

    Every kernel runs as it is and again with a log of each hop: waiting, moving, adding, publishing.
    """
    joined = launched()
    request = sweep_request(options, maxbytes=options["maxbytes"] or options["minbytes"])
    platform, sweep = measured_sweep(request, joined)
    sweep = replace(sweep, sampling=replace(sweep.sampling, traced=True))
    session = Session(platform, sweep, joined, options["out"] or default_folder(sweep))
    table = ResultTable(_title, explain_heading, lambda result: row(result, None))
    if interrupted := run_session(session, table):
        return interrupted
    if session.leader:
        _print_end(session, options["formats"])
    return finish([session])


def _title(result: Result) -> str:
    return f"{result.case.title}, {format_size(result.case.nbytes)}"


def _print_end(session: Session, formats: tuple[str, ...]) -> None:
    """Print what the columns mean, and where everything is."""
    from collbench.plots import perfetto

    click.echo(f"\n{EXPLAIN_LEGEND}", err=True)
    folder = say_where(session, formats)
    explained = [result for result in session.results if isinstance(result, Explanation)]
    if any(result.tracks for result in explained):
        perfetto.write(explained, folder / "trace.json")
        click.echo(f"trace: {folder / 'trace.json'} (open it at ui.perfetto.dev)")
