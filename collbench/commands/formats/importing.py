"""The function that takes other tools' results: `collbench.import_`, whose parts the command `import` calls too.

Their formats are found by being there: every module of this folder that defines FORMAT.  Another format is one file
dropped in.  A file has the first format in `order` that recognises its content.  `imported` has what readers return;
writers get an `ExportSelection`.
"""

import fnmatch
import os
import pkgutil
import re
import sys
import tomllib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Annotated, Self

from collbench.collectives import find_collective
from collbench.commands.formats import COMMANDS
from collbench.commands.formats.imported import Hints, Imported, ImportedTest
from collbench.commands.formats.nccl_tests_log import START
from collbench.commands.formats.source import Budget, ForeignFile, bare, files_in, load, stem
from collbench.commands.formats.words import MOST_RANKS, clean
from collbench.errors import CollbenchError, Notice, RunFileError, UsageError
from collbench.requests import reworded
from collbench.requests.declared import Opt, Request, takes
from collbench.requests.sweeps import new_folder
from collbench.results import Measurement, Observed, Prediction, Reported, Result, by_key
from collbench.runfile.schema import Header
from collbench.runfile.store import NAME, Run, write

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
    others = {f"{__package__}.{command.code.partition(':')[0]}" for command in COMMANDS}  # which need far more imports
    names = {file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)], f"{__package__}.")}
    modules = map(import_module, sorted(names - others))
    known: list[Format] = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {format_.name: format_ for format_ in sorted(known, key=lambda format_: (format_.order, format_.name))}


def writers() -> dict[str, Callable[[ExportSelection], str]]:
    """Return what writes each format that can be written too."""
    return {name: format_.write for name, format_ in formats().items() if format_.write}


def detect(source: ForeignFile) -> Format:
    """Return the format that a file's content shows; RunFileError with what to do if it shows none."""
    for format_ in formats().values():
        if format_.recognises(source):
            return format_
    shown = "\n".join(bare(line) for _, line in source.beginning.lines())
    for other in OTHERS:
        sign = re.compile(other["sign"].replace("START", START.pattern), re.IGNORECASE | re.MULTILINE)
        if sign.search(source.head) or sign.search(shown):
            raise RunFileError(f"{source.name} is {other['what']}; {other['instead']}")
    raise NotResults(f"{source.name}: nothing in it looks like results; known are: {', '.join(formats())}")


def read_tests(source: ForeignFile, hints: Hints) -> list[ImportedTest]:
    """Read a file, with what the user says of it.

    RunFileError if it has no known format or no row, UsageError if it does not tell its collective or its ranks.
    """
    chosen = [detect(source)]

    # Several tools may print into a log; one of them without a row in it does not matter.
    if chosen[0].among:
        chosen = [format_ for format_ in formats().values() if format_.among and format_.recognises(source)]
    tests: list[ImportedTest] = []
    errors: list[RunFileError] = []
    for format_ in chosen:
        try:
            found = partial(replace, format=format_.name, file=source.file, path=source.name)
            tests.extend(map(found, format_.read(source, hints)))
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
            yield ForeignFile.joined(group)
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


Files = Path | str | Sequence[Path | str]
_SHOWN = 3  # reasons or names in a line


@dataclass(frozen=True)
class FileHints:
    """Ranks and collective of files, as the user gives them; the first pattern of names that matches counts."""

    ranks: tuple[tuple[str, int], ...] = ()
    collective: str = ""

    @classmethod
    def parse(cls, ranks: int | str | None, op: str) -> Self:
        """Return the hints of `--ranks` and `--op`; UsageError where a value is none."""
        numbers = []
        for word in str(ranks).split(",") if ranks is not None else ():
            pattern, by_name, digits = word.strip().rpartition("=")
            if not re.fullmatch(r"\d{1,9}", digits) or not 1 <= int(digits) <= MOST_RANKS or (by_name and not pattern):
                limits = f"at least 1 and at most {MOST_RANKS}"
                raise UsageError(f"--ranks {ranks} is impossible; give {limits}, or NAME*=N for files of such names")
            numbers.append((pattern or "*", int(digits)))
        return cls(tuple(numbers), op and find_collective(op).name)

    def of(self, name: str) -> Hints:
        """Return the hints of a file, by its name with or without the folder."""
        matching = (ranks for pattern, ranks in self.ranks if fnmatch.filter((name, Path(name).name), pattern))
        return Hints(next(matching, None), self.collective)

    def require(self, paths: Sequence[Path]) -> None:
        """Raise UsageError if a pattern is of none of these files."""
        names = list(map(str, paths))
        for pattern, ranks in self.ranks:
            if not fnmatch.filter([*names, *(path.name for path in paths)], pattern):
                raise UsageError(f"--ranks {pattern}={ranks}: no file has such a name; there are {first_few(names)}")


