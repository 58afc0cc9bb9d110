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
from collbench.results import ROWS, Result
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
