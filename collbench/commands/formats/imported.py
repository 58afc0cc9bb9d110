"""What a foreign file holds: its tests, each with its rows and its machine, and what a run file cannot hold of it."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from collbench import __version__
from collbench.cases import Case, Sweep
from collbench.collectives import Collective, find_collective
from collbench.commands.formats.source import (
    GREATEST,
    MOST_RANKS,
    SHORTEST,
    Span,
    clean,
    count,
    seconds_of,
    span,
    whole,
)
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.errors import UsageError
from collbench.results import Note, Reported, Result, by_key
from collbench.results.facts import Sharing
from collbench.runfile.schema import (
    ONE_RANK,
    Environment,
    ForeignTest,
    Header,
    ImportedPart,
    TopologyPart,
    variables,
)
from collbench.topology.discovered import Gpu
from collbench.topology.products import TRAYS
from collbench.units import counted

SUFFIX = re.compile(r"_(?:perf|test)(?:_(?!bisection)[a-z0-9]{1,10})?$")  # all_reduce_perf_mpi: NAME_SUFFIX of `make`
Narrowed = TypeVar("Narrowed", TopologyPart, ForeignTest)
ROUNDING = 1e-9  # by which programs may compute otherwise than this one
ANY_FACTOR, NO_FACTOR = (0.0, float("inf")), (1.0, 0.0)
LEAST_FACTOR, MOST_FACTOR = 0.5, 2.0  # of two ranks and more
BUS_ID = re.compile(r"(?!0[0x:]*$)(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}|0x[0-9a-f]{2})")


@dataclass(frozen=True)
class Hints:
    """What the user says of a file, which may not say it itself."""

    ranks: int | None = None
    collective: str = ""


@dataclass(frozen=True)
class Device:
    """A rank and the GPU that it lives on, as a tool lists them."""

    rank: int
    host: str
    name: str
    group: int = 0
    number: int = 0  # as its process counts them
    bus_id: str = ""  # 0000:0a:00, or 0x0a alone as older versions have it
    pid: int = 0

    @property
    def gpu(self) -> Hashable:
        """What tells its GPU from others; None where that is not known, as of MIG slices, which have a GPU's bus id."""
        if not BUS_ID.fullmatch(self.bus_id) or re.search(r"\bMIG\b", self.name):
            return None
        if not self.bus_id.startswith("0x"):
            return self.host, self.bus_id

        # A bus number alone tells little: all GH200 of a host have the same, and all GPUs of an Azure machine have 0.
        return None if re.search(r"\bG[BH]\d", self.name) else (self.host, self.bus_id, self.number)


class ForeignMachine(TopologyPart, frozen=True, kw_only=True):
    """Where a test ran: tests of one machine may share a run file."""

    platform: str = "gpu"
    hostname: str = ""
    sharing: Sharing | None = None  # of GPUs by ranks
    versions: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ForeignRow:
    """A result as another tool printed it: one place of one line."""

    number: int  # of its line among those of the test
    collective: str  # as the tool calls it
    nbytes: int | None  # of the whole array
    dtype: str
    redop: str = "sum"
    root: int = 0
    in_place: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)  # other properties of the case, by name
    seconds: float  # of an operation; 0 where it is no time
    figures: Mapping[str, object] = field(default_factory=dict)  # time, algbw and busbw as printed, with their digits
    unit: float = 1e-6  # seconds that a printed time counts
    share: int = 0  # bytes of its count and type, of which a sharded collective has one for each rank; 0 if not known
    wrong: int | None = None  # elements; None if nobody looked
    samples: tuple[float, ...] = ()  # seconds of single operations
    note: str = ""
    printed: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def factors(self) -> Span:
        """Between which values the bus bandwidth over size and time lies, by the digits; `low > high` if none may."""
        time = span(self.figures.get("time"), self.unit)
        if not time or not self.nbytes or not self.seconds:
            return ANY_FACTOR
        return bus_factors(self.nbytes, time, span(self.figures.get("algbw")), span(self.figures.get("busbw")))

    @property
    def vague(self) -> bool:
        """Whether its digits leave every factor of two ranks or more."""
        return self.factors[0] <= LEAST_FACTOR and self.factors[1] >= MOST_FACTOR

    def ranks(self, collective: Collective) -> range:
        """Return the numbers of ranks whose factor is one of these, none if it is of another collective."""
        every, (low, high) = range(1, MOST_RANKS + 1), self.factors
        first = bisect_left(every, low, key=collective.bus_factor)
        return every[first : bisect_right(every, high, lo=first, key=collective.bus_factor)]


