"""Typed requests for measurements and predictions, for command line and library.

A SweepRequest is independent of the machine.  `measured_sweep` and `predicted_sweep` convert it to a Sweep for
`collbench.measure`: they select the platform, count the ranks and check sizes against memory.
"""

import itertools
import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Annotated, TypeVar

from collbench.algorithms import choose, implementations, needs
from collbench.cases import BINDS, SPINS, USUAL_STARTS, Sampling, SizeRange, Sweep
from collbench.collectives import COLLECTIVES, Collective, find_collective
from collbench.datatypes import DATATYPES, REDUCTIONS, Datatype, Reduction, find_datatype, find_reduction
from collbench.errors import PlatformError, Unsupported, UsageError, unknown
from collbench.host.launcher import launched
from collbench.platforms import find_platform, on_auto, platforms
from collbench.platforms.layout import MemoryLayout
from collbench.present.notices import DRIVER, announced_if_slow, is_leader, say
from collbench.properties import PROPERTIES
from collbench.requests import words
from collbench.requests.declared import TIME, Opt, Request, declared
from collbench.results import Result
from collbench.topology.system import System
from collbench.units import counted, format_size, parse_duration, parse_size

Launched = tuple[int, int] | None
"""Rank of this process and number of processes under an outside launcher (mpirun, srun); else None."""
Named = TypeVar("Named")

MOST_STARTS = 100
MOST_SAMPLES = 10**7
MOST_UNALIGN = 511  # elements of eight bytes: less than the guard before a buffer
SMALLEST_DEFAULT = 2**20  # bytes: too little memory for a default sweep to this size is an error
FURTHEST = 8  # maximum factor of additional sizes over the largest of the range, so that they fit as well
LARGEST_PREDICTED = 8 * 2**30  # bytes: where published sweeps end; nothing has to fit in memory


