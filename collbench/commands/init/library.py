"""`collbench.init`: measure how long a communicator takes to start."""

import socket
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated

from collbench.algorithms import libraries
from collbench.cases import Sweep
from collbench.commands.init.runs import FreshRanks
from collbench.commands.init.work import Init
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.requests import words
from collbench.requests.declared import TIME, Opt, Request, takes
from collbench.requests.sessions import run_to_end
from collbench.requests.sweeps import MOST_STARTS, Launched, SweepRequest, measured_sweep, new_folder
from collbench.results import Result
from collbench.runfile.store import Run
from collbench.units import parse_numbers

_MOST_COUNTS = 64  # numbers of ranks in one run
_NBYTES = 4  # of the first collective: one element


@dataclass(frozen=True)
class InitRequest(Request):
    """How many ranks start a communicator, where, and how often."""

    ranks: Annotated[
        int | str | None,
        Opt("-g --ranks", "Numbers of ranks; FIRST..LAST doubles.", "1, 2, 4, ... all GPUs; 1,2 on a CPU", "N,N|N..N"),
    ] = None
    _: KW_ONLY
    on: words.Here = "auto"
    starts: Annotated[
        int | None,
        Opt(
            "--starts",
            "Start the ranks N times, for as many first communicators.",
            "3 where that is quick, else 1",
            metavar="N",
            least=1,
            most=MOST_STARTS,
        ),
    ] = None
    budget: Annotated[
        words.Time, Opt("--budget", "Time for a number of ranks, all starts together.", unit=TIME, most=words.LONGEST)
    ] = "3s"
    timeout: words.Timeout = "2min"
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every result as it arrives.")] = None

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of ranks, ascending; none where they are not given."""
        if self.ranks is None:
            return ()
        counts = parse_numbers(str(self.ranks))
        if not 1 <= len(counts) <= _MOST_COUNTS or counts[0] < 1:
            raise UsageError(
                f"--ranks {self.ranks} is not possible; give up to {_MOST_COUNTS} numbers from 1 on, such as 1,2,4 or 1..8"
            )
        return tuple(counts)

    def sweep(self, ranks: int | None) -> SweepRequest:
        """Return the sweep whose one case is the first collective of so many ranks."""
        return SweepRequest(
            on=self.on,
            ranks=ranks,
            impl="library",
            minbytes=_NBYTES,
            maxbytes=_NBYTES,
            starts=self.starts,
            budget=self.budget,
            timeout=self.timeout,
            cudagraph=False,  # for which NCCL would start with settings of ours
            out=self.out,
        )


@takes(InitRequest)
def init(request: InitRequest) -> Run:
    """Measure how long a communicator takes to start, by number of ranks, as `collbench init` does.

    Returns:
        The run, with a result for every number of ranks: `first` has the phases of the first communicator of each
        start in seconds, `again` those of communicators that the same processes made afterwards.

    Raises:
        UsageError: Something does not exist or cannot be.
        PlatformError: The hardware cannot do it.
        StorageError: The run can no longer be written.

    """
    return run_to_end(init_session(request, launched()), request.each)


def init_session(request: InitRequest, joined: Launched, stored: bool = False) -> Session:
    """Return the session of a request, with the ranks of an outside launcher if there are any.

    With *stored* the run goes to the usual folder where the request names none.
    """
    counts = request.counts
    if joined and counts not in ((), (joined[1],)):
        raise UsageError(f"--ranks {request.ranks} although the launcher started {joined[1]}; leave --ranks out")
    wanted = request.sweep(max(counts, default=None))
    platform, sweep = measured_sweep(wanted, joined)
    name = next(name for name in libraries() if name in sweep.implementations)
    sweep = replace(sweep, implementations=(name,), works=(Init(),))
    folder: Path | None = wanted.folder or (new_folder(["init"], socket.gethostname()) if stored else None)
    if joined:
        return Session(platform, sweep, joined, folder)
    counts = counts or tuple(sorted({*parse_numbers(f"1..{sweep.ranks}"), sweep.ranks}))
    sweeps: list[Sweep] = [replace(sweep, ranks=ranks) for ranks in counts]
    return Session(FreshRanks(platform, sweeps, folder), sweep, None, folder)
