"""The schema of results, cases and sweeps: one definition for run files, for the wire to workers, and for the library.

The types and their limits stand at the classes themselves (collbench/results, collbench/cases.py); msgspec checks them.
Here is how they lie in a line: a line is flat, with the fields of its case and of its note next to those of the result.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any, TypeVar, get_args

import msgspec

from collbench.cases import Case, Job, Step, Sweep
from collbench.collectives import Collective, find_collective
from collbench.datatypes import NONE, Datatype, Reduction, find_datatype, find_reduction
from collbench.errors import UsageError
from collbench.results import (
    PARTS,
    CheckFailure,
    Explanation,
    Mismatch,
    Note,
    PlannedStep,
    Reported,
    Result,
    StepPrediction,
    StepTimes,
    Trained,
)
from collbench.results.collectives import PHASES
from collbench.results.facts import note_of
from collbench.results.steps import Series
from collbench.units import FASTEST, SLOWEST, counted

T = TypeVar("T")

_CASE = tuple(field.name for field in fields(Case))
_RARE = ("both_places", "starts", "steps", "jobs", "requested")  # of a sweep: written if they are not as by default
_NOTE = tuple(field.name for field in fields(Note))
_KINDS: dict[str, type[Result]] = {kind.kind: kind for kind in get_args(Result)}
_CHECKED = ("measurement", "steps", "training")
_FAILURES = {failure.kind: failure for failure in CheckFailure.__subclasses__()}
_APART = {"case", "implementation", "platform", "note", "mismatch"}  # fields of a result that to_line writes itself
_FIELDS = {
    kind: tuple(field for field in fields(result) if field.name not in _APART) for kind, result in _KINDS.items()
}
_ALWAYS = {"wrong_elements", "clock", "age", "algorithm", "protocol"}  # written also if they are as by default
_DIGITS = 9  # decimals of a moment of a step: the clocks are no finer than a nanosecond
_SPAN_DIGITS = 10


# Cases and sweeps


def case_fields(case: Case) -> dict[str, Any]:
    """Return a case as the fields of a line."""
    named = {name: _plain(getattr(case, name)) for name in _CASE}
    return {name: value for name, value in named.items() if value is not None}


def to_case(line: Mapping[str, Any]) -> Case:
    """Return the case of a line; ValueError that says what is wrong where there is none."""
    named = {name: line[name] for name in _CASE if name in line}
    found = {
        "collective": _named(named, "collective", find_collective),
        "dtype": _named(named, "dtype", find_datatype),
        "redop": _named(named, "redop", _find_reduction),
    }
    case = convert(named | found, Case)
    if case.root >= case.ranks:
        raise ValueError(f"no rank is the root {case.root}; choose from 0 to {case.ranks - 1}")
    return case


def sweep_fields(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as it stands in a header."""
    named = {}
    for field in fields(sweep):
        value = getattr(sweep, field.name)
        if field.name not in _RARE or value not in (field.default, 0):
            named["asked" if field.name == "requested" else field.name] = _plain(value)
    return named


def to_sweep(header: Mapping[str, Any]) -> Sweep:
    """Return the sweep of a header that this version wrote; ValueError that says what is wrong where there is none."""
    found = {
        "collectives": tuple(find_collective(name) for name in header["collectives"]),
        "dtypes": tuple(find_datatype(name) for name in header["dtypes"]),
        "redops": tuple(_find_reduction(name) for name in header["redops"]),
        "requested": header.get("asked"),
    }
    return convert({**header, **found}, Sweep)


