"""A fleet's results: a folder of checks and runs, a folder for each node or runs that name their hosts, or of logs.

Only the fields that nodes are compared by are decoded of a verdict, so that thousands are read in a moment.  A file
that cannot be read costs its node alone, which then says why.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

import click
import msgspec

from collbench.analysis.judgement import Word, overall
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.check.judge import CheckResult
from collbench.errors import CollbenchError, RunFileError, UsageError
from collbench.host import sanitize
from collbench.results import Reported, observed
from collbench.runfile.header import ONE_RANK
from collbench.runfile.schema import case_fields, to_case
from collbench.runfile.store import NAME, Run, read, why_none
from collbench.units import Seconds, counted

CHECK = "check.json"
"""What `collbench check --json` is to write into the folder of a node."""
_MADE = re.compile(
    rf"\d{{8}}-\d{{6}}-.*|\d+-({'|'.join(COLLECTIVES)})"
)  # names of folders that collbench gives, not users
_EARLIER = {"OK": Word.OK, "WARN": Word.OK, "FAIL": Word.SLOW, "UNKNOWN": Word.UNKNOWN}  # of schema 1


class FleetCurve(NamedTuple):
    """What nodes must have in common to be compared, in the words of their files."""

    topology: str  # `8 x NVIDIA H100 80GB HBM3, NVSwitch`
    collective: str
    dtype: str
    redop: str
    root: int
    ranks: int
    in_place: bool
    implementation: str

    @property
    def title(self) -> str:
        """All of it in words: `allreduce, float, sum, 8 ranks, nccl on 8 x NVIDIA H100`."""
        return f"{case(self).title}, {self.implementation} on {self.topology or 'an unnamed topology'}"

    def busbw(self, nbytes: int, seconds: float) -> float:
        """Return the bus bandwidth of an operation in bytes per second; 0 where messages have no size."""
        collective = case(self).collective
        return collective.bus_factor(self.ranks) * nbytes / seconds if collective.sized else 0.0


@cache
def case(curve: FleetCurve) -> Case:
    """Return the case of a curve, whose size says nothing; ValueError where there is none."""
    return to_case(curve._asdict() | {"nbytes": 0})


@dataclass(frozen=True)
class FleetNode:
    """What a node has left in its folder."""

    name: str
    word: Word = Word.UNKNOWN  # of its check, whatever the other nodes say
    reason: str = ""  # of UNKNOWN only where there is no result, or not all of it
    modified: float = 0.0  # seconds since 1970 at which its file was written
    curves: Mapping[FleetCurve, Mapping[int, float]] = field(default_factory=dict)  # seconds by bytes of a message


class _Size(msgspec.Struct):
    """A size of a check: the fields of a curve, in their order, then the size and its time."""

    collective: str
    dtype: str
    redop: str
    root: int
    ranks: int
    in_place: bool
    implementation: str
    nbytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    seconds: Seconds


class _Sizes(msgspec.Struct):
    sizes: list[_Size]


class _Check(msgspec.Struct):
    line: str
    where: str
    curves: list[_Sizes]
    no_verdict: str = ""  # why there is none
    word: Word | None = None
    reason: str = ""
    status: Literal["OK", "WARN", "FAIL", "UNKNOWN"] = "UNKNOWN"  # of schema 1, instead of a word
    wrong_or_failed: list[msgspec.Raw] = []


Judge = Callable[[Run], CheckResult]


def read_fleet(folder: Path, judge: Judge | None = None) -> list[FleetNode]:
    """Return the nodes of a folder by name; UsageError where there is none.

    A node is a folder with a check, or with a single run and a name that a user gave; else the host that a run names.
    Runs are judged by `judge`, if there is one.  Logs of other tools are nodes where the folder holds nothing else.
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
    """Yield the node that a folder is, or a node for each run in it."""
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
    """Return the node of several runs: each time is that of the newest run that has it."""
    parts.sort(key=lambda part: part.modified)
    curves: dict[FleetCurve, dict[int, float]] = defaultdict(dict)
    for curve, times in chain.from_iterable(part.curves.items() for part in parts):
        curves[curve].update(times)
    word, last = overall(part.word for part in parts), parts[-1]
    reasons = dict.fromkeys(part.reason for part in parts if part.word is word and part.reason)
    return FleetNode(last.name, word, "; ".join(reasons), last.modified, curves)


def _of_logs(folder: Path, judge: Judge | None) -> Iterator[FleetNode]:
    """Yield a node for each log, named as `collbench import --each` does."""
    from collbench.commands.formats.importing import ImportRequest, names, read_foreign, stored

    try:
        groups, remarks, refused = read_foreign(ImportRequest(folder, each=True))
    except CollbenchError as error:
        raise UsageError(f"{folder} has no nodes: no folder with {CHECK} or {NAME}, and no logs: {error}") from None
    for remark in (*remarks, *(f"not read: {reason}" for reason in refused)):
        click.echo(remark, err=True)
    for name, imported in zip(names(groups), groups, strict=True):
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
    word, reason = check.word or _EARLIER[check.status], check.no_verdict
    if word.bad or word is Word.FAST:
        word = Word.WRONG if check.wrong_or_failed else word
        reason = check.reason or check.line.partition(f" {check.status} ")[2] or check.line
    return FleetNode(name, word, sanitize.message(reason), written, curves)


def _measured(name: str, run: Run, path: Path, judge: Judge | None, by_host: bool = False) -> FleetNode:
    """Return the node of a run: UNKNOWN, or WRONG where a row is bad, unless it is judged here."""
    if by_host and run.header.environment.host not in ("", "unknown"):
        name = run.header.environment.host
    bad = next((result.problem for result in run.results if result.outcome.bad), "")
    if alone := run.header.topology.copied or ONE_RANK * (run.header.topology.ranks == 1):
        return FleetNode(name, Word.WRONG if bad else Word.UNKNOWN, bad or alone, path.stat().st_mtime)
    curves: dict[FleetCurve, dict[int, float]] = defaultdict(dict)
    for row in observed(run.cases):
        # Of a log's rounds the slowest counts, as in a check; of those measured here the median.
        seconds = row.worst.typical if isinstance(row, Reported) else median(row.round_times)
        fields = map(case_fields(row.case).__getitem__, FleetCurve._fields[1:-1])
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
    case(curve)  # ValueError where there is none
    return curve
