"""A fleet's results: a folder in which each node has a folder of its name, with the verdict of its check or with a run.

Only what nodes are compared by is decoded: thousands of files are read in a second or two.  A file that cannot be read
costs its node alone, which then says why.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median, stdev
from typing import Annotated, Literal, NamedTuple

import msgspec

from collbench.cases import Case
from collbench.errors import RunFileError, UsageError
from collbench.host import sanitize
from collbench.results.facts import Scheduling
from collbench.runfile.schema import to_case
from collbench.runfile.store import NAME
from collbench.stats import relative_halfwidth
from collbench.units import Seconds

CHECK = "check.json"
"""What `collbench check --json` is to write into the folder of a node."""
OK, FAIL, UNKNOWN, UNREADABLE = "OK", "FAIL", "UNKNOWN", "UNREADABLE"
STATUSES = (OK, "WARN", FAIL, UNKNOWN, UNREADABLE)
"""The words of a check, and that of a node without a result."""
_ROUNDS = 3  # from which on rounds say how well a median is known


@dataclass(frozen=True, eq=False)
class Curve:
    """What nodes must have in common to be compared: hardware, case but for its size, implementation.

    There is one object for each curve, so that the same curves are the same object.
    """

    where: str  # the topology: `8 x NVIDIA H100 80GB HBM3, NVSwitch`
    case: Case  # its size says nothing
    implementation: str

    @property
    def title(self) -> str:
        """All of it in words: `allreduce, float, sum, 8 ranks, nccl on 8 x NVIDIA H100`."""
        return f"{self.case.title}, {self.implementation} on {self.where or 'an unnamed topology'}"

    def busbw(self, nbytes: int, seconds: float) -> float:
        """Return the bus bandwidth of an operation in bytes per second; 0 where messages have no size."""
        factor = self.case.collective.bus_factor(self.case.ranks)
        return factor * nbytes / seconds if self.case.collective.sized else 0.0


class Figure(NamedTuple):
    """The time of a size on a node."""

    seconds: float
    error: float = 0.0  # standard error relative to it, as far as rounds or samples tell; 0: not known


@dataclass(frozen=True)
class Node:
    """What a node has left in its folder."""

    name: str
    status: str = UNREADABLE  # one of STATUSES
    reason: str = ""  # of FAIL and UNREADABLE
    modified: float = 0.0  # seconds since 1970 at which its file was written
    curves: Mapping[Curve, Mapping[int, Figure]] = field(default_factory=dict)  # by bytes of a message


class _Case(msgspec.Struct, kw_only=True):
    """The fields of a case in a line, and of its implementation."""

    collective: str
    nbytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    dtype: str
    redop: str
    ranks: int
    in_place: bool
    implementation: str
    root: int = 0

    @property
    def curve(self) -> tuple[str | int, ...]:
        return self.collective, self.dtype, self.redop, self.ranks, self.in_place, self.implementation, self.root


class _Size(_Case, kw_only=True):
    seconds: Seconds


class _Sizes(msgspec.Struct):
    sizes: list[_Size]


class _Check(msgspec.Struct):
    status: Literal["OK", "WARN", "FAIL", "UNKNOWN"]
    line: str
    where: str
    curves: list[_Sizes]


class _Kind(msgspec.Struct):
    kind: str


class _Topology(msgspec.Struct):
    name: str = ""


class _Header(_Kind):
    topology: _Topology = msgspec.field(default_factory=_Topology)


class _Row(_Case, kw_only=True):
    seconds: tuple[Seconds, ...] | Seconds = ()
    check: str = "ok"
    wrong: int | None = None  # elements, in a row that another tool reported
    scheduling: Scheduling | None = None

    @property
    def times(self) -> tuple[float, ...]:
        return self.seconds if isinstance(self.seconds, tuple) else (self.seconds,)


_CHECK, _KIND = msgspec.json.Decoder(_Check), msgspec.json.Decoder(_Kind)
_HEADER, _ROW = msgspec.json.Decoder(_Header), msgspec.json.Decoder(_Row)


def read_fleet(folder: Path) -> list[Node]:
    """Return the nodes of a folder by name, one for each folder in it; UsageError where there is none."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None
    if not names:
        raise UsageError(f"{folder} has no folders; give the folder in which each node has a folder with {CHECK}")
    return [_node(folder / name) for name in names]


