"""What a foreign file tells: its tests, each with its rows, its machine, and what a run file cannot hold."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from collbench import __version__
from collbench.cases import Case
from collbench.collectives import Collective, find_collective
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.errors import UsageError
from collbench.formats.source import GREATEST, clean
from collbench.results import Reported, Result
from collbench.runfile.environment import variables
from collbench.runfile.header import Environment, ForeignTest, Header, ImportedPart, SweepPart, TopologyPart

MOST_RANKS = 2**20
SUFFIX = re.compile(r"_(?:perf|test)(?:_[a-z0-9]{1,10})?$")  # all_reduce_perf_mpi: NAME_SUFFIX of nccl-tests' Makefile


@dataclass(frozen=True)
class Hints:
    """What the user says that a file may not tell."""

    ranks: int | None = None
    collective: str = ""

    def __post_init__(self) -> None:
        if self.ranks is not None and not 1 <= self.ranks <= MOST_RANKS:
            raise UsageError(f"{self.ranks} is no number of ranks; give --ranks N, from 1 to {MOST_RANKS}")


@dataclass(frozen=True)
class Device:
    """A rank and the GPU that it lives on, as a tool lists them."""

    rank: int
    host: str
    name: str
    group: int = 0
    pid: int = 0
    number: int = 0
    bus: str = ""


@dataclass(frozen=True)
class Machine:
    """Where a test ran: tests of one machine may share a run file."""

    ranks: int
    name: str
    platform: str = "gpu"
    host: str = ""
    nodes: int | None = None
    versions: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> Environment:
        """For a header."""
        return Environment(host=self.host or "unknown", versions=dict(self.versions), variables=dict(self.variables))

    @property
    def topology(self) -> TopologyPart:
        """For a header."""
        nodes = {"nodes": self.nodes} if self.nodes else {}
        return TopologyPart(name=self.name, platform=self.platform, ranks=self.ranks, rest=nodes)


@dataclass(frozen=True, kw_only=True)
class Test(ForeignTest):
    """One test of a file: what a header says of it, its machine and its rows."""

    machine: Machine
    results: tuple[Result, ...]
    started: str | None = None  # ISO 8601; the logs name no time zone
    left_out: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # for the user, now


class UnfitRow(Exception):
    """A row that no run file can hold, and why."""


class Rows:
    """Results of a test as they are gathered; what cannot be kept is counted by its reason."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self._left: Counter[str] = Counter()

    def leave(self, reason: str) -> None:
        """Count a row that is left out."""
        self._left[reason] += 1

    def add(self, results: Iterable[Result]) -> None:
        """Keep the results of one row, or count it as left out if it is an UnfitRow."""
        try:
            self.results += list(results)
        except UnfitRow as error:
            self.leave(str(error))

    @property
    def left_out(self) -> tuple[str, ...]:
        """How many rows for each reason."""
        return tuple(f"{count} row{'s' if count > 1 else ''}: {reason}" for reason, count in self._left.items())


def known_collective(word: str) -> Collective | None:
    """The collective that a tool calls so, whatever its capitals and path; None if collbench has none like it."""
    name = word.replace("\\", "/").rsplit("/", 1)[-1].lower().replace("-", "_").removesuffix(".exe")
    name = SUFFIX.sub("", name)
    try:
        return find_collective(name)
    except UsageError:
        return None


def make_case(
    collective: Collective, nbytes: int, dtype: str, redop: str, root: int, ranks: int, in_place: bool
) -> Case:
    """A case by a tool's own words; UnfitRow if there is none such.  `redop` means nothing where nothing is reduced."""
    try:
        element = find_datatype(dtype.lower().removeprefix("nccl"))
        reduction = find_reduction(redop.lower().removeprefix("nccl")) if collective.reduces else NONE
    except UsageError:
        raise UnfitRow(f"type {clean(dtype, 20)!r} with operation {clean(redop, 20)!r} is not known") from None
    if not 0 <= nbytes <= GREATEST:
        raise UnfitRow("its size is impossible")
    root = root if collective.rooted else 0
    if not 0 <= root < ranks:
        raise UnfitRow(f"root {root} is none of the {ranks} ranks")
    return Case(collective, nbytes, element, reduction, root, ranks, in_place)


