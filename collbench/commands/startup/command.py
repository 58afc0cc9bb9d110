"""Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

For example:
  collbench startup
  collbench startup --ranks 1,2,4 --starts 6
  collbench startup --on cpu --ranks 2 --json -
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import click

from collbench.algorithms import libraries
from collbench.cases import ROUNDS, USUAL_STARTS
from collbench.cli.options import json_option, made, options_of, try_output
from collbench.cli.running import measure_and_answer, say_where
from collbench.commands.startup.rows import PHASES, Init, InitTimes, Life
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.platforms import find_platform
from collbench.present.columns import Column
from collbench.present.terminal import lines
from collbench.requests import words
from collbench.requests.declared import TIME, Opt, Request, takes
from collbench.requests.sessions import run_to_end, session_by_ranks
from collbench.requests.sweeps import SweepRequest, measured_sweep, new_folder
from collbench.results import Result
from collbench.runfile.store import Run
from collbench.stats import Estimate
from collbench.units import format_range, format_seconds, parse_numbers

_LEGEND = (
    "\nfirst: the first communicator of a process; again: later ones of it; medians of the slowest rank\n"
    "95 %: interval of the sum's median, for six communicators or more"
    "; on a CPU one rank shows mostly the overhead of measuring"
)


@dataclass(frozen=True)
class StartupRequest(Request):
    """Numbers of ranks, platform and repetitions for starting communicators."""

    ranks: Annotated[
        int | str | None,
        Opt("-g --ranks", "Numbers of ranks; FIRST..LAST doubles.", "1, 2, 4, ... all GPUs; 1,2 on a CPU", "N,N|N..N"),
    ] = None
    _: KW_ONLY
    on: words.Here = "auto"
    starts: Annotated[
        int | None, Opt("--starts", "Start the ranks N times.", "3 on a CPU, 1 on GPUs", "N", least=1, most=ROUNDS)
    ] = None
    budget: Annotated[words.Time, Opt("--budget", "Time for each start.", unit=TIME, most=words.LONGEST)] = "1s"
    timeout: words.Timeout = "2min"
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every result as it arrives.")] = None


@click.command(params=[*options_of(StartupRequest), json_option("the rows of the run file")])
def command(as_json: Path | None, out: Path | None, **options: Any) -> int:
    """Measure how long a communicator takes to start, by number of ranks: id, communicator, first collective, destroy.

    The first communicator of a process has its own line, since its library loads and connects then.  On GPUs it is
    NCCL's, and CUDA has already started.  On a CPU it is a duplicate of MPI's (MPI_Comm_dup) without an id, made after
    MPI_Init and after collbench's own duplicate.
    """
    try_output(as_json, "--json FILE", out)
    session = startup_session(made(StartupRequest, options), out or new_folder(["startup"], socket.gethostname()))
    return measure_and_answer(session, lambda: _show(session), as_json)


class Line(NamedTuple):
    """A line of the table; `lives` is empty if the row has no times."""

    row: Result
    made: str
    lives: Sequence[Life]

    @property
    def sum(self) -> Estimate:
        """Seconds of all phases together."""
        return Estimate.of_median([sum(life.values()) for life in self.lives])


def lines_of(results: Sequence[Result]) -> Iterator[Line]:
    """Yield the lines of each row: first communicators and later ones, or a line without times."""
    for row in results:
        if isinstance(row, InitTimes) and row.right:
            yield from (Line(row, "first", row.first), Line(row, "again", row.again))
        else:
            yield Line(row, "", ())


def _phase(phase: str) -> Column[Line]:
    def seconds(line: Line) -> float | None:
        return median(life[phase] for life in line.lives) if phase in line.lives[0] else None

    return Column(phase.replace("_", " "), seconds, format_seconds, form=">", importance=20)


COLUMNS = (
    Column[Line]("ranks", lambda line: line.row.case.ranks, form=">"),
    Column[Line]("made", lambda line: line.made),
    *map(_phase, PHASES),
    Column[Line]("sum", lambda line: line.sum.value, format_seconds, form=">"),
    Column[Line]("95 %", lambda line: format_range(*line.sum.interval, format_seconds), importance=5),
    Column[Line]("number", lambda line: len(line.lives), form=">", importance=5),
    Column[Line]("check", lambda line: line.row.check),
)


def _show(session: Session) -> None:
    texts = lines(COLUMNS, lines_of(session.results), lambda line: "" if line.lives else line.row.describe(), names=1)
    notes = dict.fromkeys(str(row.note) for row in session.results)
    texts += [f"note: {note}" for note in filter(None, notes)]
    click.echo("\n".join(texts))
    click.echo(_LEGEND, err=True)
    say_where(session, plot=False)


@takes(StartupRequest)
def startup(request: StartupRequest) -> Run:
    """Measure how long a communicator takes to start, by number of ranks, as `collbench startup` does.

    Returns:
        The run, with a result for every number of ranks.  `first` has the seconds of each phase for the first
        communicator of each start, `again` for later communicators of the same processes.

    >>> import collbench
    >>> run = collbench.startup(2, on="cpu", starts=1, budget="50ms")
    >>> list(run.results[0].first[0])
    ['communicator', 'first_collective', 'destroy']

    """
    return run_to_end(startup_session(request, Path(request.out) if request.out else None), request.each)


init = startup  # its earlier name


def startup_session(request: StartupRequest, folder: Path | None) -> Session:
    """Return the session of a request, with the ranks of an outside launcher if there is one."""
    counts, joined = parse_numbers(str(request.ranks)), launched()
    if request.ranks is not None and (0 in counts or not counts or (joined and len(counts) > 1)):
        raise UsageError(
            f"--ranks {request.ranks} is not possible; give numbers of at least 1, like 1,2,4 or 1..8, or leave it out "
            "under a launcher"
        )

    # One element, and no graphs, for which collbench would change NCCL's settings.
    request_of_all = SweepRequest(
        on=request.on, ranks=max(counts, default=None), impl="library", minbytes=4, maxbytes=4, cudagraph=False,
        starts=request.starts, budget=request.budget, timeout=request.timeout,
    )  # fmt: skip
    platform, sweep = measured_sweep(request_of_all, joined)
    name = next(name for name in libraries() if name in sweep.implementations)
    starts = sweep.starts or (USUAL_STARTS if find_platform(platform).process_per_rank else 1)
    sweep = replace(sweep, implementations=(name,), works=(Init(),), starts=starts)
    numbers = counts or sorted({*parse_numbers(f"1..{sweep.ranks}"), sweep.ranks})
    return session_by_ranks(platform, sweep, numbers, joined, folder)
