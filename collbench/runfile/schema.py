"""The contents of run files: header, results, cases, sweeps, and flat records.

The classes (collbench/results, collbench/cases.py) declare types and limits, which msgspec checks. Messages to and
from workers and JSON for other programs use the same lines. Flat records are in bytes, seconds and bytes per second,
under the names of the tidy CSV. Instead of samples they hold their count, median with 95 % interval, and percentiles.
"""

import json
import math
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from types import GenericAlias
from typing import Any, Self

from msgspec import defstruct, structs

from collbench import __version__
from collbench.cases import Case, Sweep, Work
from collbench.collectives import Collective
from collbench.datatypes import Datatype, Reduction
from collbench.notebook import Shown
from collbench.presence import parts
from collbench.records import Record, convert
from collbench.results import ROWS, Note, Observed, Result, Timed
from collbench.results.facts import note_of
from collbench.topology.discovered import Topology
from collbench.topology.system import System
from collbench.units import counted

_FABRICS = ("UCX_", "UCC_", "FI_EFA_", "FI_CXI_", "FI_PROVIDER")
# MPI's transports, algorithms, memory and placement. The same prefixes include addresses and keys of launchers'
# daemons (orte, ess, plm, oob, I_MPI_HYDRA), which affect no time.
_PARTS = {
    "OMPI_MCA_": "accelerator bml btl coll hwloc mpool mtl opal_ osc pml rcache rmaps smsc topo",
    "PRTE_MCA_": "hwloc rmaps",
    "I_MPI_": "ADJUST ASYNC COLL EAGER FABRICS INTRANODE OFFLOAD OFI PIN SHM SPIN THREAD WAIT",
}
_MPI = tuple(name + part for name, parts in _PARTS.items() for part in parts.split())
_PREFIXES = ("NCCL_", "RCCL_", "CUDA_", "MPIR_CVAR_", *_FABRICS, *_MPI, "COLLBENCH_KERNELS", "COLLBENCH_NCCL")
"""Variables that affect measurements; others are not stored, since an environment holds secrets."""

ONE_RANK = "one rank alone: nothing crossed a link; start the test on several GPUs, or build it with MPI=1"
"""The remark on rows of a test with one rank."""

Changes = Mapping[str, str | None]
"""A change of the environment: values by variable; None unsets one."""


class Environment(Shown, Record, frozen=True, kw_only=True):
    """Host, versions, and variables that affect the numbers of a run."""

    host: str = ""
    system: str = ""
    versions: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}


class TopologyPart(Shown, Topology, frozen=True, kw_only=True):
    """The connection of the ranks, with facts from other tools' logs and predictions."""

    name: str = ""
    shared: bool = False  # whether ranks share a GPU
    nodes: int = 0  # 0: unknown, for example if a foreign log lists only some ranks
    listed: int = 0
    uneven: tuple[int, ...] = ()  # ranks of each host in a foreign log, if unequal
    racks: int = 0  # groups of hosts joined by NVLink in a foreign log; 0: unknown
    hosts: tuple[str, ...] = ()  # in a foreign log that names several
    copies: int = 0  # independent copies of a foreign test that ran side by side; 0: one
    model: bool = False  # whether the run is predicted
    system: System | None = None  # the predicted system
    what_ifs: tuple[str, ...] = ()  # changes to the predicted system
    streamed_from: int = 0  # bytes from which copies between CPU ranks bypass the caches; 0: never
    curves: str = ""  # the origin of the communication times of a plan

    to_json = Record.to_json

    @property
    def copied(self) -> str:
        """A sentence on a test that ran several times side by side, or ""."""
        what = f"{self.copies} copies of the test on {counted(self.ranks, 'rank')} ran side by side"
        return f"{what}: nothing crossed between them; build it with MPI=1" if self.copies else ""

    @classmethod
    def of(cls, topology: Topology, nodes: int, streamed_from: int = 0) -> Self:
        """Return a discovered topology with its name; CPUs are discovered on the first node only."""
        name = topology.name
        if topology.sockets and nodes > 1:
            ranks, _, what = name.partition(" on ")
            name = f"{ranks} on {nodes} nodes, the first with {what}"
        fields = structs.asdict(topology)
        return cls(name=name, shared=topology.shared, nodes=nodes, streamed_from=streamed_from, **fields)