def bus_factors(nbytes: int, time: Span, algbw: Span | None, busbw: Span | None) -> Span:
    """Return between which values the bus bandwidth over size and time lies; `low > high` if the size is another.

    Time is in seconds, bandwidths are in GB/s; each has the lowest and the highest value that its digits allow.
    """
    rate = nbytes / time[1] / 1e9, nbytes / max(time[0], SHORTEST) / 1e9
    if algbw:
        rate = max(rate[0], algbw[0]), min(rate[1], algbw[1])
    if rate[0] > rate[1] * (1 + ROUNDING):
        return NO_FACTOR
    if not busbw:
        return ANY_FACTOR
    return busbw[0] / rate[1] * (1 - ROUNDING), busbw[1] / rate[0] * (1 + ROUNDING)


def row_of(words: Mapping[str, object], unit: float = 1e-6, **more: Any) -> ForeignRow:
    """Return a row by its words, under the names of nccl-tests' columns; a time counts *unit*."""
    on_cpu = "cputime" in words
    notes = [more.pop("note", "")]
    if on_cpu:
        notes.append("CPU time of the call (-C)")
    named: dict[str, Any] = {
        "collective": words.get("collective"),
        "nbytes": whole(words.get("size")),
        "dtype": str(words.get("type")).strip(),
        "redop": str(words.get("redop") or "sum").strip(),
        "root": whole(str(words.get("root")).strip()) or 0,  # -1 where there is none
        "seconds": seconds_of(words.get("cputime", words.get("time")), unit),
        "figures": {} if on_cpu else words,
        "wrong": count(words.get("#wrong")),
        "note": ", ".join(filter(None, notes)),
    }
    return ForeignRow(unit=unit, **named | more)


class ImportedTest(ForeignTest, frozen=True, kw_only=True):
    """One test of a file: what a header says of it, its machine and its rows."""

    machine: ForeignMachine
    results: tuple[Result, ...]
    path: str = ""  # of its file, as the user gave it
    started: str | None = None  # ISO 8601; the logs name no time zone
    left_out: tuple[str, ...] = ()


class UnfitRow(Exception):
    """A row that no run file can hold, and why."""


class LeftOut:
    """The number of rows of a test that cannot be imported, by the reason."""

    def __init__(self, reasons: Iterable[str] = ()) -> None:
        self._rows: dict[str, set[Hashable]] = {}
        for number, reason in enumerate(reasons):
            self.add(reason, -1 - number)

    def add(self, reason: str, *rows: Hashable) -> None:
        """Leave out rows, by their numbers or what else tells them from others; two places of a row count once."""
        self._rows.setdefault(reason, set()).update(rows)

    @property
    def reasons(self) -> tuple[str, ...]:
        """How many rows are left out for each reason."""
        return tuple(f"{counted(len(numbers), 'row')}: {reason}" for reason, numbers in self._rows.items())


def known_collective(word: str) -> Collective | None:
    """Return the collective that a tool calls so, whatever its capitals and path; None for one that is not here."""
    name = word.replace("\\", "/").rsplit("/", 1)[-1].lower().replace("-", "_").removesuffix(".exe")
    try:
        return find_collective(SUFFIX.sub("", name))
    except UsageError:
        return None