@dataclass(frozen=True)
class SweepRequest(Request):
    """The request for a sweep: cases, platform or system, implementations, and sampling."""

    op: words.Ops = "allreduce"
    _: KW_ONLY
    impl: words.Impls = "all"  # the platform decides which exist
    on: words.Here = "auto"
    nodes: words.Nodes = None
    ranks: words.Ranks = None
    ranks_per_node: words.RanksOfNode = None
    minbytes: words.Smallest = 8
    maxbytes: words.Largest = None
    stepfactor: words.Factor = 4.0
    stepbytes: words.SizeStep = None
    also: Annotated[Sequence[int], Opt("", "More sizes in bytes, up to eight times the largest.")] = ()
    iters: Annotated[
        int | None,
        Opt("-n --iters", "Number of samples, instead of adaptive sampling.", least=1, most=MOST_SAMPLES),
    ] = None
    warmup: Annotated[int, Opt("-w --warmup --warmup_iters", "Untimed samples first.", least=0, most=MOST_SAMPLES)] = 1
    datatype: words.Datatypes = "float"
    redop: words.Reductions = "sum"
    root: words.Root = 0
    in_place: words.InPlace = False
    unalign: Annotated[
        int,
        Opt("-u --unalign", "Misalign buffers by K elements.", metavar="K", least=0, most=MOST_UNALIGN),
    ] = 0
    cudagraph: Annotated[
        bool, Opt("-G --cudagraph", "On a GPU, time replays of a CUDA graph instead of launches.", metavar="0|1")
    ] = True
    budget: Annotated[
        words.Time, Opt("--budget", "Time for a case, all implementations together.", unit=TIME, most=words.LONGEST)
    ] = "500ms"
    timeout: words.Timeout = "30s"
    spin: Annotated[str, Opt("--spin", "On a CPU, how a rank waits.", choices=SPINS)] = "auto"
    bind: Annotated[str, Opt("--bind", "Bind ranks to cores; under a launcher, near their GPUs.", choices=BINDS)] = (
        "core"
    )
    starts: Annotated[
        int | None,
        Opt(
            "--starts",
            "Start the ranks N times, so that ± includes differences between starts.",
            "3 if starts are quick, else 1",
            metavar="N",
            least=1,
            most=MOST_STARTS,
        ),
    ] = None
    mpi: Annotated[
        words.Names,
        Opt(
            "--mpi",
            "On a CPU, the MPI libraries to measure, interleaved: mpich, openmpi, intel, ... or a folder.",
            "that of mpi4py",
            metavar="LIB[,LIB]",
        ),
    ] = ""
    nccl: Annotated[
        words.Names,
        Opt(
            "--nccl",
            "On GPUs, the NCCL libraries to measure, interleaved: a release such as 2.30.7, a file, or a folder.",
            "that of CuPy",
            metavar="LIB[,LIB]",
        ),
    ] = ""
    out: words.Out = None
    each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every result as it arrives.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _, _, step = self._sizes
        if not step and not 1 < self.stepfactor < math.inf:
            raise UsageError(f"-f {self.stepfactor:g} is no factor between sizes; give one above 1, such as 2")
        _ = self._kinds

    @property
    def folder(self) -> Path | None:
        """The folder to store the run in, or None."""
        return Path(self.out) if self.out else None

    @property
    def measured(self) -> bool:
        """Whether ranks measure, rather than a model of a described system."""
        return self.on in words.places()

    @property
    def implementations(self) -> str:
        """Names and groups, separated by commas."""
        return self.impl if isinstance(self.impl, str) else ",".join(self.impl)

    @property
    def last(self) -> int | None:
        """Bytes of the largest message; None for the platform's default."""
        return self._sizes[1]

    @property
    def sampling(self) -> Sampling:
        """How often each case is measured."""
        return Sampling(
            budget=parse_duration(self.budget, "--budget"),
            iters=self.iters,
            warmup=self.warmup,
            timeout=parse_duration(self.timeout, "--timeout"),
            graph=bool(self.cudagraph),
        )

    @cached_property
    def _kinds(self) -> tuple[tuple[Collective, ...], tuple[Datatype, ...], tuple[Reduction, ...]]:
        return (
            _find_all(self.op, COLLECTIVES, find_collective),
            _find_all(self.datatype, DATATYPES, find_datatype),
            _find_all(self.redop, REDUCTIONS, find_reduction),
        )

    @cached_property
    def _sizes(self) -> tuple[int, int | None, int]:
        """The smallest size, the largest size or None, and the step between sizes (0 if not given), in bytes."""
        first = parse_size(self.minbytes, "-b")
        last = parse_size(self.maxbytes, "-e") if self.maxbytes else None
        if last is not None and first > last:
            raise UsageError(f"-b {self.minbytes} is above -e {self.maxbytes}; swap them")
        step = parse_size(self.stepbytes, "-i") if self.stepbytes else 0
        return first, last, step

    def on_ranks(self, ranks: int, implementations: Sequence[str], largest: int, starts: int = 1) -> Sweep:
        """Return the sweep on `ranks` ranks; `largest` is the default of the last size in bytes."""
        if not 0 <= self.root < ranks:
            raise UsageError(f"--root {self.root} is no rank; choose from 0 to {ranks - 1}")
        collectives, dtypes, redops = self._kinds
        first, last, step = self._sizes
        sizes = SizeRange(first, max(first, last or largest), 0.0 if step else self.stepfactor, step)
        more = (size for size in self.also if size <= FURTHEST * sizes.last)
        return Sweep(
            collectives=collectives,
            sizes=tuple(sorted({*sizes.sizes, *more})),
            dtypes=dtypes,
            redops=redops,
            ranks=ranks,
            implementations=tuple(implementations),
            root=self.root,
            sampling=self.sampling,
            spin=self.spin,
            bind=self.bind,
            starts=starts,
            requested=sizes,
            **{each.name: getattr(self, each.name) for each in PROPERTIES.values() if self.measured or each.modelled},
        )


