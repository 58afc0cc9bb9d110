"""Results, cases and sweeps in lines of run files, in messages to and from workers, and in JSON for other programs.

Types and limits stand at the classes themselves (collbench/results, collbench/cases.py); msgspec checks them.
"""

import math
from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from types import GenericAlias
from typing import Any

from msgspec import defstruct

from collbench.cases import Case, Sweep, Work
from collbench.presence import imported, modules
from collbench.records import convert, plain
from collbench.results import ROWS, Note, Result
from collbench.results.facts import note_of
from collbench.runfile.header import SweepPart

_ROWS: list[type[Result]] = [*ROWS]
_WORKS: dict[str, type[Work]] = {}  # by the fields of cases that hold them
for _path, _ in modules("commands/*/rows.py", "^ROWS = "):
    _module = imported(_path)
    _ROWS += _module.ROWS
    _WORKS |= {kind.FIELD: kind for kind in getattr(_module, "WORKS", ())}
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
    """Return a case as flat fields; work in it without the fields that only some have."""
    fields = case.to_json()
    if work := case.work:
        rare = {field.name for field in fields_of(work) if not field.compare}
        fields[work.FIELD] = {name: value for name, value in fields.pop("work").items() if value or name not in rare}
    return fields


def to_case(fields: Mapping[str, Any]) -> Case:
    """Return the case of these fields; ValueError that says what is wrong where there is none."""
    case = convert({name: value for name, value in fields.items() if name != "work"}, Case)
    if fields.keys() & _WORKS.keys():
        works = convert(fields, _CaseWork)
        case = replace(case, work=next(filter(None, (getattr(works, name) for name in _WORKS)), None))
    if case.root >= case.ranks:
        raise ValueError(f"no rank is the root {case.root}; choose from 0 to {case.ranks - 1}")
    return case


def sweep_part(sweep: Sweep) -> SweepPart:
    """Return a sweep as it stands in a header."""
    fields = {name: value for name, value in plain(sweep).items() if value is not None}
    works = fields.pop("works")
    for work in filter(None, sweep.works):
        assert f"{work.FIELD}s" in SweepPart.__struct_fields__, "a field that the header has not would be dropped"
        fields[f"{work.FIELD}s"] = works
    return SweepPart.from_json(fields)


def to_sweep(part: SweepPart) -> Sweep:
    """Return the sweep of a header; ValueError that says what is wrong where there is none."""
    fields = part.to_json()
    fields.pop("works", None)
    kinds = convert(fields, _SweepWorks)
    works = next(filter(None, (getattr(kinds, f"{name}s") for name in _WORKS)), (None,))
    return replace(convert(fields, Sweep), works=works)


def to_line(result: Result) -> dict[str, Any]:
    """Return a result as the fields of its line; those of its case are among its own, for who reads it without us."""
    fields = result.to_json()
    if not fields.get("note"):  # nothing is out of the ordinary
        fields.pop("note", None)
    case = fields.pop("case")
    if result.case.work:
        case[result.case.work.FIELD] = case.pop("work")
    return {"kind": fields["kind"], **case, **fields}


def to_result(line: Mapping[str, Any]) -> Result | None:
    """Return the result of a line; None for other lines, also of kinds that newer versions may add.

    Raises:
        ValueError: The line is no result, or claims what cannot be.

    """
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return None

    # JSON has no word for a loss that is no number.
    if kind == "training" and isinstance(points := line.get("points"), list):
        line = {**line, "points": [_with_loss(point) for point in points]}

    # The fields of the case are among those of the row.
    fields = {name: value for name, value in line.items() if name not in _CASE}
    case = to_case({name: line[name] for name in line.keys() & _CASE})
    result = convert({**fields, "case": case}, KINDS[kind])
    if reason := result.contradiction:
        raise ValueError(reason)
    return result


def _with_loss(point: Any) -> Any:
    """Return a point whose loss is infinite where it was no number, which JSON has no word for."""
    return [*point[:2], math.inf] if isinstance(point, list) and len(point) == 3 and point[2] is None else point


def upgraded(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of an earlier format as one of today's; ValueError where it is none of an earlier one either.

    History of the format number (readers refuse newer files, ignore fields they don't know, and may add fields freely):
    1  the first: kinds header, measurement, skipped, failed, end; later explanation, prediction, reported
    2  what was the text `note` of a row are fields; a header leaves out what is empty or not known
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

    # Zero is what a clock too coarse for it gave.
    for name in ("floor", "barrier"):
        row[name] = row.get(name) or None
    if kind == "reported":
        row["wrong_elements"] = row.pop("wrong", None)
    return row


def _mismatch(line: dict[str, Any]) -> dict[str, Any] | None:
    """Return the check failure of a line: `flaw` was all of it, and `mismatch` what every reader knew."""
    if line.get("check") not in ("ok", "wrong"):
        raise ValueError("field 'check' is neither 'ok' nor 'wrong'")
    if line["check"] == "ok":
        return None

    # Format 2 has all of a failure in `flaw`; format 1 has the wrong element in `mismatch`.
    brief, whole = line.get("mismatch"), line.get("flaw") or {}
    if not isinstance(brief, dict) or not isinstance(whole, dict):
        raise ValueError("field 'mismatch' or 'flaw' is missing, or no object")
    return whole if whole.get("kind", "mismatch") != "mismatch" else {"kind": "mismatch", **brief, **whole}


def _header(line: dict[str, Any]) -> dict[str, Any]:
    """Return a header: versions were numbers for some tools, and two fields have other names now."""
    header = {name: value for name, value in line.items() if value is not None}
    versions = _at(header, "environment", "versions")
    versions.update({name: str(version) for name, version in versions.items()})
    sweep = _at(header, "sweep")
    sweep["requested"] = sweep.pop("asked", None) or {}
    tiers = _at(header, "topology", "system").get("tiers")
    for tier in tiers if isinstance(tiers, list) else ():
        if isinstance(tier, dict):
            tier["qps"] = tier.pop("flows", 1)
    return header


def _at(fields: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the object at a path; another one, which nobody keeps, where there is none."""
    for name in path:
        part = fields.get(name)
        fields = part if isinstance(part, dict) else {}
    return fields
