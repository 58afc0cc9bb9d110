"""`collbench.import_`: read results of other tools.

Every module of this folder that defines FORMAT is a format; a new format is one new file.  The first format in `order`
that recognises a file's content reads it.  Readers return tests (`imported`); writers get an `ExportSelection`.
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
from collbench.runfile.store import UNSTORED, Run, write

OTHERS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["file"]
"""Known files that no format reads."""

Exported = Measurement | Reported | Prediction


class NotResults(RunFileError):
    """A file without anything like results."""


@dataclass(frozen=True)
class ExportSelection:
    """The results to write, the header of their run, and the reasons of left-out rows."""

    header: Header
    results: tuple[Exported, ...]
    left_out: Counter[str]  # number of rows by reason; writers add to it


@dataclass(frozen=True)
class Format:
    """The format of another tool's results.

    `read(source, hints)` gives the tests of a file, at least one.  It raises RunFileError with file and line if
    something cannot be read, and UsageError if the file lacks a fact.  `write(selection)` returns the text of a file
    and counts left-out rows in the selection.
    """

    name: str
    recognises: Callable[[ForeignFile], bool]
    read: Callable[[ForeignFile, Hints], Iterable[ImportedTest]]
    write: Callable[[ExportSelection], str] | None = None
    among: bool = False  # whether a log may have its tables together with those of other tools
    order: int = 0  # formats with more specific signs come first
    joins: bool = False  # whether a program writes a file per process, to be joined


@cache
def formats() -> dict[str, Format]:
    """Return every format by name, in the order of trial."""
    others = {f"{__package__}.{command.code.partition(':')[0]}" for command in COMMANDS}  # skipped: many imports
    names = {file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)], f"{__package__}.")}
    modules = map(import_module, sorted(names - others))
    known: list[Format] = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {format_.name: format_ for format_ in sorted(known, key=lambda format_: (format_.order, format_.name))}


def listed() -> Iterator[tuple[str, str, str]]:
    """List the formats of other tools: `import` reads all, `export` writes some."""
    yield "format", "export", "what it is"
    for each in formats().values():
        about = (sys.modules[each.read.__module__].__doc__ or "").partition("\n")[0]
        yield each.name, "yes" if each.write else "", about.rstrip(".")


def writers() -> dict[str, Callable[[ExportSelection], str]]:
    """Return the writers of formats by name."""
    return {name: format_.write for name, format_ in formats().items() if format_.write}


def detect(source: ForeignFile) -> Format:
    """Return the format of a file's content; RunFileError with the fix if there is none."""
    for format_ in formats().values():
        if format_.recognises(source):
            return format_
    shown = "\n".join(bare(line) for _, line in source.beginning.lines())
    for other in OTHERS:
        sign = re.compile(other["sign"].replace("START", START.pattern), re.IGNORECASE | re.MULTILINE)
        if sign.search(source.head) or sign.search(shown):
            raise RunFileError(f"{source.name} is {other['what']}; {other['instead']}")
    raise NotResults(f"{source.name}: nothing in it looks like results; known formats: {', '.join(formats())}")


def read_tests(source: ForeignFile, hints: Hints) -> list[ImportedTest]:
    """Read a file with the user's hints; RunFileError without format or rows, UsageError without op or ranks."""
    chosen = [detect(source)]

    # Several tools may print into a log; some of them may have no rows.
    if chosen[0].among:
        chosen = [format_ for format_ in formats().values() if format_.among and format_.recognises(source)]
    tests: list[ImportedTest] = []
    errors: list[RunFileError] = []
    for format_ in chosen:
        try:
            with_source = partial(replace, format=format_.name, file=source.file, path=source.name)
            tests.extend(map(with_source, format_.read(source, hints)))
        except RunFileError as error:
            errors.append(error)
    if not tests:
        raise errors[0]
    return tests


def joined(sources: Iterable[ForeignFile]) -> Iterator[ForeignFile]:
    """Yield the files to read; consecutive files of a program's processes are joined."""
    joining = [format_ for format_ in formats().values() if format_.joins]
    for joins, group in groupby(sources, lambda source: any(format_.recognises(source) for format_ in joining)):
        if joins:
            yield ForeignFile.joined(group)
        else:
            yield from group