@dataclass(frozen=True)
class ImportRequest(Request):
    """Files of other tools, what they do not tell themselves, and where their runs are stored."""

    files: Annotated[Files, Opt("", 'A log or several, or a folder of them; "-" is standard input.')]
    _: KW_ONLY
    ranks: Annotated[
        int | str | None,
        Opt("--ranks", "Ranks of files that do not tell them; by file name: 'abci*=2,osu*=4'.", metavar="N|NAME*=N"),
    ] = None
    op: Annotated[str, Opt("--op", "Collective, where a file does not tell it.", metavar="NAME")] = ""
    each: Annotated[bool, Opt("--each", "Make a run of each file, named after its only host or after the file.")] = (
        False
    )
    out: Annotated[
        Path | str | None,
        Opt(
            "-o --out",
            "Folder to make for the run file.",
            "results/runs/...",
            metavar="FOLDER",
            library="New folder in which the runs are stored; without it nothing is stored.",
        ),
    ] = None

    @property
    def hints(self) -> FileHints:
        """Facts that the user gives of the files."""
        return FileHints.parse(self.ranks, self.op)


@takes(ImportRequest)
def import_(request: ImportRequest) -> list[Run]:
    """Read what other tools printed, as `collbench import` does: nccl-tests, OSU, NCCL Inspector, and so on.

    Returns:
        A run for each machine, with its ranks and variables; its rows are of the kind Reported.  What is left out, or
        odd, is warned of with file and line, and so is a file of several that cannot be imported.

    Raises:
        RunFileError: No file can be read, or none holds results.
        UsageError: The only file does not tell its collective or its ranks, or there is a run in the folder already.

    >>> import collbench
    >>> (run,) = collbench.import_("tests/commands/formats/data/nccl_tests_2_19.txt")
    >>> run.header.topology.name, len(run.results)
    ('4 x NVIDIA H100 80GB HBM3', 14)

    """
    groups, said, refused = read_foreign(request)
    for remark in said + refused:
        warnings.warn(reworded(remark, vars(request)), Notice, stacklevel=4)  # at the call of `collbench.import_`
    places = folders(request, groups) if request.out else [None] * len(groups)
    return [stored(imported, folder) for imported, folder in zip(groups, places, strict=True)]


def read_foreign(request: ImportRequest) -> tuple[list[Imported], list[str], list[str]]:
    """Return what goes into a run file each, at least one; what the user must know; and why files are left out."""
    said: list[str] = []
    errors: list[CollbenchError] = []
    tests: list[ImportedTest] = []
    for _, of_file in read_each(request.files, request.hints, said):
        if isinstance(of_file, CollbenchError):
            errors.append(of_file)
        else:
            tests += of_file
    refused = list(map(str, errors))
    if not tests and len(errors) == 1:
        raise errors[0]
    if not tests:
        raise RunFileError(f"nothing can be imported: {first_few(refused)}")
    groups = grouped(tests, request.each)
    said += remarks(tests)
    for imported in groups:
        if imported.merged:
            what = "logs of the same test without host names went into one run; --each makes a run of each"
            said.append(f"{len(imported.merged)} {what}: {first_few(imported.merged)}")
    return groups, said, refused


def read_each(
    files: Files, hints: FileHints, said: list[str]
) -> Iterator[tuple[str, list[ImportedTest] | CollbenchError]]:
    """Yield each log by its name with its tests, at least one of which has rows, or why it is refused."""
    errors: list[tuple[str, CollbenchError]] = []
    paths = list(_paths(files, said))
    hints.require(paths)
    for source in joined(_loaded(paths, errors)):
        try:
            of_file = read_tests(source, hints.of(source.name))
            if not any(test.results for test in of_file):
                reasons = first_few(reason for test in of_file for reason in test.left_out)
                raise RunFileError(f"{source.name}: nothing to import: {reasons or 'no rows'}")
            yield source.name, of_file
        except CollbenchError as error:
            yield source.name, error
    yield from errors