def _node(place: Path) -> Node:
    name = sanitize.text(os.fsencode(place.name).decode(errors="replace"))
    file, what = place / CHECK, _checked
    if not os.path.lexists(file):
        file, what = place / NAME, _measured
    if not os.path.lexists(file):
        return Node(name, reason=f"neither {CHECK} nor {NAME} in its folder")
    try:
        with sanitize.safe_read(file, RunFileError) as opened:
            written = os.fstat(opened.fileno()).st_mtime
            status, reason, where, figures = what(opened.read())
        curves: dict[Curve, dict[int, Figure]] = {}
        for (case, nbytes), figure in figures.items():
            curves.setdefault(_curve(sanitize.text(where), *case), {})[nbytes] = figure
    except (msgspec.MsgspecError, ValueError, RecursionError, RunFileError) as error:
        return Node(name, reason=sanitize.message(f"{file.name}: {error}".replace(f"{place}{os.sep}", "")))
    return Node(name, status, reason, written, curves)


_Found = tuple[str, str, str, dict[tuple[tuple[str | int, ...], int], Figure]]
"""Status, reason, topology, and figures by curve and size."""


def _checked(text: bytes) -> _Found:
    check = _CHECK.decode(text)
    figures = {(size.curve, size.nbytes): Figure(size.seconds) for curve in check.curves for size in curve.sizes}
    words = check.line.partition(f" {check.status} ")[2] or check.line
    return check.status, sanitize.message(words) if check.status == FAIL else "", check.where, figures


def _measured(text: bytes) -> _Found:
    """Return what a run says; no check has compared it with anything, so it is UNKNOWN, or FAIL with a wrong row."""
    first, *lines = text.splitlines(keepends=True) or [b"{}"]
    header = _HEADER.decode(first)
    if header.kind != "header":
        raise ValueError("not a run file: its first line is no header")
    rows: dict[tuple[tuple[str | int, ...], int], list[_Row]] = {}
    wrong = failed = 0
    for line in lines:
        if not line.endswith(b"\n"):  # torn: its writer was stopped in the middle of it
            break
        kind = _KIND.decode(line).kind
        failed += kind == "failed"
        if kind not in ("measurement", "reported"):
            continue
        row = _ROW.decode(line)
        wrong += row.check != "ok" or bool(row.wrong)
        disturbed = row.scheduling and row.scheduling.disturbed
        if row.times and row.check == "ok" and not row.wrong and not disturbed:
            rows.setdefault((row.curve, row.nbytes), []).append(row)
    reason = ", ".join(f"{count} rows {word}" for count, word in ((wrong, "wrong"), (failed, "failed")) if count)
    figures = {case: _figure([row.times for row in same]) for case, same in rows.items()}
    return FAIL if reason else UNKNOWN, reason, header.topology.name, figures


def _figure(rounds: Sequence[tuple[float, ...]]) -> Figure:
    """Return the median of the rounds' medians, and its standard error: from rounds, else from the samples of one."""
    medians = [median(samples) for samples in rounds]
    if len(medians) >= _ROUNDS:  # 1.253: a median's standard error over a mean's (normal, many)
        return Figure(median(medians), 1.253 * stdev(map(math.log, medians)) / math.sqrt(len(medians)))
    halfwidth = relative_halfwidth(rounds[0])  # of a 95 % interval: 1.96 standard errors
    return Figure(median(medians), halfwidth / 1.96 if math.isfinite(halfwidth) else 0.0)


@cache
def _curve(
    where: str, collective: str, dtype: str, redop: str, ranks: int, in_place: bool, implementation: str, root: int
) -> Curve:
    fields = {"collective": collective, "dtype": dtype, "redop": redop, "ranks": ranks, "root": root}
    case = to_case(fields | {"in_place": in_place, "nbytes": 0})
    return Curve(where, case, sanitize.text(implementation))


def came_and_went(before: Sequence[Node], after: Sequence[Node]) -> tuple[list[str], list[str]]:
    """Return the names of nodes that have a result in `after` alone, and in `before` alone."""
    old, new = ({node.name for node in nodes if node.status != UNREADABLE} for nodes in (before, after))
    return sorted(new - old), sorted(old - new)
