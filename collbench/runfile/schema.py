"""Results, cases and sweeps in lines of run files, in messages to and from workers, and in JSON for other programs.

Types and limits stand at the classes themselves (collbench/results, collbench/cases.py); msgspec checks them.
"""

import math
from collections.abc import Mapping
from typing import Any, get_args

from collbench.cases import Case, Sweep
from collbench.records import convert, plain
from collbench.results import Result
from collbench.runfile.header import SweepPart

KINDS: dict[str, type[Result]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Result)}
"""Kinds of results by the field `kind` of their lines."""
_CASE = frozenset(Case.__struct_fields__)
_RARE = ("mode", "target")  # of a step or a job


def case_fields(case: Case) -> dict[str, Any]:
    """Return a case as flat fields; a step or a job in it without the fields that only some have."""
    fields = case.to_json()
    for part in fields.keys() & {"step", "job"}:
        fields[part] = {name: value for name, value in fields[part].items() if value or name not in _RARE}
    return fields


def to_case(fields: Mapping[str, Any]) -> Case:
    """Return the case of these fields; ValueError that says what is wrong where there is none."""
    case = convert(fields, Case)
    if case.root >= case.ranks:
        raise ValueError(f"no rank is the root {case.root}; choose from 0 to {case.ranks - 1}")
    return case


def sweep_part(sweep: Sweep) -> SweepPart:
    """Return a sweep as it stands in a header."""
    return SweepPart.from_json({name: value for name, value in plain(sweep).items() if value not in (None, [None])})


def to_sweep(part: SweepPart) -> Sweep:
    """Return the sweep of a header; ValueError that says what is wrong where there is none."""
    return convert(part.to_json(), Sweep)


def to_line(result: Result) -> dict[str, Any]:
    """Return a result as the fields of its line; those of its case are among its own, for who reads it without us."""
    fields = result.to_json()
    if not fields.get("note"):  # nothing is out of the ordinary
        fields.pop("note", None)
    return {"kind": fields["kind"], **fields.pop("case"), **fields}


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