def _paths(files: Files, said: list[str]) -> Iterator[Path]:
    """Yield the path of each file, of a folder those of its logs."""
    for file in [files] if isinstance(files, Path | str) else files:
        logs, others = files_in(Path(file or "an empty name"))
        if others:
            said.append(f"{file}: by their names no logs, so not read: {first_few(others)}")
        yield from logs


def _loaded(paths: Sequence[Path], errors: list[tuple[str, CollbenchError]]) -> Iterator[ForeignFile]:
    """Yield the content of each file."""
    budget = Budget()
    for path in paths:
        try:
            yield load(path, budget)
        except RunFileError as error:
            errors.append((str(path), error))


def grouped(
    tests: Sequence[ImportedTest], each: bool = False, kind: Callable[[ImportedTest], Hashable] = lambda test: None
) -> list[Imported]:
    """Return a run for each machine, with its ranks and variables, for each kind of test, and with `each` each file."""
    runs: dict[Hashable, list[ImportedTest]] = defaultdict(list)
    for of_file in by_key(tests, lambda test: test.path).values():
        # The first test with rows says why others of the file have none.
        unread: list[str] = []
        for test in of_file:
            unread += () if test.results else test.left_out
        for test in of_file:
            if test.results:
                key = test.machine, test.path if each else "", kind(test)
                runs[key].append(replace(test, left_out=test.left_out + tuple(unread)))
                unread.clear()
    return [Imported(tuple(alike)) for alike in runs.values()]


def tables(tests: Sequence[ImportedTest]) -> list[Imported]:
    """Return the tables of each file: tests of one machine with the same collectives, types, reductions and roots."""

    def kinds(test: ImportedTest) -> Hashable:
        cases = [result.case for result in test.results]
        return frozenset((case.collective.name, case.dtype.name, case.redop.name, case.root) for case in cases)

    return grouped(tests, each=True, kind=kinds)


def remarks(tests: Sequence[ImportedTest]) -> Iterable[str]:
    """Return remarks and left out rows of these tests, a line each and none twice."""
    said = []
    for test in tests:
        left_out = [f"left out: {clean(reason, 200)}" for reason in test.left_out]
        said += [f"{test.path}: {remark}" for remark in (*test.remarks, *left_out)]
    return dict.fromkeys(said)


def first_few(words: Iterable[str]) -> str:
    """Return the first of many words or sentences, and dots for the others."""
    words = list(words)
    if len(words) > _SHOWN:
        words[_SHOWN:] = ["..."]
    return "; ".join(words)


def folders(request: ImportRequest, groups: Sequence[Imported]) -> Iterator[Path]:
    """Yield the folder of each run, which is to be made before the next one is asked for."""
    of_files = names(groups) if request.each else [""] * len(groups)
    for number, (imported, name) in enumerate(zip(groups, of_files, strict=True), 1):
        collectives, first = [collective.name for collective in imported.collectives], imported.tests[0]

        # Without a folder from the user it is one like that of a sweep, named after the collectives.
        if not request.out:
            where = name or _as_folder(first.machine.hostname) or first.tool.split()[0]
            yield new_folder(collectives, f"{where}-imported")
        elif len(groups) > 1:
            yield Path(request.out, name or f"{number}-{collectives[0]}")
        else:
            yield Path(request.out, name)


def names(groups: Sequence[Imported]) -> list[str]:
    """Return a name for each run: its only host, else its file, or the folder where all files have one name."""
    paths = [Path(imported.tests[0].path).absolute() for imported in groups]
    if len({path.name for path in paths}) == 1 < len(set(paths)):
        paths = [path.parent for path in paths]
    common = os.path.commonpath([path.parent for path in paths])
    distinct: list[str] = []
    for path, imported in zip(paths, groups, strict=True):
        file = _as_folder("-".join(path.with_name(stem(path)).relative_to(common).parts))
        machine = imported.tests[0].machine
        name = (machine.nodes == 1 and _as_folder(machine.hostname)) or file or "log"
        choices = (name, f"{name}-{file}", f"{name}-{len(distinct)}")
        distinct.append(next(choice for choice in choices if choice not in distinct))
    return distinct


def _as_folder(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("._-")[:60]


def stored(imported: Imported, folder: Path | None) -> Run:
    """Return the run, and store it in that folder if there is one."""
    header, results = imported.header(["collbench", *sys.argv[1:]]), tuple(imported.results)
    path = write(folder, header, results) if folder else Path(NAME)
    return Run(path, header, results, True, 0)