def no_collective(word: str) -> str:
    """Return the reason for leaving out rows of something that is not here."""
    return f"collbench has no collective like {clean(word, 60)!r}"


def make_case(
    collective: Collective, nbytes: int | None, dtype: str, redop: str, root: int, ranks: int, in_place: bool
) -> Case:
    """Return a case by a tool's words; UnfitRow if there is none.  `redop` means nothing where nothing is reduced."""
    reduction = NONE
    try:
        element = find_datatype(dtype.lower().removeprefix("nccl"))
        if collective.reduces:
            reduction = find_reduction(redop.lower().removeprefix("nccl"))
    except UsageError:
        raise UnfitRow(f"type {clean(dtype, 20)!r} with operation {clean(redop, 20)!r} is not known") from None
    if nbytes is None or not 0 <= nbytes <= GREATEST:
        raise UnfitRow("its size is impossible")
    root *= collective.rooted
    if not 0 <= root < ranks:
        raise UnfitRow(f"root {root} is none of the {ranks} ranks")
    return Case(collective, nbytes, element, reduction, root, ranks, in_place)


def make_test(
    name: str,
    rows: Iterable[ForeignRow],
    machine: ForeignMachine,
    left_out: LeftOut,
    *,
    implementation: str,
    statistic: str,
    **said: Any,
) -> ImportedTest:
    """Return a test with its rows, collective by collective; `said` has what else is known of it.

    Raises:
        UsageError: The bus bandwidths in the file of that name are of another number of ranks or another collective.

    """
    results = []
    for word, alike in by_key(rows, lambda row: row.collective).items():
        collective = known_collective(word)
        if collective:
            Fitting(alike, collective).require(name, collective, machine.ranks, listed=bool(machine.nodes))
        for row in alike:
            try:
                case = _plausible_case(row, collective, machine.ranks)
            except UnfitRow as error:
                left_out.add(str(error), row.number)
                continue
            odd = "count and type are of another size" * _miscounted(row, case)
            printed, note = {"row": row.number, **row.printed}, Note.of(row.note, odd) | Note(shared=machine.sharing)
            about = implementation, machine.platform, row.seconds, statistic, row.wrong, row.samples
            results.append(Reported(case, *about, printed, note=note))
    if alone := machine.copied or ONE_RANK * (machine.ranks == 1 and bool(results)):
        said["remarks"] = alone, *said.get("remarks", ())
    return ImportedTest(machine=machine, results=tuple(results), left_out=left_out.reasons, **said)


def _plausible_case(row: ForeignRow, collective: Collective | None, ranks: int) -> Case:
    if not collective:
        raise UnfitRow(no_collective(row.collective))
    case = make_case(collective, row.nbytes, row.dtype, row.redop, row.root, ranks, row.in_place)
    case = replace(case, **row.properties)
    if not row.seconds and not row.wrong:
        raise UnfitRow(f"its time is none of an operation ({clean(row.figures.get('time', ''), 20)!r})")
    if row.vague and _miscounted(row, case):
        raise UnfitRow("its size is not that of its count and type, and no bandwidth tells which is right")
    fitting = row.ranks(collective)
    if ranks in fitting:
        return case
    what = f"{row.nbytes} bytes in {row.seconds * 1e6:.6g} us are"
    busbw = f"{clean(row.figures.get('busbw'), 20)} GB/s of bus bandwidth"
    if fitting:
        raise UnfitRow(f"{what} {busbw} on {_spoken(fitting)} ranks, not {ranks}")
    raise UnfitRow(f"{what} not {busbw}")


def _miscounted(row: ForeignRow, case: Case) -> bool:
    return row.share > 0 and case.nbytes != row.share * (case.ranks if case.collective.sharded else 1)


def _spoken(ranks: range) -> str:
    return f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