class ForeignTest(Shown, Record, frozen=True, kw_only=True):
    """A test by another tool, with the data to export it unchanged."""

    format: str = ""
    tool: str = ""
    version: str = ""
    file: str = ""  # `gpu05.log`, of several `gpu05.log and 2 more`
    complete: bool = True  # whether its end was there
    sweep: Mapping[str, Any] = {}  # iterations and the like
    layout: Mapping[str, Any] = {}  # of the format's own
    remarks: tuple[str, ...] = ()  # caveats for the user


class ImportedPart(Shown, Record, frozen=True, kw_only=True):
    """The source of an imported run's numbers."""

    tool: str = ""
    version: str = ""
    file: str = ""  # `gpu05.log`, of several `gpu05.log and 2 more`
    complete: bool = True  # whether the end of every test was there
    left_out: tuple[str, ...] = ()
    tests: tuple[ForeignTest, ...] = ()


class Interleaved(Shown, Record, frozen=True, kw_only=True):
    """The arm of this run among two settings measured in turn."""

    id: str = ""  # the same for both arms
    setting: str = ""  # empty for the unchanged environment
    cores: tuple[int, ...] = ()  # of each rank


class Header(Shown, Record, frozen=True, kw_only=True):
    """Facts about the whole run."""

    collbench: str = ""  # the version that wrote it
    command: tuple[str, ...] = ()
    started: str = ""  # ISO 8601
    resumed: tuple[str, ...] = ()  # the starts of resumed parts, ISO 8601
    processes: int = 0  # started by an outside launcher, each a rank; 0: collbench started the ranks
    environment: Environment = Environment()
    topology: TopologyPart = TopologyPart()
    sweep: Sweep = Sweep()
    imported: ImportedPart = ImportedPart()
    interleaved: Interleaved = Interleaved()

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """Return the header in a JSON object; ValueError if it is invalid."""
        sweep = fields.get("sweep", {})
        # A later release may know more names; rows with known names can be read.
        for field, names in unknown_names(sweep).items():
            sweep = sweep | {field: [name for name in sweep[field] if name not in names]}
        header = convert(fields | {"sweep": sweep}, cls)
        return replace(header, sweep=_with_works(header.sweep, sweep))

    def to_json(self) -> dict[str, Any]:
        """Return the header as a JSON object."""
        fields = super().to_json()
        return fields | {"sweep": sweep_fields(self.sweep)} if "sweep" in fields else fields


_NAMED = {"collectives": Collective, "dtypes": Datatype, "redops": Reduction}  # fields of a sweep with names of records


def unknown_names(sweep: Any) -> dict[str, list[str]]:
    """Return the names in a header's sweep that this release does not know, by field."""
    unknown: dict[str, list[str]] = defaultdict(list)
    for field, kind in _NAMED.items() if isinstance(sweep, dict) else ():
        for name in sweep[field] if isinstance(sweep.get(field), list) else ():
            try:
                convert(name, kind)
            except ValueError:
                if isinstance(name, str):
                    unknown[field].append(name)
    return unknown