@dataclass(frozen=True)
class PredictRequest(Request):
    """The request for a prediction: cases and a described system."""

    system: Annotated[str, Opt("", "A preset of `collbench list`, or FILE.toml.")]
    op: words.Ops = "allreduce"
    _: KW_ONLY
    impl: words.Impls = "library"
    nodes: words.Nodes = None
    ranks: words.RanksOfSystem = None
    ranks_per_node: words.RanksOfNode = None
    minbytes: words.Smallest = 8
    maxbytes: words.LargestPredicted = None
    stepfactor: words.Factor = 4.0
    stepbytes: words.SizeStep = None
    datatype: words.Datatypes = "float"
    redop: words.Reductions = "sum"
    root: words.Root = 0
    in_place: words.InPlace = False
    what_if: Annotated[
        Sequence[str],
        Opt(
            "--what-if",
            "Change the network between nodes, and compare (below); may be given several times.",
            metavar="CHANGE",
            library='Changes of the network between nodes, such as "oversubscription=4".',
        ),
    ] = ()
    out: Annotated[
        Path | str | None,
        Opt(
            "-o --out",
            "New folder for run file and plots; with --fit, the FILE.toml for the calibration.",
            metavar="FOLDER|FILE.toml",
            library="New folder in which the run is stored; without it nothing is stored.",
        ),
    ] = None

    @property
    def sweep(self) -> SweepRequest:
        """The same cases as a sweep on the system."""
        shared = {name: getattr(self, name) for name in declared(SweepRequest) if hasattr(self, name)}
        return SweepRequest(on=self.system, **shared)


def split_names(names: words.Names) -> list[str]:
    """Return the names in a text with commas, or in a sequence."""
    if not names:
        return []
    if isinstance(names, str):
        names = names.split(",")
    return [name.strip() for name in names]


def _find_all(names: words.Names, registry: Mapping[str, Named], find: Callable[[str], Named]) -> tuple[Named, ...]:
    """Return the records with these names, each once; UsageError for an unknown name."""
    if names == "all":
        return tuple(registry.values())
    records: list[Named] = []
    for name in split_names(names) or [""]:
        record = find(name)
        if record not in registry.values():
            raise UsageError(f"{name!r} occurs only in reports of other tools; choose from: {', '.join(registry)}")
        if record not in records:
            records.append(record)
    return tuple(records)


def measured_sweep(request: SweepRequest, joined: Launched = None, copies: int = 1) -> tuple[str, Sweep]:
    """Return the platform that the ranks run on, and the sweep that they measure.

    `joined` is the rank and the number of processes under an outside launcher.  Memory must suffice for `copies` sets
    of ranks.  If `auto` skips unusable GPUs, a line on stderr gives the reason.  UsageError if the platform does not
    exist or does not support the request; PlatformError if the machine has too little memory for the sizes.
    """
    _refuse_elsewhere(request)
    with announced_if_slow(DRIVER):
        platform = on_auto() if request.on == "auto" else request.on
        ranks = _ranks(request.ranks, platform, joined)
    able = [name for name, kind in platforms().items() if kind.spins]
    if request.spin != "auto" and platform not in able:
        raise UsageError(
            f"--spin {request.spin}: ranks wait on cores on {', '.join(able)} only; leave it out on {platform}"
        )
    if joined and request.starts not in (None, 1):
        raise UsageError(f"--starts {request.starts}: the launcher started the ranks, once; leave --starts out")
    starts = 1 if joined else request.starts or 0  # 0: as often as is usual
    names = _implementations(request, platform, joined)

    # The largest default size depends on memory, and so on all the rest of the sweep.
    def sweep_to(largest: int) -> Sweep:
        return request.on_ranks(ranks, names, largest, starts)

    _refuse_if_all_are_skipped(sweep_to(request.last or find_platform(platform).largest))
    sets = copies * max(1, starts)
    if request.last:
        sweep = sweep_to(request.last)
        _refuse_too_large(sweep, platform, sets)
    else:
        sweep = _largest_that_fits(sweep_to, platform, sets)

    # All starts of the ranks hold memory at once; if that is too much, start them once.
    if not starts:
        try:
            _refuse_too_large(sweep, platform, copies * USUAL_STARTS)
        except PlatformError:
            sweep = replace(sweep, starts=1)
    return platform, sweep