def _plain(value: Any) -> Any:
    """Return a part of a case or a sweep for JSON; a step or a job without the fields that only some have."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Collective | Datatype | Reduction):
        return value.name
    built = msgspec.to_builtins(value)
    if isinstance(value, Step | Job):
        return {name: part for name, part in built.items() if part or name not in ("mode", "target")}
    return built


def _find_reduction(name: str) -> Reduction:
    return NONE if name == NONE.name else find_reduction(name)


def _named(line: Mapping[str, Any], name: str, find: Callable[[str], T]) -> T:
    word = line.get(name)
    if not isinstance(word, str):
        raise ValueError(f"field {name!r} is missing" if word is None else f"field {name!r} is no name")
    try:
        return find(word)
    except UsageError as error:
        raise ValueError(str(error)) from None


# Results


def to_line(result: Result) -> dict[str, Any]:
    """Return a result as the fields of its line."""
    line = {"kind": result.kind, "implementation": result.implementation, "platform": result.platform}
    line |= case_fields(result.case)
    if result.kind in _CHECKED:
        line |= {"check": "wrong"} | _failure_fields(result.mismatch) if result.mismatch else {"check": "ok"}
    line |= {name: value for name, value in msgspec.to_builtins(result.note).items() if value}
    for field in _FIELDS[result.kind]:
        value = getattr(result, field.name)
        if field.name in _ALWAYS or value != field.default:
            line[field.name] = _written(field.name, value)
    if result.kind == "reported":
        line["wrong"] = line.pop("wrong_elements")
    return line


def to_result(line: Mapping[str, Any]) -> Result | None:
    """Return the result of a line; None for other lines, also of kinds that newer versions may add.

    Raises:
        ValueError: The line is no result, or claims what cannot be.

    """
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    nested = {name: value for name, value in line.items() if name not in _CASE and name not in _NOTE}
    nested["case"] = to_case(line)
    nested["note"] = convert({name: line[name] for name in _NOTE if name in line}, Note)
    nested["mismatch"] = None
    if kind in _CHECKED:
        if line.get("check") not in ("ok", "wrong"):
            raise ValueError("field 'check' is neither 'ok' nor 'wrong'")
        nested["mismatch"] = _to_failure(line) if line["check"] == "wrong" else None
    for name in ("floor", "barrier") if kind == "measurement" else ():
        value = nested.get(name)
        if isinstance(value, int | float) and not 0 < value < math.inf:
            del nested[name]  # zero is what a clock too coarse for it gives
    if kind == "training" and isinstance(nested.get("points"), list):
        nested["points"] = [_with_loss(point) for point in nested["points"]]
    if kind == "reported":
        nested["wrong_elements"] = nested.pop("wrong", None)
    result = convert(nested, _KINDS[kind])
    if reason := contradiction(result):
        raise ValueError(reason)
    return result


def upgraded(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of format 1 as one of format 2: of the text `note` the facts are fields."""
    if not isinstance(line.get("note"), str):
        return line
    facts = msgspec.to_builtins(note_of(line.pop("note")))
    return line | {name: value for name, value in facts.items() if value}


def convert(value: Any, as_type: type[T]) -> T:
    """Return a JSON value as that type; ValueError in one line, with the name of the field, where it is none."""
    try:
        return msgspec.convert(value, as_type)
    except msgspec.ValidationError as error:
        words, _, place = str(error).replace("`", "").partition(" - at $")
        where = f"field {place.removeprefix('.')!r}: " if place else ""
        raise ValueError(f"{where}{words[0].lower()}{words[1:]}") from None


def _written(name: str, value: Any) -> Any:
    """Return the value of a result's field for its line: moments to the nanosecond, null for a loss that is NaN."""
    built = msgspec.to_builtins(value)
    if name == "points":
        return [
            [batches, round(seconds, _DIGITS), loss if math.isfinite(loss) else None]
            for batches, seconds, loss in built
        ]
    if name in ("series", "activities") or (name == "computing" and isinstance(built, list | tuple)):
        return _rounded(built, _DIGITS)
    if name == "tracks":
        return [track | {"spans": _rounded(track["spans"], _SPAN_DIGITS)} for track in built]
    return built


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return round(value, digits)
    if isinstance(value, dict):
        return {name: _rounded(part, digits) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part, digits) for part in value]
    return value


def _with_loss(point: Any) -> Any:
    """Return a point whose loss is infinite where it was no number."""
    return [*point[:2], math.inf] if isinstance(point, list) and len(point) == 3 and point[2] is None else point


