"""`collbench.init`: ranks for every number of them and every start, since a library starts once in a process."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated

from collbench.algorithms import libraries
from collbench.cases import USUAL_STARTS
from collbench.commands.init.rows import Init
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.interleave import ROUNDS, Arm, Interleaving
from collbench.measure.session import Session
from collbench.measure.supervisor import Supervisor
from collbench.platforms import find_platform
from collbench.requests import words
from collbench.requests.declared import TIME, Opt, Request, takes
from collbench.requests.sessions import run_to_end
from collbench.requests.sweeps import SweepRequest, measured_sweep
from collbench.results import Result
from collbench.runfile.store import Run
from collbench.units import counted, parse_numbers


@dataclass(frozen=True)
class InitRequest(Request):
    """How many ranks make communicators, where, and how often."""

    ranks: Annotated[
        int | str | None,
        Opt("-g --ranks", "Numbers of ranks; FIRST..LAST doubles.", "1, 2, 4, ... all GPUs; 1,2 on a CPU", "N,N|N..N"),
    ] = None
    _: KW_ONLY
    on: words.Here = "auto"
    starts: Annotated[
        int | None,
        Opt("--starts", "Start the ranks N times.", "3 on a CPU, 1 on GPUs", "N", least=1, most=ROUNDS),
    ] = None
    budget: Annotated[words.Time, Opt("--budget", "Time for each start.", unit=TIME, most=words.LONGEST)] = "1s"
    timeout: words.Timeout = "2min"
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every result as it arrives.")] = None


@takes(InitRequest)
def init(request: InitRequest) -> Run:
    """Measure how long a communicator takes to start, by number of ranks, as `collbench init` does.

    Returns:
        The run, with a result for every number of ranks: `first` has the seconds of each phase of the first
        communicator of each start, `again` those of communicators that the same processes made afterwards.

    Raises:
        UsageError: Something does not exist or cannot be.
        PlatformError: The hardware cannot do it.
        StorageError: The run can no longer be written.

    >>> import collbench
    >>> run = collbench.init(2, on="cpu", starts=1, budget="50ms")
    >>> list(run.results[0].first[0])
    ['communicator', 'first_collective', 'destroy']

    """
    return run_to_end(init_session(request, Path(request.out) if request.out else None), request.each)


def init_session(request: InitRequest, folder: Path | None) -> Session:
    """Return the session of a request, with the ranks of an outside launcher if there are any."""
    counts, joined = parse_numbers(str(request.ranks)), launched()
    if request.ranks is not None and (0 in counts or not counts or (joined and len(counts) > 1)):
        raise UsageError(
            f"--ranks {request.ranks} is not possible; give numbers from 1 on, such as 1,2,4 or 1..8, or leave it out "
            "under a launcher"
        )

    # One element; without graphs, for which NCCL would start with settings of ours.
    request_of_all = SweepRequest(
        on=request.on, ranks=max(counts, default=None), impl="library", minbytes=4, maxbytes=4, cudagraph=False,
        starts=request.starts, budget=request.budget, timeout=request.timeout,
    )  # fmt: skip
    platform, sweep = measured_sweep(request_of_all, joined)
    name = next(name for name in libraries() if name in sweep.implementations)
    starts = sweep.starts or (USUAL_STARTS if find_platform(platform).process_per_rank else 1)
    sampling = replace(sweep.sampling, iters=starts)  # a round is a start
    sweep = replace(sweep, implementations=(name,), works=(Init(),), sampling=sampling)
    if joined:
        return Session(platform, sweep, joined, folder)
    arms = []
    for count in counts or sorted({*parse_numbers(f"1..{sweep.ranks}"), sweep.ranks}):
        part = replace(sweep, ranks=count)
        fresh = [Supervisor(platform, part, folder=folder) for _ in range(starts)]
        arms.append(Arm(fresh, part, counted(count, "rank")))
    return Session(Interleaving(platform, arms, first=-1), sweep, None, folder)
