"""`collbench.scan`: who of many members is slow, by ranks, by a described system, or by a table."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated

from collbench.algorithms import libraries
from collbench.analysis.sequential import usual_slower
from collbench.commands.scan.rows import Scan
from collbench.commands.scan.tables import judge_file
from collbench.commands.scan.verdict import ScanVerdict, judge, refuse_few
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.platforms import on_auto
from collbench.requests import words
from collbench.requests.declared import SHARE, TIME, Opt, Request, declared, takes
from collbench.requests.sessions import resuming_session, run_to_end
from collbench.requests.sweeps import SweepRequest, find_system, measured_sweep, split_names
from collbench.results import Result
from collbench.topology import files
from collbench.units import format_list, parse_share, parse_size

SLOW_FACTOR = 2.0  # of a slow rank, if none is given
_USUAL_RANKS = 4  # on a CPU: two cannot be told apart
_FAULTS = "Faults of a described system: speeds of node, leaf, link, send, receive, or with a share of the rounds."
_SLOW_RANK = f"Make a rank FACTOR times as slow, {SLOW_FACTOR:g} if not given; several times for several ranks."
_Inject = Opt("--inject", _FAULTS, metavar="node=37:0.9,leaf=3:0.7,link=1-2:0.5,flaky=99:0.6@0.2")
_Where = Opt(
    "--on",
    "Where the ranks live, or a described system to try a scan on.",
    metavar=f"{'|'.join(words.places())}|SYSTEM|FILE.toml",
    complete=files.names,
)
_Slower = Opt("--slower", "How much slower than the others is too slow.", "10%, on a CPU 20%", unit=SHARE, above=0)
_Budget = Opt("--budget", "No new round begins that would end after this time.", unit=TIME, above=0)
_Resume = Opt("--resume", "Go on with a scan that was interrupted, into its run file.", metavar="RUN")


@dataclass(frozen=True)
class ScanRequest(Request):
    """The members of a scan, its messages, and its time."""

    on: Annotated[str, _Where] = "auto"
    _: KW_ONLY
    file: Annotated[Path | str | None, Opt("", "A run of a scan or of pairs, or a table, to judge instead.")] = None
    ranks: Annotated[
        int | None, Opt("-g --ranks --ngpus", "Number of ranks.", "every GPU, and 4 on a CPU", "N", least=1)
    ] = None
    nodes: words.Nodes = None
    inject: Annotated[Sequence[str], _Inject] = ()
    seed: Annotated[int, Opt("--seed", "Draws the noise of a described system.", metavar="N", least=0)] = 0
    size: Annotated[words.Names, Opt("--size", "Bytes of messages, of rounds in turn.", metavar="SIZE[,SIZE]")] = (
        "8K,1M"
    )
    slower: Annotated[float | str | None, _Slower] = None
    slow_rank: Annotated[Sequence[str], Opt("--slow-rank", _SLOW_RANK, metavar="R[:FACTOR]")] = ()
    budget: Annotated[words.Time, _Budget] = "60s"
    resume: Annotated[Path | str | None, _Resume] = None
    timeout: words.Timeout = "60s"
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every row as it arrives.")] = None

    @property
    def measured(self) -> bool:
        """Whether ranks are measured, and no described system is tried."""
        return self.on in words.places()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of messages; UsageError for sizes that no message has."""
        sizes = tuple(dict.fromkeys(parse_size(name, "--size") for name in split_names(self.size)))
        if not sizes or not 1 <= min(sizes) <= max(sizes) <= 2**31:
            raise UsageError(f"--size {self.size} is impossible; give sizes from 1 to 2G, such as 8K,1M")
        return sizes

    @property
    def usual_ranks(self) -> int | None:
        """How many ranks are started; None: as many as the launcher has, or as there are GPUs."""
        cpu = self.ranks is None and not launched() and (on_auto() if self.on == "auto" else self.on) == "cpu"
        return _USUAL_RANKS if cpu else self.ranks

    def share(self, platform: str) -> float:
        """Return how much slower is too slow on a platform."""
        return usual_slower(platform) if self.slower is None else parse_share(self.slower, "--slower")

    def refuse_besides(self, allowed: str, why: str) -> None:
        """Raise UsageError that says why for whatever is given besides that option."""
        words = [(name, each) for name, each in declared(ScanRequest).items() if each.opt.names]
        given = {each.opt.name for name, each in words if not each.usual(getattr(self, name))}
        if others := sorted(given - {allowed}):
            raise UsageError(f"{why}; leave {format_list(others)} out")