class Fitting:
    """For a collective: which numbers of ranks agree with the rows that carry enough digits."""

    def __init__(self, rows: Iterable[ForeignRow], collective: Collective) -> None:
        telling = (row for row in rows if not row.vague and row.factors != NO_FACTOR)
        self._ranges = Counter(row.ranks(collective) for row in telling)
        self.others = self._ranges.pop(range(0), 0)  # rows that no number of ranks fits

        # The number of ranks that most rows leave is the least of one of their ranges; it may stand for some above.
        first = max((ranks.start for ranks in self._ranges), key=self.count, default=1)
        stop = min((ranks.stop for ranks in self._ranges if ranks.stop > first), default=MOST_RANKS + 1)
        self.best = range(first, stop)  # that most rows leave

    @property
    def only(self) -> int | None:
        """The one number of ranks that every row leaves, None if they leave several."""
        alone = len(self.best) == 1 and not self.others and self.count(self.best[0]) == self._ranges.total()
        return self.best[0] if alone else None

    def count(self, ranks: int) -> int:
        """Return how many rows leave a number of ranks."""
        return sum(rows for left, rows in self._ranges.items() if ranks in left)

    def allows(self, ranks: int) -> bool:
        """Whether no other number of ranks is left by more rows."""
        return self.count(ranks) >= max(self.count(self.best[0]), self.others)

    def require(self, name: str, collective: Collective, ranks: int, listed: bool) -> None:
        """Raise UsageError if most rows in the file of that name are of other ranks, or of another collective."""
        if self.allows(ranks):
            return

        # Lists of ranks are trimmed, and logs are mislabelled.  Of ranks that are listed one by one there are no fewer.
        fix = "--ranks N or --op NAME"
        if listed and self.best[-1] < ranks:
            fix = "--op NAME"
        elif self.others <= self._ranges.total():
            right = _spoken(self.best)
            fix = f"--ranks {right} or --op NAME"
            if len(self.best) > 1:
                fix = f"--ranks N, of {right}, or --op NAME"
        raise UsageError(f"{name}: its bus bandwidths are not those of {collective.name} on {ranks} ranks; give {fix}")


def require_ranks(name: str, ranks: int | None, why: str) -> int:
    """Return the number of ranks; UsageError if nobody says it, or it is none."""
    if ranks is None:
        raise UsageError(f"{name}: {why}; give --ranks N")
    if not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"{name}: {ranks} is no number of ranks; give --ranks N")
    return ranks


def machine_of(
    devices: Sequence[Device], ranks: int, platform: str, versions: Mapping[str, str], environment: Mapping[str, str]
) -> ForeignMachine:
    """Return the machine of a list of devices; its nodes are unknown if the list lacks ranks, or hosts are trays."""
    communicator = [device for device in devices if device.group == devices[0].group]
    is_whole = len(communicator) >= ranks
    hosts = Counter(device.host for device in communicator)
    trays = len(hosts) > 1 and any(re.search(TRAYS, device.name) for device in devices)
    nodes = 0 if trays or not is_whole else len(hosts)
    facts: dict[str, Any] = {"hosts": tuple(hosts) if len(hosts) > 1 else ()}
    if nodes and len(set(hosts.values())) > 1:
        facts["uneven"] = tuple(hosts.values())
    if not is_whole:
        facts["listed"] = len(communicator)

    gpus = {device.gpu or number: device for number, device in enumerate(devices)}
    names = Counter(gpu.name or "GPU" for gpu in gpus.values())
    sharing = Sharing(len(devices), len(gpus)) if len(gpus) < len(devices) else None
    if len(names) == 1 and not sharing:  # the list may be trimmed
        names = Counter({next(iter(names)): max(ranks, len(devices))})
    what = " + ".join(f"{count} x {name}" for name, count in names.items()) or f"{ranks} x unknown GPU"
    if sharing:
        listed = "" if is_whole else f", {sharing.ranks} of them"
        what = f"{ranks} ranks{listed} sharing {what}"

    # Only where ranks share GPUs does it matter which rank has which, and only a whole list tells.
    if sharing and is_whole:
        by_rank = sorted(devices, key=lambda device: device.rank)
        shown = {device.gpu or device.rank: device for device in by_rank}
        order = list(shown)
        facts["places"] = tuple(order.index(device.gpu or device.rank) for device in by_rank)
        facts["gpus"] = tuple(Gpu(name=gpu.name, host=gpu.host, bus_id=f"{gpu.bus_id}.0") for gpu in shown.values())
    return ForeignMachine(
        ranks=ranks,
        platform=platform,
        name=what + on_nodes(nodes),
        hostname=next(iter(hosts), ""),
        nodes=nodes,
        shared=sharing is not None,
        sharing=sharing,
        versions=tuple(sorted((name, version) for name, version in versions.items() if version)),
        variables=relevant_variables(environment),
        **facts,
    )


