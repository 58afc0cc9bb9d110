"""`collbench.scan`: scans of ranks, described systems, runs and tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated

from collbench.algorithms import libraries
from collbench.analysis.sequential import usual_slower
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.scan.matrices import matrices
from collbench.commands.scan.rows import ONE_WAY, MemberLevel, Members, PairTimes, Round, Scan
from collbench.commands.scan.verdict import Evidence, ScanVerdict, judge, refuse_few
from collbench.datatypes import DATATYPES, NONE
from collbench.errors import RunFileError, UsageError
from collbench.host.launcher import launched
from collbench.host.sanitize import message, read_lines
from collbench.measure.session import Session
from collbench.platforms import on_auto
from collbench.requests import words
from collbench.requests.declared import SHARE, TIME, Opt, Request, declared, takes
from collbench.requests.sessions import resuming_session, run_to_end
from collbench.requests.sweeps import SweepRequest, find_system, measured_sweep, split_names
from collbench.results import Result
from collbench.runfile.store import NAME, Run, read
from collbench.topology import files
from collbench.units import QUANTITY, format_list, format_size, parse_share, parse_size

SLOW_FACTOR = 2.0  # default factor of --slow-rank
Cells = Mapping[tuple[int, int], float]  # seconds of a message, by sender and receiver
Tables = Mapping[str, tuple[Cells, bool]]  # cells by name, with whether messages went one way
_MOST, _LEAST = 4096, 1e-9  # most members of a table; least GB/s
_USUAL_RANKS = 4  # on a CPU; with two ranks the slow one is not identifiable
_FAULTS = "Faults of a described system: relative speeds of parts, optionally in a share of the rounds."
_SLOW_RANK = f"Slow a rank down by FACTOR, {SLOW_FACTOR:g} by default; repeat for several ranks."
_Inject = Opt("--inject", _FAULTS, metavar="node=37:0.9,leaf=3:0.7,link=1-2:0.5,flaky=99:0.6@0.2")
_Where = Opt(
    "--on",
    "Platform of the ranks, or a described system to simulate.",
    metavar=f"{'|'.join(words.places())}|SYSTEM|FILE.toml",
    complete=files.names,
)
_Ranks = Opt("-g --ranks --ngpus", "Number of ranks.", "every GPU, and 4 on a CPU", "N", least=1)
_Slower = Opt("--slower", "Tolerated slowdown over the other members.", "10%, on a CPU 20%", unit=SHARE, above=0)
_Budget = Opt("--budget", "Time for rounds.", unit=TIME, above=0)
_Resume = Opt("--resume", "Continue an interrupted scan in its run file.", metavar="RUN")


@dataclass(frozen=True)
class ScanRequest(Request):
    """The members of a scan, its messages, and its time."""

    on: Annotated[str, _Where] = "auto"
    _: KW_ONLY
    file: Annotated[Path | str | None, Opt("", "A run of a scan or of pairs, or a table, to judge.")] = None
    ranks: Annotated[int | None, _Ranks] = None
    nodes: words.Nodes = None
    inject: Annotated[Sequence[str], _Inject] = ()
    seed: Annotated[int, Opt("--seed", "Seed of the noise of a described system.", metavar="N", least=0)] = 0
    size: Annotated[words.Names, Opt("--size", "Message sizes, alternating by round.", metavar="SIZE[,SIZE]")] = "8K,1M"
    slower: Annotated[float | str | None, _Slower] = None
    slow_rank: Annotated[Sequence[str], Opt("--slow-rank", _SLOW_RANK, metavar="R[:FACTOR]")] = ()
    budget: Annotated[words.Time, _Budget] = "60s"
    resume: Annotated[Path | str | None, _Resume] = None
    timeout: words.Timeout = "60s"
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every row as it arrives.")] = None

    @property
    def measured(self) -> bool:
        """Whether ranks are measured, rather than a described system simulated."""
        return self.on in words.places()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The message sizes in bytes; UsageError for an impossible size."""
        sizes = tuple(dict.fromkeys(parse_size(name, "--size") for name in split_names(self.size)))
        if not sizes or not 1 <= min(sizes) <= max(sizes) <= 2**31:
            raise UsageError(f"--size {self.size} is impossible; give sizes from 1 to 2G, as in 8K,1M")
        return sizes

    @property
    def usual_ranks(self) -> int | None:
        """The number of ranks to start; None: all ranks of the launcher, or one for each GPU."""
        cpu = self.ranks is None and not launched() and (on_auto() if self.on == "auto" else self.on) == "cpu"
        return _USUAL_RANKS if cpu else self.ranks

    def share(self, platform: str) -> float:
        """Return the tolerated slowdown on a platform, as a share."""
        return usual_slower(platform) if self.slower is None else parse_share(self.slower, "--slower")

    def refuse_besides(self, allowed: str, why: str) -> None:
        """Raise UsageError with the reason `why` if options other than `allowed` are given."""
        options = [(name, each) for name, each in declared(ScanRequest).items() if each.opt.names]
        given = {each.opt.name for name, each in options if not each.usual(getattr(self, name))}
        if others := sorted(given - {allowed}):
            raise UsageError(f"{why}; leave out {format_list(others)}")