@takes(ScanRequest)
def scan(request: ScanRequest) -> ScanVerdict:
    """Name the slow rank, link, node or leaf, in rounds of disjoint groups, as `collbench scan` does.

    Returns:
        The verdict: `word`, `faulty` with how much slower each is, `suspects`, `sight`, and what it cost.

    Raises:
        UsageError: Something does not exist or cannot be.
        PlatformError: The hardware cannot do it.
        RunFileError: `file` is no run of a scan and no table.
        StorageError: The run can no longer be written.

    >>> import collbench
    >>> verdict = collbench.scan("dgx-h100", nodes=64, inject=["node=37:0.8"])
    >>> verdict.faulty[0].name
    'node 37'

    """
    if request.file is not None:
        return judge_stored(request)
    return judge(run_to_end(scan_session(request, Path(request.out) if request.out else None), request.each).results)


def judge_stored(request: ScanRequest) -> ScanVerdict:
    """Return the verdict of the file of a request."""
    request.refuse_besides("--slower", f"{request.file} is judged, and nothing measured")
    return judge_file(Path(str(request.file)), None if request.slower is None else request.share(""))


def scan_session(request: ScanRequest, folder: Path | None) -> Session:
    """Return the session of a request: of ranks, with those of an outside launcher if there are any, or of a system."""
    if request.resume is not None:
        return _resumed(request)
    if not request.measured:
        return _tried(request, folder)
    if request.inject:
        raise UsageError("--inject is for described systems; on ranks use --slow-rank, or leave it out")
    joined, sizes = launched(), request.sizes
    exchange = SweepRequest(
        "sendrecv", on=request.on, ranks=request.usual_ranks, nodes=request.nodes, impl="library",
        minbytes=max(sizes), maxbytes=max(sizes), cudagraph=False, starts=None if joined else 1,
        budget=request.budget, timeout=request.timeout,
    )  # fmt: skip
    platform, sweep = measured_sweep(exchange, joined)
    refuse_few(sweep.ranks)
    slow = words.parse_slow(request.slow_rank, sweep.ranks, SLOW_FACTOR)
    name = next(name for name in libraries() if name in sweep.implementations)
    work = Scan(slower=request.share(platform), sizes=sizes, slow=slow)
    return Session(platform, replace(sweep, implementations=(name,), works=(work,), starts=1), joined, folder)


def _resumed(request: ScanRequest) -> Session:
    request.refuse_besides("--resume", "--resume goes on as the run began")
    session = resuming_session(Path(request.resume or ""))
    if not session or not isinstance(session.sweep.works[0], Scan):
        raise UsageError(f"--resume {request.resume} is of no scan; `collbench sweep --resume` goes on with a sweep")
    if session.sweep.works[0].group != 2:
        raise UsageError(f"--resume {request.resume} is of larger groups than pairs, which are measured no more")
    return session


def _tried(request: ScanRequest, folder: Path | None) -> Session:
    from collbench.commands.scan.simulated import Simulated  # the model takes as long as all the rest

    if request.slow_rank or request.ranks or launched():
        raise UsageError(
            f"--on {request.on} is a described system, of which nothing is measured; use --inject instead of "
            "--slow-rank, --nodes instead of --ranks, and no launcher"
        )
    system = find_system(request.on, words.places())
    system = system.of(request.nodes or system.nodes)
    refuse_few(system.nodes)
    work = Scan(slower=request.share("gpu"), sizes=request.sizes)
    simulated = Simulated(system, work, request.inject, request.seed)
    return Session(simulated, simulated.sweep, None, folder, modelled=True)