def _refuse_elsewhere(request: SweepRequest) -> None:
    """Raise UsageError for options of described systems, on which nothing is measured."""
    for option, count in (("--nodes", request.nodes), ("--ranks-per-node", request.ranks_per_node)):
        if count is not None:
            raise UsageError(f"{option} goes with a described system, and --on {request.on} is none; leave it out")
    if not request.measured:
        raise unknown("--on", request.on, words.places())


def _ranks(requested: int | None, platform: str, joined: Launched) -> int:
    kind = find_platform(platform)
    if joined is None:
        most, limit = kind.most_ranks()
        if requested and requested > most:
            raise UsageError(
                f"--ranks {requested} is more than this machine takes: {limit}; give 1 to {most}, or predict them with "
                "`collbench predict SYSTEM`"
            )
        return requested or kind.default_ranks()
    if requested not in (None, joined[1]):
        raise UsageError(f"--ranks {requested} although the launcher started {joined[1]}; leave --ranks out")
    return joined[1]


def _refuse_if_all_are_skipped(sweep: Sweep) -> None:
    """Raise Unsupported, with the reasons, if no implementation supports any case on any hardware."""
    reasons: dict[str, None] = {}
    for case in sweep.cases():
        for name in sweep.implementations:
            try:
                return implementations()[name].refuse(case)
            except Unsupported as reason:
                message = str(reason)
                if not message.startswith(name):
                    message = f"{name}: {message}"
                reasons[message] = None
    few = list(reasons)[:3]
    if len(reasons) > 3:
        few.append("...")
    raise Unsupported(f"every row would be skipped: {'; '.join(few)}; `collbench list` shows the supported cases")


def _implementations(request: SweepRequest, platform: str, joined: Launched) -> tuple[str, ...]:
    """Return the implementations of the platform; an error explains why a preferred platform was skipped.

    Under a launcher every process selects its own platform, so any of them may raise the error.
    """
    remark = passed_over(request.on, platform)
    try:
        names = choose(request.implementations, platform)
    except UsageError as error:
        if not remark:
            raise
        raise UsageError(f"{error} ({remark})") from None
    if remark and is_leader(joined):
        say(f"collbench: {remark}")
    return names


def passed_over(on: str, platform: str) -> str:
    """Return a line for the user if `auto` skipped hardware with an installed driver, else ""."""
    if on != "auto":
        return ""
    for name, kind in platforms().items():
        if name == platform:
            return ""
        if reason := kind.obstacle():
            return f"the {name} cannot be used, so this is the {platform}: {reason}"
    return ""


def _largest_that_fits(sweep_to: Callable[[int], Sweep], platform: str, copies: int) -> Sweep:
    """Return the default sweep up to the largest size that fits in memory, even of a small container."""
    last = find_platform(platform).largest
    while True:
        sweep = sweep_to(last)
        try:
            _refuse_too_large(sweep, platform, copies)
            return sweep
        except PlatformError:
            if last <= SMALLEST_DEFAULT:
                raise
        last //= 4


def _refuse_too_large(sweep: Sweep, platform: str, copies: int) -> None:
    """Raise PlatformError if memory is too small for `copies` sets of ranks."""
    nbytes = copies * MemoryLayout.of(sweep, needs(sweep.implementations, sweep.ranks, platform)).nbytes
    find_platform(platform).refuse_too_large(nbytes, sweep.ranks)


def cut_short(request: SweepRequest, sweep: Sweep, platform: str) -> list[str]:
    """Return a sentence for the user if memory limited the default sweep, else nothing."""
    largest = sweep.sizes[-1]
    if request.last or largest * 4 > find_platform(platform).largest:
        return []
    return [f"stopping at {format_size(largest)}: larger messages do not fit in free memory"]


