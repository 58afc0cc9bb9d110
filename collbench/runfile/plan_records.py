"""Rows of plans as they stand in a run file."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from collbench.cases import Case
from collbench.errors import unknown
from collbench.planned import PURPOSES, Pipeline, PlannedStep
from collbench.runfile.fields import duration, whole
from collbench.runfile.note_records import note_fields, to_note

MOST_PARTS = 32  # that a step or a memory is the sum of
_PART = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NUMBERS = ("capacity", "low", "high", "tokens", "utilisation")
_WHOLE = ("stages", "chunks", "micro_batches")
_SECONDS = ("forward", "backward", "weights")


def planned_fields(result: PlannedStep) -> dict[str, Any]:
    """All of it; price and total where they are known."""
    fields: dict[str, Any] = {"purpose": result.purpose, "system": result.system}
    fields |= {"parts": dict(result.parts), "memory": dict(result.memory)}
    fields |= {name: getattr(result, name) for name in _NUMBERS} | {"pipeline": asdict(result.pipeline)}
    fields |= {name: value for name in ("price", "total") if (value := getattr(result, name))}
    return fields | note_fields(result.note)


def to_planned(common: tuple[Case, str, str], fields: dict[str, Any]) -> PlannedStep:
    """The plan of a row; KeyError, TypeError, ValueError or UsageError if it has none."""
    case, implementation, platform = common
    purpose = str(fields["purpose"])
    if purpose not in PURPOSES:
        raise unknown("purpose of a plan", purpose, PURPOSES)
    return PlannedStep(
        case,
        implementation,
        purpose=purpose,
        system=str(fields["system"]),
        parts=_parts(fields, "parts"),
        memory=_parts(fields, "memory"),
        **{name: duration(fields, name) for name in _NUMBERS},  # type: ignore[arg-type]
        pipeline=_pipeline(fields["pipeline"]),
        price=duration({"price": 0.0} | fields, "price"),
        total=duration({"total": 0.0} | fields, "total"),
        platform=platform,
        note=to_note(fields),
    )


def _parts(fields: Mapping[str, Any], name: str) -> dict[str, float]:
    """Numbers by the names of what they stand for."""
    values = fields[name]
    if not isinstance(values, dict) or len(values) > MOST_PARTS or not all(map(_PART.fullmatch, values)):
        raise ValueError(f"field {name!r} is no table of at most {MOST_PARTS} named parts")
    return {part: duration(values, part) for part in values}


def _pipeline(fields: Any) -> Pipeline:
    if not isinstance(fields, dict):
        raise ValueError("field 'pipeline' is no table")
    counts = [whole(fields, name) for name in _WHOLE]
    return Pipeline(*counts, *(duration(fields, name) for name in _SECONDS))