def select(header: Header, results: Sequence[Result], name: object) -> ExportSelection:
    """Return the results with a time or an error of run *name*; UsageError if there are none."""
    selected = tuple(result for result in results if isinstance(result, Exported))
    others = (type(result).__name__.lower() for result in results if not isinstance(result, Exported))
    if not selected:
        raise UsageError(f"nothing to export: {name} has no results with a time")
    return ExportSelection(header, selected, Counter(f"{kind} rows have no time" for kind in others))


def mean_seconds(result: Observed) -> float:
    """Return the mean time, as these tools print it; 0 without a time."""
    if isinstance(result, Reported):
        return result.seconds
    return fmean(result.times) if result.times else 0.0


def rates(result: Observed) -> tuple[float, float]:
    """Return algorithm and bus bandwidth in GB/s by the mean time (not 0)."""
    algbw = result.case.nbytes / mean_seconds(result) / 1e9
    return algbw, algbw * result.case.collective.bus_factor(result.case.ranks)


def wrong_elements(result: Observed) -> int | None:
    """Return the number of wrong elements; None if not checked."""
    if isinstance(result, Measurement):
        return result.mismatch.wrong if result.mismatch else 0
    return result.wrong_elements if isinstance(result, Reported) else None


Files = Path | str | Sequence[Path | str]
_FOLDER = "New folder for the runs; without it nothing is stored."
_SHOWN = 3  # reasons or names in a line


@dataclass(frozen=True)
class FileHints:
    """The user's ranks and collective of files; the first matching pattern of names counts."""

    ranks: tuple[tuple[str, int], ...] = ()
    collective: str = ""

    @classmethod
    def parse(cls, ranks: int | str | None, op: str) -> Self:
        """Parse `--ranks` and `--op`; UsageError for an invalid value."""
        numbers = []
        for word in str(ranks).split(",") if ranks is not None else ():
            pattern, by_name, digits = word.strip().rpartition("=")
            if not re.fullmatch(r"\d{1,9}", digits) or not 1 <= int(digits) <= MOST_RANKS or (by_name and not pattern):
                limits = f"at least 1 and at most {MOST_RANKS}"
                raise UsageError(f"--ranks {ranks} is impossible; give {limits}, or NAME*=N to match file names")
            numbers.append((pattern or "*", int(digits)))
        return cls(tuple(numbers), op and find_collective(op).name)

    def of(self, name: str) -> Hints:
        """Return the hints of a file; patterns match its name with or without the folder."""
        matching = (ranks for pattern, ranks in self.ranks if fnmatch.filter((name, Path(name).name), pattern))
        return Hints(next(matching, None), self.collective)

    def require(self, paths: Sequence[Path]) -> None:
        """Raise UsageError if a pattern matches none of these files."""
        names = list(map(str, paths))
        for pattern, ranks in self.ranks:
            if not fnmatch.filter([*names, *(path.name for path in paths)], pattern):
                raise UsageError(f"--ranks {pattern}={ranks} matches none of these files: {first_few(names)}")


@dataclass(frozen=True)
class ImportRequest(Request):
    """Files of other tools, facts that they lack, and the folder for their runs."""

    files: Annotated[Files, Opt("", 'A log, several logs, or a folder of logs; "-" is standard input.')]
    _: KW_ONLY
    ranks: Annotated[
        int | str | None,
        Opt("--ranks", "Ranks of files that lack them, or by file name: 'abci*=2,osu*=4'.", metavar="N|NAME*=N"),
    ] = None
    op: Annotated[str, Opt("--op", "Collective of files that lack it.", metavar="NAME")] = ""
    each: Annotated[bool, Opt("--each", "Make one run per file, named after its only host or the file.")] = False
    out: Annotated[
        Path | str | None,
        Opt("-o --out", "New folder for the run file.", "results/runs/...", "FOLDER", library=_FOLDER),
    ] = None

    @property
    def hints(self) -> FileHints:
        """The user's facts about the files."""
        return FileHints.parse(self.ranks, self.op)


