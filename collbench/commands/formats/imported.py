"""The content of a foreign file: tests with rows, machine, and reasons of left-out rows."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from collbench import __version__
from collbench.cases import Sweep
from collbench.collectives import Collective
from collbench.commands.formats.foreign_machine import ForeignMachine
from collbench.commands.formats.foreign_row import Fitting, ForeignRow, UnfitRow, known_collective
from collbench.results import Note, Reported, Result, by_key
from collbench.runfile.schema import ONE_RANK, Environment, ForeignTest, Header, ImportedPart, TopologyPart
from collbench.units import counted

Narrowed = TypeVar("Narrowed", TopologyPart, ForeignTest)


@dataclass(frozen=True)
class Hints:
    """Facts that the user gives about a file."""

    ranks: int | None = None
    collective: str = ""


class ImportedTest(ForeignTest, frozen=True, kw_only=True):
    """One test of a file: the fields of a header, its machine and its rows."""

    machine: ForeignMachine
    results: tuple[Result, ...]
    path: str = ""  # of its file, as the user gave it
    started: str | None = None  # ISO 8601; the logs name no time zone
    left_out: tuple[str, ...] = ()


class LeftOut:
    """The rows of a test that cannot be imported, by the reason."""

    def __init__(self, reasons: Iterable[str] = ()) -> None:
        self._rows: dict[str, set[Hashable]] = {}
        for number, reason in enumerate(reasons):
            self.add(reason, -1 - number)

    def add(self, reason: str, *rows: Hashable) -> None:
        """Leave out rows, given by number or another key; two places of a row count once."""
        self._rows.setdefault(reason, set()).update(rows)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, each with its number of rows."""
        return tuple(f"{counted(len(numbers), 'row')}: {reason}" for reason, numbers in self._rows.items())


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
    """Return a test with its rows by collective; UsageError if most bandwidths in file *name* do not fit them."""
    results = []
    for word, alike in by_key(rows, lambda row: row.collective).items():
        collective = known_collective(word)
        if collective:
            Fitting(alike, collective).require(name, collective, machine.ranks, listed=bool(machine.nodes))
        for row in alike:
            try:
                case = row.case(collective, machine.ranks)
            except UnfitRow as error:
                left_out.add(str(error), row.number)
                continue
            odd = "count and type contradict the size" * row.miscounted(case)
            printed, note = {"row": row.number, **row.printed}, Note.of(row.note, odd) | Note(shared=machine.sharing)
            about = implementation, machine.platform, row.seconds, statistic, row.wrong, row.samples
            results.append(Reported(case, *about, printed, note=note))
    if alone := machine.copied or ONE_RANK * (machine.ranks == 1 and bool(results)):
        said["remarks"] = alone, *said.get("remarks", ())
    return ImportedTest(machine=machine, results=tuple(results), left_out=left_out.reasons, **said)


@dataclass(frozen=True)
class Imported:
    """The tests of one run file."""

    tests: tuple[ImportedTest, ...]

    @property
    def results(self) -> list[Result]:
        """Every row; `printed` of a foreign row has the number of its test in the header."""
        rows: list[Result] = []
        for number, test in enumerate(self.tests):
            for row in test.results:
                if isinstance(row, Reported):
                    row = replace(row, printed={"test": number, **row.printed})
                rows.append(row)
        return rows

    @property
    def merged(self) -> list[str]:
        """Files with a case that another file has too, if no host name tells whether the machine is the same."""
        if self.tests[0].machine.hostname:
            return []
        files: dict[Hashable, set[str]] = defaultdict(set)
        for test in self.tests:
            for row in test.results:
                files[row.case, row.implementation].add(test.path)
        return sorted(set().union(*(paths for paths in files.values() if len(paths) > 1)))

    @property
    def collectives(self) -> list[Collective]:
        """The collectives in order of appearance."""
        return list({result.case.collective.name: result.case.collective for result in self.results}.values())

    def header(self, command: Sequence[str]) -> Header:
        """Return the header of the run file."""
        first, cases = self.tests[0], [result.case for result in self.results]
        file = first.file
        if others := len({test.file for test in self.tests}) - 1:
            file += f" and {others} more"
        machine = first.machine
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
                redops=tuple(dict.fromkeys(case.redop for case in cases if case.collective.reduces)),
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
    return kind(**{field.name: getattr(more, field.name) for field in fields(kind)})
