"""Show where the time of an operation goes: the parts of each implementation, a timeline, a trace for Perfetto.

For example:
  collbench explain -b 8
  collbench explain --impl ring-flags,one-shot-ll -b 8 -e 2M
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import click

from collbench.analysis.crossover import buffers_in_words, handicaps
from collbench.cases import Sweep
from collbench.cli.options import made, options_of
from collbench.cli.progress import ResultTable
from collbench.cli.results_table import EXPLAIN, EXPLAIN_LEGEND
from collbench.cli.running import finish, run_session, say_where
from collbench.errors import StorageError, write_file
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.present.terminal import left_out_in_words
from collbench.requests.declared import SIZE, Opt, takes
from collbench.requests.sessions import run_to_end
from collbench.requests.sweeps import SweepRequest, default_folder, measured_sweep
from collbench.requests.words import Factor, Here, Size, Smallest
from collbench.results import Explanation
from collbench.runfile.store import Run
from collbench.units import format_size


@dataclass(frozen=True)
class ExplainRequest(SweepRequest):
    """The operations to explain, and their platform."""

    on: Here = "auto"
    minbytes: Smallest = "64K"
    maxbytes: Annotated[Size | None, Opt("-e --maxbytes", "Largest message.", "same as --minbytes", unit=SIZE)] = None
    stepfactor: Factor = 16.0


_WORDS = "op impl on ranks minbytes maxbytes stepfactor datatype in_place cudagraph out"


@click.command(context_settings={"show_default": True}, params=[*options_of(ExplainRequest, _WORDS)])
def command(**options: Any) -> int:
    """Show where the time of an operation goes: the parts of each implementation, a timeline, a trace for Perfetto.

    Every kernel runs without and with a log of each hop: waiting, moving, adding, publishing.
    """
    explained = explain_session(made(ExplainRequest, options), default_folder)
    table = ResultTable(lambda result: f"{result.case.title}, {format_size(result.case.nbytes)}", EXPLAIN)
    if interrupted := run_session(explained, table):
        return interrupted
    if explained.leader:
        limits = [*handicaps(explained.results), *buffers_in_words(explained.results)]
        click.echo("\n".join(["", *filter(None, [left_out_in_words(EXPLAIN)]), EXPLAIN_LEGEND, *limits]), err=True)
        folder = say_where(explained)
        rows = [result for result in explained.results if isinstance(result, Explanation)]
        if any(result.tracks for result in rows):
            write_trace(rows, folder / "trace.json")
            click.echo(f"trace: {folder / 'trace.json'} (open it at ui.perfetto.dev)")
    return finish([explained])


def explain_session(request: ExplainRequest, usual: Callable[[Sweep], Path | None] = lambda sweep: None) -> Session:
    """Return the session of a request; *usual* returns the default folder of the run, or None to store nothing."""
    joined = launched()
    platform, sweep = measured_sweep(replace(request, maxbytes=request.maxbytes or request.minbytes), joined)
    sweep = replace(sweep, sampling=replace(sweep.sampling, traced=True))
    return Session(platform, sweep, joined, request.folder or usual(sweep))


@takes(ExplainRequest, f"{_WORDS} each")
def explain(request: ExplainRequest) -> Run:
    """Measure where the time of an operation goes, as `collbench explain` does, without a trace for Perfetto.

    Returns:
        The run: an Explanation for each operation, with `tracks` of waiting, moving, adding and publishing.

    >>> import collbench
    >>> run = collbench.explain(impl="ring-flags", on="cpu", ranks=2, minbytes=64)
    >>> run.results[0].case.nbytes
    64

    """
    return run_to_end(explain_session(request), request.each)


def write_trace(explanations: Sequence[Explanation], path: Path) -> None:
    """Write a trace for Perfetto (ui.perfetto.dev) and chrome://tracing; StorageError if it cannot be written.

    Source: "Trace Event Format", Google, 2016: complete events (ph X) with times in microseconds, and names (ph M) for
    processes and threads.  A process is a rank of an implementation, a thread one of its blocks.
    """
    events: list[dict[str, Any]] = []
    for number, explanation in enumerate(explanations):
        events += _events_of(explanation, 1000 * number)
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
    write_file(path, f"{text}\n", "--out", StorageError)


def _events_of(explanation: Explanation, first_process: int) -> Iterator[dict[str, Any]]:
    case = explanation.case
    operation = f"{explanation.implementation} {case.collective.name} {format_size(case.nbytes)}"
    for rank in sorted({track.rank for track in explanation.tracks}):
        yield _named("process", first_process + rank, 0, f"{operation} rank {rank} {explanation.altered}".rstrip())
    for track in explanation.tracks:
        process = first_process + track.rank
        yield _named("thread", process, track.block, f"block {track.block}")
        for span in track.spans:
            times = {"ts": round((track.start + span.start) * 1e6, 4), "dur": round(span.seconds * 1e6, 4)}
            yield {"ph": "X", "name": span.phase, "cat": "collective", "pid": process, "tid": track.block} | times


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{kind}_name", "pid": process, "tid": thread, "args": {"name": name}}