@takes(ImportRequest)
def import_(request: ImportRequest) -> list[Run]:
    """Read results of other tools: nccl-tests, OSU, NCCL Inspector and others.

    Returns:
        A run for each machine, number of ranks and set of variables; its rows are of class Reported.  Warnings name
        left-out or odd rows with file and line, and files that cannot be imported.

    Raises:
        RunFileError: No file can be read, or no file has results.
        UsageError: The only file does not tell its collective or its ranks, or the folder already has a run.

    >>> import collbench
    >>> (run,) = collbench.import_("tests/commands/formats/data/nccl_tests_2_19.txt")
    >>> run.header.topology.name, len(run.results)
    ('4 x NVIDIA H100 80GB HBM3', 14)

    """
    groups, messages, refused = read_foreign(request)
    for remark in messages + refused:
        warnings.warn(reworded(remark, vars(request)), Notice, stacklevel=4)  # at the call of `collbench.import_`
    places = folders(request, groups) if request.out else [None] * len(groups)
    return [stored(imported, folder) for imported, folder in zip(groups, places, strict=True)]


def read_foreign(request: ImportRequest) -> tuple[list[Imported], list[str], list[str]]:
    """Return the contents of run files (at least one), messages for the user, and the errors of refused files."""
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
            what = "logs of the same test without host names went into one run; --each makes one run per log"
            said.append(f"{len(imported.merged)} {what}: {first_few(imported.merged)}")
    return groups, said, refused


def read_each(
    files: Files, hints: FileHints, said: list[str]
) -> Iterator[tuple[str, list[ImportedTest] | CollbenchError]]:
    """Yield the name of each log with its tests (at least one with rows), or with its error."""
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
    """Yield the paths of files, and of the logs in folders."""
    for file in [files] if isinstance(files, Path | str) else files:
        logs, others = files_in(Path(file or "an empty name"))
        if others:
            said.append(f"{file}: not named like logs, so not read: {first_few(others)}")
        yield from logs


def _loaded(paths: Sequence[Path], errors: list[tuple[str, CollbenchError]]) -> Iterator[ForeignFile]:
    budget = Budget()
    for path in paths:
        try:
            yield load(path, budget)
        except RunFileError as error:
            errors.append((str(path), error))


def grouped(
    tests: Sequence[ImportedTest], each: bool = False, kind: Callable[[ImportedTest], Hashable] = lambda test: None
) -> list[Imported]:
    """Group tests into runs by machine (with ranks and variables), by kind, and with `each` also by file."""
    runs: dict[Hashable, list[ImportedTest]] = defaultdict(list)
    for of_file in by_key(tests, lambda test: test.path).values():
        # The first test with rows also gets the reasons of tests without rows.
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
    """Return the distinct remarks and left-out rows of tests, one per line."""
    texts = []
    for test in tests:
        left_out = [f"left out: {clean(reason, 200)}" for reason in test.left_out]
        texts += [f"{test.path}: {remark}" for remark in (*test.remarks, *left_out)]
    return dict.fromkeys(texts)


def first_few(words: Iterable[str]) -> str:
    """Return the first words or sentences, with dots for the others."""
    words = list(words)
    if len(words) > _SHOWN:
        words[_SHOWN:] = ["..."]
    return "; ".join(words)


def folders(request: ImportRequest, groups: Sequence[Imported]) -> Iterator[Path]:
    """Yield the folder of each run; create it before requesting the next one."""
    of_files = names(groups) if request.each else [""] * len(groups)
    for number, (imported, name) in enumerate(zip(groups, of_files, strict=True), 1):
        collectives, first = [collective.name for collective in imported.collectives], imported.tests[0]
        if not request.out:
            where = name or _as_folder(first.machine.hostname) or first.tool.split()[0]
            yield new_folder(collectives, f"{where}-imported")
        elif len(groups) > 1:
            yield Path(request.out, name or f"{number}-{collectives[0]}")
        else:
            yield Path(request.out, name)


def names(groups: Sequence[Imported]) -> list[str]:
    """Return a name for each run: its only host, else its file, or its folder if all files have the same name."""
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
    """Return the run, stored in the folder if it is not None."""
    header, results = imported.header(["collbench", *sys.argv[1:]]), tuple(imported.results)
    path = write(folder, header, results) if folder else UNSTORED
    return Run(path, header, results, True, 0)
