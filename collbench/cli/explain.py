"""Show where the time of an operation goes: the parts of each rung, a timeline, a trace for Perfetto.

For example:
  collbench explain -b 8
  collbench explain --impl ring-flags,one-shot-ll -b 8 -e 2M
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli._sweep_options import DEFAULTS, HERE, shared, writes

if TYPE_CHECKING:
    from collbench.measure.session import Session

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
    """Show where the time of an operation goes: the parts of each rung, a timeline, a trace for Perfetto.

    Every kernel runs as it is and again with a log of each hop: waiting, moving, adding, publishing.
    """
    from dataclasses import replace

    from collbench.api.wanted import default_folder, make_sweep
    from collbench.cli._carried_out import carried_out
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    joined = launched()
    options["maxbytes"] = options["maxbytes"] or options["minbytes"]
    platform, sweep = make_sweep(DEFAULTS | options, joined)
    sweep = replace(sweep, sampling=replace(sweep.sampling, traced=True))
    session = Session(platform, sweep, joined, options["out"] or default_folder(sweep))
    return carried_out(session, lambda: _show(session), lambda: _close(session, options["formats"]))


def _show(session: "Session") -> None:
    """The table, row by row as results arrive."""
    from collbench.cli._explain_table import heading
    from collbench.cli._live_table import LiveTable
    from collbench.cli._progress import awaited
    from collbench.cli._table import row
    from collbench.units import format_size

    table = LiveTable()
    for result in awaited(session.run()):
        if session.leader:
            case = f"{result.case.title}, {format_size(result.case.nbytes)}"
            table.show(case, heading(), [(result, row(result, None))])


def _close(session: "Session", formats: tuple[str, ...]) -> None:
    """What the columns mean, and where everything is."""
    from collbench.cli._carried_out import say_where
    from collbench.cli._explain_table import LEGEND
    from collbench.plots import perfetto
    from collbench.results import Explanation

    click.echo(f"\n{LEGEND}", err=True)
    folder = say_where(session, formats)
    explained = [result for result in session.results if isinstance(result, Explanation)]
    if any(result.tracks for result in explained):
        perfetto.write(explained, folder / "trace.json")
        click.echo(f"trace: {folder / 'trace.json'} (open it at ui.perfetto.dev)")