@takes(ScanRequest)
def scan(request: ScanRequest) -> ScanVerdict:
    """Find the slow rank, link, node or leaf among many, by timing disjoint pairs.

    Returns:
        The verdict: `word`, `faulty` with the slowdown of each fault, `suspects`, `sight`, and the cost.

    Raises:
        UsageError: An argument is not valid, or a file does not exist.
        PlatformError: The hardware cannot run the request.
        RunFileError: `file` is neither a run of a scan or of pairs, nor a table.
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
    """Return the verdict of the file of a request: a run of a scan or of pairs, or a CSV table."""
    request.refuse_besides("--slower", f"{request.file} is judged as it was measured")
    path, slower = Path(str(request.file)), None if request.slower is None else request.share("")
    if path.is_dir() or path.suffix == Path(NAME).suffix:
        return judge_run(read(path), slower)
    names, cells = _csv(path)
    hosts = [name.partition(":")[0] for name in names] if all(":" in name for name in names) else []
    return _judged(names, hosts, "", {"": (cells, True)}, slower)


def scan_session(request: ScanRequest, folder: Path | None) -> Session:
    """Return the session of a request, with ranks (of a launcher if there is one) or a described system."""
    if request.resume is not None:
        return _resumed(request)
    if not request.measured:
        return _tried(request, folder)
    if request.inject:
        raise UsageError("--inject is for described systems; use --slow-rank to slow ranks down")
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
    request.refuse_besides("--resume", "--resume continues with the run's own options")
    session = resuming_session(Path(request.resume or ""))
    if not session or not isinstance(session.sweep.works[0], Scan):
        raise UsageError(f"--resume {request.resume} is not a scan; use `collbench sweep --resume` for a sweep")
    if session.sweep.works[0].group != 2:
        raise UsageError(f"--resume {request.resume} measured larger groups than pairs, which scan no longer supports")
    return session


def _tried(request: ScanRequest, folder: Path | None) -> Session:
    from collbench.commands.scan.simulated import simulated  # a slow import, only needed for the model

    if request.slow_rank or request.ranks or launched():
        raise UsageError(
            f"--on {request.on} is a described system and has no ranks; use --inject instead of --slow-rank, --nodes "
            "instead of --ranks, and no launcher"
        )
    system = find_system(request.on, words.places())
    system = system.of(request.nodes or system.nodes)
    refuse_few(system.nodes)
    work = Scan(slower=request.share("gpu"), sizes=request.sizes)
    ranks, sweep = simulated(system, work, request.inject, request.seed)
    return Session(ranks, sweep, None, folder, modelled=True)


def judge_run(run: Run, slower: float | None) -> ScanVerdict:
    """Return the verdict of a run of a scan or of pairs; `slower` is None for the platform's default."""
    if run.results and isinstance(run.results[0].case.work, Scan):
        return judge(run.results, slower)
    every, topology = matrices(run.results), run.header.topology
    if not every:
        raise RunFileError(f"{run.path} is not a run of a scan or of pairs; use `collbench check` for other runs")
    tables = {}
    for (name, nbytes, pattern, at_once), rows in every.items():
        if not at_once or (name, nbytes, pattern, False) not in every:  # prefer pairs alone: at once they contend
            cells = {(row.pair.sender, row.pair.receiver): row.typical for row in rows}
            tables[f"{name}, {pattern}, {format_size(nbytes)}"] = cells, pattern == ONE_WAY
    first: PairTimes = next(iter(every.values()))[0]
    hosts = [topology.gpus[topology.place(rank)].host for rank in range(first.case.ranks)] if topology.gpus else []
    return _judged([f"rank {rank}" for rank in range(first.case.ranks)], hosts, first.platform, tables, slower)


def _judged(
    names: Sequence[str], hosts: Sequence[str], platform: str, tables: Tables, slower: float | None
) -> ScanVerdict:
    refuse_few(len(names))
    case = Case(COLLECTIVES["sendrecv"], 1, DATATYPES["int8"], NONE, 0, len(names), in_place=False, work=Scan())
    levels = (MemberLevel("node", tuple(hosts)),) if hosts else ()
    members = Members(case, "", platform=platform, names=tuple(names), levels=levels)
    evidence = Evidence(members, usual_slower(platform) if slower is None else slower, tables, table=True)
    for name, (cells, one_way) in tables.items():
        evidence.add(Round(case, "", platform, 0, tuple(cells), tuple(cells.values()), 0.0, one_way), name)
    return evidence.verdict()


def _csv(path: Path) -> tuple[list[str], Cells]:
    """Return the names of a table's members, and the seconds per gigabyte by sender and receiver."""
    names: dict[str, int] = {}
    cells: dict[tuple[int, int], float] = {}
    lines = (line.decode("utf-8-sig", "replace").rstrip("\r\n") for _, line in read_lines(path, RunFileError))
    for number, line in enumerate(lines, 1):
        row = [cell.strip().strip('"') for cell in line.split(",")]
        if not any(row) or (number == 1 and not any(map(str.isdigit, row[-1]))):  # an empty line or the heading
            continue
        ends = tuple(names.setdefault(name, len(names)) for name in row[:2])
        match = QUANTITY.fullmatch(row[-1])
        rate = float(match[1]) if match and not match[2] else 0.0
        if len(row) != 3 or not all(row) or not _LEAST < rate < 1 / _LEAST or len(names) > _MOST or ends in cells:
            form = "expected sender, receiver and GB/s above 0, separated by commas, each pair once"
            raise RunFileError(message(f"{path}, line {number}: {form}"))
        if len(set(ends)) > 1:
            cells[ends[0], ends[1]] = 1 / rate
    return list(names), cells
