"""Formats of other tools: every module of this folder that defines FORMAT, found by being there.

Another format is one file dropped in.  A file has the first format in `order` that recognises its
content.  `imported` has what readers return; writers get an `ExportSelection`.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import fmean

from collbench.commands.formats.imported import Hints, ImportedTest
from collbench.commands.formats.nccl_tests_log import START
from collbench.commands.formats.source import ForeignFile, bare
from collbench.errors import RunFileError, UsageError, unknown
from collbench.presence import imported, modules
from collbench.results import Measurement, Observed, Prediction, Reported, Result
from collbench.runfile.header import Header

OTHERS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["file"]
"""Files that users give and no format reads."""

Exported = Measurement | Reported | Prediction


class NotResults(RunFileError):
    """A file in which nothing looks like results."""


@dataclass(frozen=True)
class ExportSelection:
    """The results to write, the header of their run, and why rows are left out."""

    header: Header
    results: tuple[Exported, ...]
    left_out: Counter[str]  # rows by the reason, filled by the writer of the format too


@dataclass(frozen=True)
class Format:
    """How another tool writes its results.

    `read(source, hints)` returns the tests of a file that has this format, at least one; RunFileError names file and
    line of what cannot be read, UsageError what the file does not tell.  `write(selection)` returns the text of a
    file, and counts in the selection what it leaves out.
    """

    name: str
    recognises: Callable[[ForeignFile], bool]
    read: Callable[[ForeignFile, Hints], Sequence[ImportedTest]]
    write: Callable[[ExportSelection], str] | None = None
    among: bool = False  # whether its tables may stand in one log with those of other tools
    order: int = 0  # those that look for more specific signs come first
    joins: bool = False  # whether the processes of a program write a file each, which are read as one


@cache
def formats() -> dict[str, Format]:
    """Return every format by name, in the order in which they are tried."""
    known: list[Format] = [imported(path).FORMAT for path, _ in modules("commands/formats/*.py", "^FORMAT = ")]
    return {format_.name: format_ for format_ in sorted(known, key=lambda format_: (format_.order, format_.name))}


def written() -> dict[str, Format]:
    """Return the formats that can be written too."""
    return {name: format_ for name, format_ in formats().items() if format_.write}


def find_format(name: str, known: dict[str, Format]) -> Format:
    """Return the format of that name; UsageError with the choices if there is none."""
    if name not in known:
        raise unknown("format", name, known)
    return known[name]


def detect(source: ForeignFile) -> Format:
    """Return the format that a file's content shows; RunFileError with what to do if it shows none."""
    for format_ in formats().values():
        if format_.recognises(source):
            return format_
    shown = "\n".join(bare(line) for _, line in source.lines())
    for other in OTHERS:
        sign = re.compile(other["sign"].replace("START", START.pattern), re.IGNORECASE | re.MULTILINE)
        if sign.search(source.text) or sign.search(shown):
            raise RunFileError(f"{source.name} is {other['what']}; {other['instead']}")
    raise NotResults(f"{source.name}: nothing in it looks like results; known are: {', '.join(formats())}")


def read_tests(source: ForeignFile, hints: Hints) -> list[ImportedTest]:
    """Read a file, with what the user says of it.

    Raises:
        RunFileError: It has no format that is known, or no row.
        UsageError: It does not tell its collective or its number of ranks.

    """
    chosen = [detect(source)]

    # Several tools may print into a log; one of them without a row in it does not matter.
    if chosen[0].among:
        chosen = [format_ for format_ in formats().values() if format_.among and format_.recognises(source)]
    tests: list[ImportedTest] = []
    errors: list[RunFileError] = []
    for format_ in chosen:
        try:
            for test in format_.read(source, hints):
                tests.append(replace(test, format=format_.name, file=source.file, path=source.name))
        except RunFileError as error:
            errors.append(error)
    if not tests:
        raise errors[0]
    return tests


def joined(sources: Iterable[ForeignFile]) -> Iterator[ForeignFile]:
    """Yield files as they are to be read: consecutive ones of a program's processes as one."""
    joining = [format_ for format_ in formats().values() if format_.joins]
    for joins, group in groupby(sources, lambda source: any(format_.recognises(source) for format_ in joining)):
        if joins:
            yield ForeignFile.joined(list(group))
        else:
            yield from group


def select(header: Header, results: Iterable[Result], name: object) -> ExportSelection:
    """Return the results of the run of that name that have a time or are wrong; UsageError if there are none."""
    left_out = Counter[str]()
    selected: list[Exported] = []
    for result in results:
        if isinstance(result, Exported):
            selected.append(result)
        else:
            left_out[f"{type(result).__name__.lower()} rows have no time"] += 1
    if not selected:
        raise UsageError(f"nothing to export: {name} has no results with a time")
    return ExportSelection(header, tuple(selected), left_out)


def mean_seconds(result: Observed) -> float:
    """Return the mean, which is what these tools print; 0 where there is no time."""
    if isinstance(result, Reported):
        return result.seconds
    return fmean(result.times) if result.times else 0.0


def rates(result: Observed) -> tuple[float, float]:
    """Return algorithm and bus bandwidth in GB/s by the mean time, which must not be 0."""
    algbw = result.case.nbytes / mean_seconds(result) / 1e9
    return algbw, algbw * result.case.collective.bus_factor(result.case.ranks)


def wrong_elements(result: Observed) -> int | None:
    """Return how many elements are wrong; None if nobody looked."""
    if isinstance(result, Measurement):
        return result.mismatch.wrong if result.mismatch else 0
    return result.wrong_elements if isinstance(result, Reported) else None