def find_system(name: str, others: Sequence[str] = ()) -> System:
    """Return the preset or described system with that name; UsageError with all choices, including `others`."""
    # Imported only here, as measurements need no described system.
    from collbench.topology import files

    if not name.endswith(".toml") and name not in files.names():
        raise unknown("--on" if others else "system", name, (*others, *files.names(), "FILE.toml"))
    return files.load(name)


def predicted_sweep(system: System, request: SweepRequest) -> tuple[System, Sweep]:
    """Return the requested part of the system, or the system with the requested nodes, and its sweep."""
    part = _ranks_of_each_node(system, request) if request.ranks_per_node else _whole_nodes(system, request)
    names = choose(request.implementations, part.platform)
    return part, request.on_ranks(part.ranks, names, LARGEST_PREDICTED)


def _whole_nodes(system: System, request: SweepRequest) -> System:
    """Return whole nodes, or some GPUs of a single node."""
    nodes, ranks = request.nodes, request.ranks
    whole = system.of(nodes) if nodes else system
    if ranks is None:
        return whole
    if ranks > whole.ranks:
        raise UsageError(
            f"--ranks {ranks} is more than the {whole.ranks} GPUs of {whole.name}; "
            f"give fewer, or --nodes {ceil(ranks / whole.gpus)}"
        )
    if nodes is not None and nodes > 1 and ranks < whole.ranks:
        choices = [f"--ranks {whole.ranks} for all"]
        if ranks % whole.gpus in (0, ranks):
            choices.append(f"--nodes {ceil(ranks / whole.gpus)} for as few")
        if ranks % nodes == 0:
            choices.append(f"--ranks-per-node {ranks // nodes} for some of each node")
        less = f"--ranks {ranks} is less than the {whole.ranks} GPUs of --nodes {nodes}"
        raise UsageError(f"{less}; give {', or '.join(choices)}")
    return whole.part(ranks)


def _ranks_of_each_node(system: System, request: SweepRequest) -> System:
    """Return the same number of GPUs of every node."""
    each, ranks = request.ranks_per_node, request.ranks
    assert each
    if each > system.gpus:
        raise UsageError(
            f"--ranks-per-node {each} is more than the {system.gpus} GPUs of a node of {system.name}; "
            f"choose from 1 to {system.gpus}"
        )
    nodes = request.nodes or ceil((ranks or 0) / each) or system.nodes
    if ranks not in (None, nodes * each):
        raise UsageError(
            f"--ranks {ranks} is not --ranks-per-node {each} on {counted(nodes, 'node')}; "
            f"give --ranks {nodes * each}, or leave it out"
        )
    return system.of(1).part(each).of(nodes)


def default_folder(sweep: Sweep, where: str = "") -> Path:
    """Return the new folder `results/runs/TIME-COLLECTIVES-WHERE`; `where` is this host by default."""
    return new_folder([collective.name for collective in sweep.collectives], where or socket.gethostname())


_MADE: list[Path] = []  # folders that new_folder made, which nothing may have been written to


def new_folder(collectives: Sequence[str], where: str) -> Path:
    """Return the same folder for collectives given by name; of a launcher's processes the first makes it."""
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{'-'.join(collectives[:3])}-{where}"
    folder = Path("results", "runs", stem)
    if not is_leader(launched()):
        return folder
    _MADE.extend(path for path in folder.parents if not path.exists())

    # Commands that begin in the same second want the same name: it is of the one whose mkdir succeeds.
    with suppress(OSError):  # the writer of the run file says why there can be none
        folder.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(2):
            try:
                folder.mkdir()
                break
            except FileExistsError:
                folder = folder.with_name(f"{stem}-{number}")
        _MADE.insert(0, folder)
    return folder


def remove_unused() -> None:
    """Remove the folders that were made and hold nothing."""
    for folder in _MADE:
        with suppress(OSError):
            folder.rmdir()
    _MADE.clear()


def folder_name(system: System, ranks: int = 0) -> str:
    """Return a part of a folder's name: the system with its number of ranks (all if none is given)."""
    return re.sub(r"[^a-z0-9]+", "-", f"{system.name} {ranks or system.ranks}".lower()).strip("-")