_PLAIN = ("rank", "index", "chunk", "got", "expected", "wrong")


def _failure_fields(failure: CheckFailure) -> dict[str, Any]:
    """Return a check failure as two fields: `mismatch`, which every reader knows, and `flaw`, which is all of it."""
    every = msgspec.to_builtins(failure)
    if isinstance(failure, Mismatch):
        plain = {name: every.pop(name) for name in _PLAIN}
        more = {name: value for name, value in every.items() if value is not None}
        return {"mismatch": plain} | ({"flaw": {"kind": failure.kind} | more} if more else {})
    rank = every.get("rank", 0)
    plain = {"rank": rank, "index": 0, "chunk": 0, "got": str(failure), "expected": "nothing of the kind", "wrong": 0}
    return {"mismatch": plain, "flaw": {"kind": failure.kind} | every}


def _to_failure(line: Mapping[str, Any]) -> CheckFailure:
    """Return the check failure of a line; of a kind that only newer versions know, the mismatch that stands for it."""
    plain, more = line.get("mismatch"), line.get("flaw") or {"kind": Mismatch.kind}
    if not isinstance(plain, dict) or not isinstance(more, dict):
        raise ValueError("field 'mismatch' or 'flaw' is missing, or no object")
    kind = str(more.get("kind"))
    if kind == Mismatch.kind:
        return convert({**plain, **more}, Mismatch)
    return convert(more, _FAILURES[kind]) if kind in _FAILURES else convert(plain, Mismatch)


# What no type says


def contradiction(result: Result) -> str:
    """Return what is impossible about a result although each of its fields could be; empty if nothing is."""
    if isinstance(result, StepPrediction | PlannedStep) and not FASTEST < result.typical < SLOWEST:
        return "a time that is none: its parts add up to less than 1e-15 s, or more than 1e9 s"
    if isinstance(result, Reported):
        return "a time that is none: less than 1e-15 s" if 0 < result.seconds <= FASTEST else ""
    if isinstance(result, StepTimes):
        return _contradiction_of_steps(result)
    if isinstance(result, Trained):
        return _contradiction_of_training(result)
    return _contradiction_of_explanation(result) if isinstance(result, Explanation) else ""


def _contradiction_of_steps(result: StepTimes) -> str:
    ranks = result.case.ranks
    for series in result.series:
        lengths = {len(moments) for moments in (*series.computed, *series.done)}
        if not len(series.begun) == len(series.computed) == len(series.done) == ranks or len(lengths) != 1:
            return f"a series that does not hold as many moments of each of {counted(ranks, 'rank')}"
        if 0 in lengths or not all(_in_order(series, rank) for rank in range(ranks)):
            return "a series whose moments go backwards, or that has none"
    if result.rounds and (min(result.rounds) < 1 or sum(result.rounds) != len(result.series)):
        return "rounds that are not those of its series"
    if not all(FASTEST < seconds < SLOWEST for seconds in result.times):
        return "a time that is none: zero, negative, or beyond 1e-15 to 1e9 s"
    return ""


def _in_order(series: Series, rank: int) -> bool:
    moments = zip(series.begins(rank), series.computed[rank], series.done[rank], strict=True)
    return all(begun <= computed <= done for begun, computed, done in moments)


def _contradiction_of_training(result: Trained) -> str:
    if result.points and not result.seconds > FASTEST:
        return "a time that is none: a training run without any"
    for before, after in pairwise(result.points):
        if after.seconds < before.seconds or after.batches < before.batches:
            return "points of a training run that go backwards"
    return ""


def _contradiction_of_explanation(result: Explanation) -> str:
    if not all(track.spent.keys() >= set(PHASES) for track in result.tracks):
        return f"a track that does not say what was spent on {', '.join(PHASES)}"
    if result.tracks and not sum(map(result.spent, PARTS)) > 0:
        return "its log holds no time at all"
    return ""
