"""Show where the time of an operation goes: the parts of each implementation, a timeline, a trace for Perfetto.

For example:
  collbench explain -b 8
  collbench explain --impl ring-flags,one-shot-ll -b 8 -e 2M
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import click

from collbench.algorithms import find
from collbench.analysis.crossover import handicaps
from collbench.cli.options import RENDEZVOUS_FOLDER, made, options_of
from collbench.cli.progress import ResultTable
from collbench.cli.results_table import EXPLAIN, EXPLAIN_LEGEND
from collbench.cli.running import finish, run_session, say_where
from collbench.commands.explain import perfetto
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.platforms.cost import of_product
from collbench.present.terminal import left_out_in_words
from collbench.requests.declared import SIZE, Opt
from collbench.requests.sweeps import SweepRequest, default_folder, measured_sweep
from collbench.requests.words import Factor, Here, Size, Smallest
from collbench.results import Explanation
from collbench.units import format_size


@dataclass(frozen=True)
class ExplainRequest(SweepRequest):
    """What to take apart, and where."""

    on: Here = "auto"
    minbytes: Smallest = "64K"
    maxbytes: Annotated[Size | None, Opt("-e --maxbytes", "Largest message.", "same as --minbytes", unit=SIZE)] = None
    stepfactor: Factor = 16.0


_WORDS = "op impl on ranks minbytes maxbytes stepfactor datatype in_place cudagraph timeout spin bind out"


@click.command(context_settings={"show_default": True}, params=[*options_of(ExplainRequest, _WORDS), RENDEZVOUS_FOLDER])
def command(**options: Any) -> int:
    """Show where the time of an operation goes: the parts of each implementation, a timeline, a trace for Perfetto.

    Every kernel runs as it is and again with a log of each hop: waiting, moving, adding, publishing.
    """
    explained = session(options)
    table = ResultTable(
        lambda result: f"{result.case.title}, {format_size(result.case.nbytes)}",
        EXPLAIN,
    )
    if interrupted := run_session(explained, table):
        return interrupted
    if explained.leader:
        click.echo(
            "\n".join(["", *filter(None, [left_out_in_words(EXPLAIN)]), EXPLAIN_LEGEND, *handicaps(explained.results)]),
            err=True,
        )
        folder = say_where(explained)
        rows = [result for result in explained.results if isinstance(result, Explanation)]
        if bounds := ", ".join(_bounds(explained, rows)):
            click.echo(f"of these times links, memory and cache alone take: {bounds}")
        if any(result.tracks for result in rows):
            perfetto.write(rows, folder / "trace.json")
            click.echo(f"trace: {folder / 'trace.json'} (open it at ui.perfetto.dev)")
    return finish([explained])


def _bounds(explained: Session, rows: list[Explanation]) -> Iterator[str]:
    """Yield the share of each row's time that is its own bound, where data sheets say something of the GPUs."""
    topology = explained.header.topology
    if not topology.gpus:
        return
    hardware = of_product(topology.gpus[0].name, topology.ranks, len(topology.gpus))
    for row in rows:
        implementation = find(row.implementation)
        if implementation and implementation.cost:
            least = hardware.floor(implementation.cost(row.case), row.case.nbytes)
            yield f"{row.implementation} {least / row.seconds:.0%} at {format_size(row.case.nbytes)}"


def session(options: Mapping[str, Any]) -> Session:
    """Return the session of `collbench explain`, by its options."""
    joined = launched()
    request = made(ExplainRequest, options, maxbytes=options["maxbytes"] or options["minbytes"])
    platform, sweep = measured_sweep(request, joined)
    sweep = replace(sweep, sampling=replace(sweep.sampling, traced=True))
    return Session(platform, sweep, joined, request.folder or default_folder(sweep))
