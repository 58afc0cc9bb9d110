"""A fleet's results: a folder in which each node has a folder of its name, with the verdict of its check or with a run.

Of a verdict only what nodes are compared by is decoded, so that thousands are read in a moment.  A file that cannot be
read costs its node alone, which then says why.
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
from collbench.results import observed
from collbench.results.base import Observed
from collbench.runfile.schema import to_case
from collbench.runfile.store import NAME, read
from collbench.units import Seconds

CHECK = "check.json"
"""What `collbench check --json` is to write into the folder of a node."""
OK, WARN, FAIL, UNKNOWN, UNREADABLE = STATUSES = ("OK", "WARN", "FAIL", "UNKNOWN", "UNREADABLE")
"""The words of a check, and that of a node without a result."""


@dataclass(frozen=True, eq=False)
class Curve:
    """What nodes must have in common to be compared; there is one object for each, so that the same are identical."""

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


class _Size(msgspec.Struct):
    """A size of a check: the fields of its case, its implementation and its time."""

    collective: str
    nbytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    dtype: str
    redop: str
    root: int
    ranks: int
    in_place: bool
    implementation: str
    seconds: Seconds


class _Curve(msgspec.Struct):
    sizes: list[_Size]


class _Check(msgspec.Struct):
    status: Literal["OK", "WARN", "FAIL", "UNKNOWN"]
    line: str
    where: str
    curves: list[_Curve]


_CHECK = msgspec.json.Decoder(_Check)


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
    check, run = place / CHECK, place / NAME
    try:
        if os.path.lexists(check):
            return _checked(name, check)
        if os.path.lexists(run):
            return _measured(name, run)
    except (RunFileError, ValueError) as error:
        return Node(name, reason=sanitize.message(str(error).replace(f"{place}{os.sep}", "")))
    return Node(name, reason=f"neither {CHECK} nor {NAME} in its folder")


def _checked(name: str, path: Path) -> Node:
    with sanitize.safe_read(path, RunFileError, sanitize.LINE_BYTES) as file:
        written = os.fstat(file.fileno()).st_mtime
        text = file.read()
    try:
        check = _CHECK.decode(text)
        curves: dict[Curve, dict[int, Figure]] = {}
        for size in (size for part in check.curves for size in part.sizes):
            case = size.collective, size.dtype, size.redop, size.root, size.ranks, size.in_place
            curve = _curve(check.where, *case, size.implementation)
            curves.setdefault(curve, {})[size.nbytes] = Figure(size.seconds)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RunFileError(f"{path}: {error}") from None
    words = check.line.partition(f" {check.status} ")[2] or check.line
    return Node(name, check.status, sanitize.message(words) if check.status == FAIL else "", written, curves)


def _measured(name: str, path: Path) -> Node:
    """Return what a run says; no check has compared it with anything: it is UNKNOWN, or FAIL where a row is bad."""
    run = read(path)
    bad = [result.problem for result in run.results if result.outcome.bad]
    rows: dict[tuple[Curve, int], list[Observed]] = {}
    for row in observed(run.results):
        case = row.case
        names = case.collective.name, case.dtype.name, case.redop.name
        curve = _curve(run.header.topology.name, *names, case.root, case.ranks, case.in_place, row.implementation)
        rows.setdefault((curve, case.nbytes), []).append(row)
    curves: dict[Curve, dict[int, Figure]] = {}
    for (curve, nbytes), same in rows.items():
        curves.setdefault(curve, {})[nbytes] = _figure(same)
    more = f", and {len(bad) - 1} rows more" if len(bad) > 1 else ""
    reason = f"{bad[0]}{more}" if bad else ""
    return Node(name, FAIL if bad else UNKNOWN, reason, path.stat().st_mtime, curves)


def _figure(rounds: Sequence[Observed]) -> Figure:
    """Return the median of the rounds' medians, and its standard error: from three rounds on, else by samples."""
    medians = [row.typical for row in rounds]
    if len(medians) >= 3:  # 1.253: a median's standard error over a mean's (normal, many)
        return Figure(median(medians), 1.253 * stdev(map(math.log, medians)) / math.sqrt(len(medians)))
    halfwidth = rounds[0].relative_halfwidth  # of a 95 % interval: 1.96 standard errors
    return Figure(median(medians), halfwidth / 1.96 if math.isfinite(halfwidth) else 0.0)


@cache
def _curve(
    where: str, collective: str, dtype: str, redop: str, root: int, ranks: int, in_place: bool, implementation: str
) -> Curve:
    fields = {"collective": collective, "dtype": dtype, "redop": redop, "root": root, "ranks": ranks}
    case = to_case(fields | {"in_place": in_place, "nbytes": 0})
    return Curve(sanitize.text(where), case, sanitize.text(implementation))