def changed(environment: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return the environment with these changes."""
    return {name: value for name, value in {**environment, **changes}.items() if value is not None}


def variables(environment: Mapping[str, str] = os.environ, named: Collection[str] = ()) -> dict[str, str]:
    """Return the relevant variables of the measuring process; a platform may have set some."""
    # Variables named on the command line are not secret.
    return {name: value for name, value in sorted(environment.items()) if name.startswith(_PREFIXES) or name in named}


def environment_of(versions: Mapping[str, str], chosen: Mapping[str, str]) -> Environment:
    """Return host, versions and variables; versions and variables are those of the ranks."""
    return Environment(
        host=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"collbench": __version__, "python": sys.version.split()[0], **versions},
        variables=dict(chosen),
    )


_ROWS: list[type[Result]] = [*ROWS, *parts("rows")]
_WORKS: dict[str, type[Work]] = {kind.FIELD: kind for kind in parts("works")}  # by the fields of cases that hold them
KINDS = {str(kind.__struct_config__.tag): kind for kind in _ROWS}
"""Kinds of results by the field `kind` of their lines."""
_CaseWork = defstruct("_CaseWork", [(name, kind | None, None) for name, kind in _WORKS.items()])
_SweepWorks = defstruct(
    "_SweepWorks", [(f"{name}s", GenericAlias(tuple, (kind | None, ...)), ()) for name, kind in _WORKS.items()]
)
_CASE = frozenset((*Case.__struct_fields__, *_WORKS))
_NOTE = frozenset(Note.__struct_fields__)
_CHECK = frozenset(("check", "mismatch", "flaw", "note"))
_CHECKED = ("measurement", "steps", "training")


def case_fields(case: Case) -> dict[str, Any]:
    """Return a case as flat fields, with the common fields of its work."""
    fields = case.to_json()
    if work := case.work:
        rare = {field.name for field in fields_of(work) if not field.compare}
        fields[work.FIELD] = {name: value for name, value in fields.pop("work").items() if value or name not in rare}
    return fields


def to_case(fields: Mapping[str, Any]) -> Case:
    """Return the case in these fields; ValueError with the reason if they are invalid."""
    case = convert({name: value for name, value in fields.items() if name != "work"}, Case)
    if fields.keys() & _WORKS.keys():
        works = convert(fields, _CaseWork)
        case = replace(case, work=next(filter(None, (getattr(works, name) for name in _WORKS)), None))
    if case.root >= case.ranks:
        raise ValueError(f"no rank is the root {case.root}; choose from 0 to {case.ranks - 1}")
    return case


def sweep_fields(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as fields of a header; its works are under the plural of their kind's field."""
    kind = next(filter(None, sweep.works), None)
    fields = {name: value for name, value in sweep.to_json().items() if kind or name != "works"}
    return {f"{kind.FIELD}s" if kind and name == "works" else name: value for name, value in fields.items()}


def to_sweep(fields: Any) -> Sweep:
    """Return the sweep in a header's fields; ValueError with the reason if they are invalid."""
    return _with_works(convert(fields, Sweep), fields)


def _with_works(sweep: Sweep, fields: Any) -> Sweep:
    kinds = convert(fields, _SweepWorks)
    works = next(filter(None, (getattr(kinds, f"{name}s") for name in _WORKS)), (None,))
    return replace(sweep, works=works) if works != sweep.works else sweep


def to_line(result: Result) -> dict[str, Any]:
    """Return a result as the fields of its line, with the case's fields at the top level for other readers."""
    fields = result.to_json()
    if not fields.get("note"):  # no caveats
        fields.pop("note", None)
    case = fields.pop("case")
    if result.case.work:
        case[result.case.work.FIELD] = case.pop("work")
    return {"kind": fields["kind"], **case, **fields}


def to_result(line: Mapping[str, Any]) -> Result | None:
    """Return the result in a line, or None for other or newer kinds; ValueError if it is invalid."""
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return None

    # JSON has no NaN or infinity for a loss.
    if kind == "training" and isinstance(points := line.get("points"), list):
        line = {**line, "points": [_with_loss(point) for point in points]}

    # The case's fields are at the row's top level.
    fields = {name: value for name, value in line.items() if name not in _CASE}
    case = to_case({name: line[name] for name in line.keys() & _CASE})
    result = convert({**fields, "case": case}, KINDS[kind])
    if reason := result.contradiction:
        raise ValueError(reason)
    return result


def _with_loss(point: Any) -> Any:
    """Return a point with an infinite loss in place of null, since JSON has no infinity."""
    return [*point[:2], math.inf] if isinstance(point, list) and len(point) == 3 and point[2] is None else point


def upgraded(line: dict[str, Any]) -> dict[str, Any]:
    """Convert a line of an earlier format to the current one; ValueError if it is invalid.

    History of the format number (readers refuse newer files, ignore fields they don't know, and may add fields freely):
    1  the first: kinds header, measurement, skipped, failed, end; later explanation, prediction, reported
    2 the text `note` of a row became fields; a header omits empty and unknown values
    3  a row has objects `note` and `mismatch`, where it had their fields among its own; `check` is gone
    """
    kind = line.get("kind")
    if kind == "header":
        return _header(line)
    if not isinstance(kind, str) or kind not in KINDS:
        return line
    row = {name: value for name, value in line.items() if name not in _NOTE | _CHECK}
    facts = {name: line[name] for name in line.keys() & _NOTE}
    if isinstance(line.get("note"), str):
        facts |= note_of(line["note"]).to_json()
    if facts:
        row["note"] = facts
    if kind in _CHECKED:
        row["mismatch"] = _mismatch(line)

    # A coarse clock measured zero.
    for name in ("floor", "barrier"):
        row[name] = row.get(name) or None
    if kind == "reported":
        row["wrong_elements"] = row.pop("wrong", None)
    return row


def _mismatch(line: dict[str, Any]) -> dict[str, Any] | None:
    """Return the check failure of a line, from `flaw` (complete) or `mismatch` (the common part)."""
    if line.get("check") not in ("ok", "wrong"):
        raise ValueError("field 'check' is neither 'ok' nor 'wrong'")
    if line["check"] == "ok":
        return None

    # Format 2 has all of a failure in `flaw`; format 1 has the wrong element in `mismatch`.
    brief, whole = line.get("mismatch"), line.get("flaw") or {}
    if not isinstance(brief, dict) or not isinstance(whole, dict):
        raise ValueError("field 'mismatch' is missing, or 'mismatch' or 'flaw' is no JSON object")
    return whole if whole.get("kind", "mismatch") != "mismatch" else {"kind": "mismatch", **brief, **whole}


def _header(line: dict[str, Any]) -> dict[str, Any]:
    """Convert a header: some versions were numbers, and two fields were renamed."""
    header = {name: value for name, value in line.items() if value is not None}
    versions = _at(header, "environment", "versions")
    versions.update({name: str(version) for name, version in versions.items()})
    sweep = _at(header, "sweep")
    sweep["requested"] = sweep.pop("asked", None) or None
    sweep["sampling"] = {"graph": False} | _at(sweep, "sampling")
    tiers = _at(header, "topology", "system").get("tiers")
    for tier in tiers if isinstance(tiers, list) else ():
        if isinstance(tier, dict):
            tier["qps"] = tier.pop("flows", 1)
    return header


def _at(fields: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the object at a path, or a temporary one if it is missing."""
    for name in path:
        part = fields.get(name)
        fields = part if isinstance(part, dict) else {}
    return fields


PERCENTILES = {"fastest": 0, "p95": 95, "p99": 99, "slowest": 100}


def record(result: Result) -> dict[str, Any]:
    """Return a result as a flat record: its case, its outcome, and its numbers; None for what is not known."""
    case = case_fields(result.case)
    facts = {
        "implementation": result.implementation,
        "platform": result.platform,
        **{name: value for name, value in case.items() if name not in _WORKS},
        "outcome": result.outcome.value,
        "reason": result.reason or result.wrong,
        "note": str(result.note),
        "library": result.library,
        "algorithm": result.algorithm,
        "protocol": result.protocol,
        "channels": result.channels,
    }
    return facts | _numbers(result)


def _numbers(result: Result) -> dict[str, Any]:
    names = ("seconds", "low", "high", "algbw", "busbw", "samples", *PERCENTILES, "floor")
    numbers: dict[str, Any] = dict.fromkeys(names)
    checked_only = isinstance(result, Observed) and not result.times
    if not isinstance(result, Timed) or result.wrong or checked_only or not result.typical > 0:
        return numbers
    numbers["seconds"] = result.typical
    low, high = result.band
    if math.isfinite(low):
        numbers["low"] = low
    if math.isfinite(high):
        numbers["high"] = high
    if result.case.nbytes and result.case.collective.sized:
        numbers |= {"algbw": result.algbw, "busbw": result.busbw}
    if isinstance(result, Observed):
        numbers["samples"] = len(getattr(result, "samples", result.times)) or None
        if len(result.times) > 1:
            numbers |= {name: result.percentile(percent) for name, percent in PERCENTILES.items()}
    numbers["floor"] = result.floor
    return numbers


def document(header: Header, results: Iterable[Result], **more: Any) -> str:
    """Return a JSON object with facts about the run, its header and its rows."""
    facts = {"measured": not header.topology.model, **more, "header": header.to_json()}
    return json.dumps(facts | {"results": [record(row) for row in results]}, indent=1)