def on_nodes(nodes: int | None) -> str:
    """Return what follows the name of a machine of several nodes."""
    return f" on {nodes} nodes" if nodes and nodes > 1 else ""


def relevant_variables(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables of an environment that change measurements."""
    return tuple((clean(name), clean(value, 1000)) for name, value in variables(environment).items())


def dotted_version(code: int) -> str:
    """Return NCCL's version code as people write it: 23007 is 2.30.7, 2708 is 2.7.8."""
    if not 1000 <= code < 10**7:
        return ""
    major, rest = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


@dataclass(frozen=True)
class Imported:
    """What goes into one run file."""

    tests: tuple[ImportedTest, ...]

    @property
    def results(self) -> list[Result]:
        """Every row; `printed` of a foreign row says which of the header's tests it belongs to."""
        rows: list[Result] = []
        for number, test in enumerate(self.tests):
            for row in test.results:
                if isinstance(row, Reported):
                    row = replace(row, printed={"test": number, **row.printed})
                rows.append(row)
        return rows

    @property
    def merged(self) -> list[str]:
        """The files that hold a case that another one holds too, where no host tells whether it is one machine."""
        if self.tests[0].machine.hostname:
            return []
        files: dict[Hashable, set[str]] = defaultdict(set)
        for test in self.tests:
            for row in test.results:
                files[row.case, row.implementation].add(test.path)
        return sorted(set().union(*(paths for paths in files.values() if len(paths) > 1)))

    @property
    def collectives(self) -> list[Collective]:
        """The collectives that occur, in order."""
        return list({result.case.collective.name: result.case.collective for result in self.results}.values())

    def header(self, command: Sequence[str]) -> Header:
        """Return the header of the run file."""
        first, cases = self.tests[0], [result.case for result in self.results]
        file = first.file
        if others := len({test.file for test in self.tests}) - 1:
            file += f" and {others} more"
        machine = first.machine
        reductions = dict.fromkeys(case.redop for case in cases if case.collective.reduces)
        return Header(
            collbench=__version__,
            command=tuple(command),
            started=min((test.started for test in self.tests if test.started), default=""),
            environment=Environment(
                host=machine.hostname or "unknown", versions=dict(machine.versions), variables=dict(machine.variables)
            ),
            topology=_as(TopologyPart, machine),
            sweep=Sweep(
                collectives=tuple(self.collectives),
                dtypes=tuple(dict.fromkeys(case.dtype for case in cases)),
                implementations=tuple(dict.fromkeys(result.implementation for result in self.results)),
                ranks=machine.ranks,
                sizes=tuple(sorted({case.nbytes for case in cases})),
                redops=tuple(reductions),
            ),
            imported=ImportedPart(
                tool=first.tool,
                version=first.version,
                file=file,
                complete=all(test.complete for test in self.tests),
                left_out=tuple(reason for test in self.tests for reason in test.left_out),
                tests=tuple(_as(ForeignTest, test) for test in self.tests),
            ),
        )


def _as(kind: type[Narrowed], more: Narrowed) -> Narrowed:
    """Return what a header keeps of a record that knows more."""
    return kind(**{field.name: getattr(more, field.name) for field in fields(kind)})
