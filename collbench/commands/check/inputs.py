"""Inputs of a check: runs, logs of other tools, folders of them, and fleets.

A fleet is a folder of checks, runs or logs of nodes.  Checks and runs lie in one folder per node, or the runs name
their hosts.  Only the fields that compare nodes are decoded, so that thousands of verdicts are read in a moment.  A
file that cannot be read affects its node alone; the node's reason says why.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import click
import msgspec

from collbench.analysis.judgement import Word, overall
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.check.judge import CheckResult
from collbench.commands.formats import importing
from collbench.commands.formats.imported import ImportedTest
from collbench.commands.formats.importing import ImportRequest, NotResults, folders, grouped, read_each, stored, tables
from collbench.commands.formats.source import STDIN, files_in
from collbench.errors import CollbenchError, RunFileError, UsageError
from collbench.host import sanitize
from collbench.results import Reported, observed
from collbench.runfile.schema import ONE_RANK, case_fields, to_case
from collbench.runfile.store import NAME, Run, read, why_none
from collbench.topology import files
from collbench.units import Seconds, counted

_BEGIN = b'{"kind"'  # first bytes of a run file
CHECK = "check.json"
"""The file of `collbench check --json` in the folder of a node."""
# Names of folders that collbench gives, not users.
_MADE = re.compile(rf"\d{{8}}-\d{{6}}-.*|\d+-({'|'.join(COLLECTIVES)})")


class Input(NamedTuple):
    """A run or a table of a log, with the name of its file; if it is refused, the error."""

    name: str
    run: Run | CollbenchError


def read_inputs(names: Sequence[str], request: ImportRequest, said: list[str]) -> Iterator[Input]:
    """Yield runs, then tables of logs, stored if the request has a folder; messages are appended to `said`."""
    runs: list[Path] = []
    logs: list[Path] = []
    below: set[str] = set()  # files in folders, which the user did not name one by one
    for name in names:
        path = _existing(name)
        if name == STDIN or not path.is_dir():
            (runs if _is_run(path) else logs).append(path)
        elif (path / NAME).exists():
            runs.append(path)
        else:
            inside = _inside(path, said)
            runs += [file for file in inside if _is_run(file)]
            logs += [file for file in inside if not _is_run(file)]
            below.update(str(file) for file in inside)
    for path in runs:
        name = str(path.parent if path.name == NAME else path)
        try:
            yield Input(name, read(path))
        except RunFileError as error:
            yield Input(name, error)
    yield from _logs(logs, below, request, said)


def _existing(name: str) -> Path:
    """Return the path of an input; UsageError says what to give if it does not exist."""
    if name == STDIN or (name and Path(name).exists()):
        return Path(name)
    if name in files.names():
        raise UsageError(f"{name} is a system, not a file; give --on {name}")
    what = f"there is no file or folder {name or repr(name)}"
    raise UsageError(f"{what}; give a run, a log or a folder of them, or nothing to measure this machine")


def _is_run(path: Path) -> bool:
    """Return whether a file begins like a run file, under any name."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return path.name == NAME
    with path.open("rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN


def _inside(folder: Path, said: list[str]) -> list[Path]:
    """Return the logs and runs below a folder; CollbenchError if it has none or holds checks of nodes."""
    if next(folder.glob(f"*/{CHECK}"), None):
        raise UsageError(f"{folder} holds checks of nodes; give --fleet {folder}")
    candidates, others = files_in(folder)
    if others:
        said.append(f"{folder}: {counted(len(others), 'file')} not named like logs, so not read")
    return [path for path in candidates if path.name != CHECK]


def _logs(logs: Sequence[Path], below: set[str], request: ImportRequest, said: list[str]) -> Iterator[Input]:
    """Yield the tables of logs and the errors of refused ones; in a folder, count the files without results."""
    read_tests: list[ImportedTest] = []
    without = 0
    for name, tests in read_each(logs, request.hints, said) if logs else ():
        if isinstance(tests, NotResults) and name in below:
            without += 1
        elif isinstance(tests, CollbenchError):
            yield Input(name, tests)
        else:
            read_tests += tests
            for table in tables(tests):
                yield Input(name, stored(table, None))
    if without:
        said.append(f"{counted(without, 'file')} without results")
    if not request.out:
        return
    groups = grouped(read_tests)
    try:
        for imported, folder in zip(groups, folders(request, groups), strict=True):
            said.append(f"run file: {stored(imported, folder).path}")
    except CollbenchError as error:  # the verdict stands even if the run file cannot be written
        said.append(f"not stored: {error}")


class FleetCurve(NamedTuple):
    """The fields in which comparable nodes agree."""

    topology: str  # `8 x NVIDIA H100 80GB HBM3, NVSwitch`
    collective: str
    dtype: str
    redop: str
    root: int
    ranks: int
    in_place: bool
    unalign: int
    implementation: str

    @property
    def title(self) -> str:
        """The curve in words: `allreduce, float, sum, 8 ranks, nccl on 8 x NVIDIA H100`."""
        return f"{case(self).title}, {self.implementation} on {self.topology or 'an unnamed topology'}"

    def busbw(self, nbytes: int, seconds: float) -> float:
        """Return the bus bandwidth of an operation in bytes per second; 0 if the collective has no message size."""
        collective = case(self).collective
        return collective.bus_factor(self.ranks) * nbytes / seconds if collective.sized else 0.0


@cache
def case(curve: FleetCurve) -> Case:
    """Return the case of a curve, with size 0; ValueError if its fields make no case."""
    return to_case(curve._asdict() | {"nbytes": 0})


@dataclass(frozen=True)
class FleetNode:
    """A node of a fleet, as its files describe it."""

    name: str
    word: Word = Word.UNKNOWN  # of its own check, without the other nodes
    reason: str = ""  # why; an UNKNOWN node with complete results has none
    modified: float = 0.0  # time of its newest file, seconds since 1970
    curves: Mapping[FleetCurve, Mapping[int, float]] = field(default_factory=dict)  # seconds by message size in bytes


class _Size(msgspec.Struct, kw_only=True):
    """A size of a check: the fields of `FleetCurve` in order, then the size and its time."""

    collective: str
    dtype: str
    redop: str
    root: int
    ranks: int
    in_place: bool
    unalign: int = 0
    implementation: str
    nbytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    seconds: Seconds


class _Sizes(msgspec.Struct):
    sizes: list[_Size]


class _Check(msgspec.Struct):
    line: str
    where: str
    curves: list[_Sizes]
    word: Word
    no_verdict: str = ""  # why there is no verdict
    reason: str = ""
    wrong_or_failed: list[msgspec.Raw] = []


Judge = Callable[[Run], CheckResult]


def read_fleet(folder: Path, judge: Judge | None = None) -> list[FleetNode]:
    """Return the nodes of a folder, sorted by name; UsageError if it has none.

    A subfolder is a node if it holds a check, or a single run under a name that a user gave.  Otherwise each run
    belongs to the host that it names.  `judge`, if given, judges the runs.  Logs count if there is nothing else.
    """
    try:
        inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None
    by_name: dict[str, list[FleetNode]] = defaultdict(list)
    nodes = list(chain.from_iterable(_nodes(folder / name, judge) for name in inside))
    for node in nodes or _of_logs(folder, judge):
        by_name[node.name].append(node)
    return [_joined(by_name[name]) for name in sorted(by_name)]


def _nodes(folder: Path, judge: Judge | None) -> Iterator[FleetNode]:
    name, checked = sanitize.text(os.fsencode(folder.name).decode(errors="replace")), folder / CHECK
    paths = (
        [checked]
        if os.path.lexists(checked)
        else sorted(Path(place, NAME) for place, *names in os.walk(folder) if NAME in chain.from_iterable(names))
    )
    by_host = len(paths) > 1 or bool(_MADE.fullmatch(name))
    for path in paths:
        try:
            yield _checked(name, path) if path == checked else _measured(name, read(path), path, judge, by_host)
        except (RunFileError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            reason = str(error).removeprefix(f"{path}:").replace(f"{folder}{os.sep}", "").strip()
            yield FleetNode(name, reason=sanitize.message(f"{path.relative_to(folder)}: {reason}"))


def _joined(parts: list[FleetNode]) -> FleetNode:
    parts.sort(key=lambda part: part.modified)
    curves: dict[FleetCurve, dict[int, float]] = defaultdict(dict)
    for curve, times in chain.from_iterable(part.curves.items() for part in parts):
        curves[curve].update(times)
    word, last = overall(part.word for part in parts), parts[-1]
    reasons = dict.fromkeys(part.reason for part in parts if part.word is word and part.reason)
    return FleetNode(last.name, word, "; ".join(reasons), last.modified, curves)


def _of_logs(folder: Path, judge: Judge | None) -> Iterator[FleetNode]:
    """Yield a node for each log, with the name that `collbench import --each` gives."""
    try:
        groups, remarks, refused = importing.read_foreign(ImportRequest(folder, each=True))
    except CollbenchError as error:
        raise UsageError(f"{folder} has no nodes: no subfolder with {CHECK} or {NAME}, and no logs: {error}") from None
    for remark in (*remarks, *(f"not read: {reason}" for reason in refused)):
        click.echo(remark, err=True)
    for name, imported in zip(importing.names(groups), groups, strict=True):
        test = imported.tests[0]
        yield _measured(name, stored(imported, None), Path(test.path), judge, by_host=test.machine.nodes == 1)


def _checked(name: str, path: Path) -> FleetNode:
    with sanitize.safe_read(path, RunFileError, sanitize.LINE_BYTES) as file:
        written = os.fstat(file.fileno()).st_mtime
        check = msgspec.json.decode(file.read(), type=_Check)
    curves: dict[FleetCurve, dict[int, float]] = defaultdict(dict)
    for size in chain.from_iterable(part.sizes for part in check.curves):
        *fields, nbytes, seconds = msgspec.structs.astuple(size)
        curves[_curve(check.where, *fields)][nbytes] = seconds
    word, reason = check.word, check.no_verdict
    if word.bad or word is Word.FAST:
        word = Word.WRONG if check.wrong_or_failed else word
        reason = check.reason or check.line
    return FleetNode(name, word, sanitize.message(reason), written, curves)


def _measured(name: str, run: Run, path: Path, judge: Judge | None, by_host: bool = False) -> FleetNode:
    """Return the node of a run; without `judge` it is UNKNOWN, or WRONG if a row is bad."""
    if by_host and run.header.environment.host not in ("", "unknown"):
        name = run.header.environment.host
    bad = next((result.problem for result in run.results if result.outcome.bad), "")
    if alone := run.header.topology.copied or ONE_RANK * (run.header.topology.ranks == 1):
        return FleetNode(name, Word.WRONG if bad else Word.UNKNOWN, bad or alone, path.stat().st_mtime)
    curves: dict[FleetCurve, dict[int, float]] = defaultdict(dict)
    for row in observed(run.cases):
        # As in a check, a log counts by its slowest round and a run by the median of its rounds.
        seconds = row.worst.typical if isinstance(row, Reported) else median(row.round_times)
        fields = map((case_fields(row.case) | row.case.properties).__getitem__, FleetCurve._fields[1:-1])
        curves[_curve(run.header.topology.name, *fields, row.implementation)][row.case.nbytes] = seconds
    stopped = f"{run.stopped}; it has {counted(len(run.results), 'row')}" if run.stopped else ""
    word, reason = Word.WRONG if bad else Word.UNKNOWN, bad or stopped or ("" if curves else why_none([run]))
    if judge and curves and not bad:
        result = judge(run)
        word, reason = result.word, reason if result.word in (Word.UNKNOWN, Word.OK) else result.words
    return FleetNode(name, word, reason, path.stat().st_mtime, curves)


@cache
def _curve(*fields: Any) -> FleetCurve:
    shown: list[Any] = [sanitize.text(field) if isinstance(field, str) else field for field in fields]
    curve = FleetCurve(*shown)
    case(curve)  # raises ValueError if the fields make no case
    return curve