def machine_of(
    devices: Sequence[Device], ranks: int, versions: Mapping[str, str], environment: Mapping[str, str]
) -> Machine:
    """The machine that a list of devices shows; of the environment only what changes measurements is kept."""
    names = Counter(device.name or "GPU" for device in devices)
    what = " + ".join(f"{count} x {name}" for name, count in names.items()) or f"{ranks} x unknown GPU"
    hosts = list(dict.fromkeys(device.host for device in devices))
    kept = {clean(name): clean(value, 1000) for name, value in variables(environment).items()}
    return Machine(
        ranks=ranks,
        name=what + (f" on {len(hosts)} nodes" if len(hosts) > 1 else ""),
        host=hosts[0] if hosts else "",
        nodes=len(hosts) or None,
        versions=tuple(sorted((name, version) for name, version in versions.items() if version)),
        variables=tuple(kept.items()),
    )


def dotted(code: int) -> str:
    """NCCL's version code as people write it: 23007 is 2.30.7, 2708 is 2.7.8."""
    if not 1000 <= code < 10**7:
        return ""
    scale = 10000 if code >= 10000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def said_ranks(hints: Hints, told: int | None, name: str, why: str) -> int:
    """The number of ranks: the user's word, else what the file told; UsageError if neither."""
    ranks = told if hints.ranks is None else hints.ranks
    if ranks is None:
        raise UsageError(f"{name}: {why}; give --ranks N")
    if not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"{name}: {ranks} is no number of ranks; give --ranks N")
    return ranks


@dataclass(frozen=True)
class Imported:
    """What goes into one run file."""

    tests: tuple[Test, ...]

    @property
    def results(self) -> list[Result]:
        """Every row; what a foreign row printed says which of the header's tests it belongs to."""
        return [_numbered(result, number) for number, test in enumerate(self.tests) for result in test.results]

    @property
    def collectives(self) -> list[Collective]:
        """Those that occur, in order."""
        return list({result.case.collective.name: result.case.collective for result in self.results}.values())

    def header(self, command: Sequence[str]) -> Header:
        """The run file's header."""
        return Header(
            collbench=__version__,
            command=tuple(command),
            started=min((test.started for test in self.tests if test.started), default=""),
            environment=self.tests[0].machine.environment,
            topology=self.tests[0].machine.topology,
            sweep=self._sweep(),
            imported=self._imported(),
        )

    def _sweep(self) -> SweepPart:
        """What is known of it."""
        results = self.results
        cases = [result.case for result in results]
        redops = dict.fromkeys(case.redop.name for case in cases if case.collective.reduces)
        return SweepPart(
            collectives=tuple(collective.name for collective in self.collectives),
            dtypes=tuple(dict.fromkeys(case.dtype.name for case in cases)),
            implementations=tuple(dict.fromkeys(result.implementation for result in results)),
            ranks=self.tests[0].machine.ranks,
            rest={"sizes": sorted({case.nbytes for case in cases}), "redops": list(redops)},
        )

    def _imported(self) -> ImportedPart:
        first = self.tests[0]
        return ImportedPart(
            tool=first.tool,
            version=first.version,
            file=first.file,
            complete=all(test.complete for test in self.tests),
            left_out=tuple(reason for test in self.tests for reason in test.left_out),
            tests=tuple(
                ForeignTest(**{part.name: getattr(test, part.name) for part in fields(ForeignTest)})
                for test in self.tests
            ),
        )


def _numbered(result: Result, number: int) -> Result:
    return replace(result, printed={"test": number} | dict(result.printed)) if isinstance(result, Reported) else result


def grouped(tests: Sequence[Test]) -> list[Imported]:
    """One run if all tests are of one machine, else a run for each; tests without a row are in none."""
    kept = [test for test in tests if test.results]
    if len({test.machine for test in kept}) == 1:
        return [Imported(tuple(kept))]
    return [Imported((test,)) for test in kept]


def remarks(tests: Sequence[Test]) -> Iterator[str]:
    """What the user must know of what was read, one line each."""
    for test in tests:
        for remark in test.remarks:
            yield f"{test.file}: {remark}"
        for reason in test.left_out:
            yield f"{test.file}: left out: {clean(reason, 200)}"
