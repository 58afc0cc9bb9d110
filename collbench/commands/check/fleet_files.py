"""A fleet's results: a folder in which each node has a folder of its name, with the verdict of its check or with a run.

Of a verdict only what nodes are compared by is decoded, so that thousands are read in a moment.  A file that cannot be
read costs its node alone, which then says why.
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from collbench.analysis.judgement import Word
from collbench.cases import Case
from collbench.errors import RunFileError, UsageError
from collbench.host import sanitize
from collbench.results import Reported, observed
from collbench.runfile.schema import case_fields, to_case
from collbench.runfile.store import NAME, read
from collbench.units import Seconds, counted

CHECK = "check.json"
"""What `collbench check --json` is to write into the folder of a node."""
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


def read_fleet(folder: Path) -> list[FleetNode]:
    """Return the nodes of a folder by name, one for each folder in it; UsageError where there is none."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None
    if not names:
        raise UsageError(f"{folder} has no folders; give the folder in which each node has a folder with {CHECK}")
    return [_node(folder / name) for name in names]


def _node(folder: Path) -> FleetNode:
    name = sanitize.text(os.fsencode(folder.name).decode(errors="replace"))
    for file, reader in ((CHECK, _checked), (NAME, _measured)):
        if os.path.lexists(folder / file):
            try:
                return reader(name, folder / file)
            except (RunFileError, ValueError, RecursionError, msgspec.MsgspecError) as error:
                reason = str(error).removeprefix(f"{folder / file}:").replace(f"{folder}{os.sep}", "")
                return FleetNode(name, reason=sanitize.message(f"{file}: {reason.strip()}"))
    return FleetNode(name, reason=f"neither {CHECK} nor {NAME} in its folder")


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


def _measured(name: str, path: Path) -> FleetNode:
    """Return what a run says; no check has compared it with anything: it is UNKNOWN, or WRONG where a row is bad."""
    run = read(path)
    bad = next((result.problem for result in run.results if result.outcome.bad), "")
    curves: dict[FleetCurve, dict[int, float]] = defaultdict(dict)
    for row in observed(run.cases):
        # Of a log's rounds the slowest counts, as in a check; of those measured here the median.
        seconds = row.worst.typical if isinstance(row, Reported) else median(row.round_times)
        fields = map(case_fields(row.case).__getitem__, FleetCurve._fields[1:-1])
        curves[_curve(run.header.topology.name, *fields, row.implementation)][row.case.nbytes] = seconds
    stopped = f"{run.stopped}; it has {counted(len(run.results), 'row')}" if run.stopped else ""
    return FleetNode(name, Word.WRONG if bad else Word.UNKNOWN, bad or stopped, path.stat().st_mtime, curves)


@cache
def _curve(*fields: Any) -> FleetCurve:
    shown: list[Any] = [sanitize.text(field) if isinstance(field, str) else field for field in fields]
    curve = FleetCurve(*shown)
    case(curve)  # ValueError where there is none
    return curve
