"""Cases, sweeps and results as they stand in a run file, and on the wire between supervisor and workers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from collbench.cases import Case, Sampling, Sweep
from collbench.clean import text
from collbench.collectives import find_collective
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.flaws import flaw_fields, to_flaw
from collbench.measurement import (
    Explanation,
    Failed,
    Measurement,
    Prediction,
    Reported,
    Result,
    Skipped,
    Untimed,
)
from collbench.note import Note, Sharing
from collbench.tracks import PHASES, Span, Track
from collbench.wires import Lost, Study

Common = tuple[Case, str, str]  # case, implementation, platform


def case_fields(case: Case) -> dict[str, Any]:
    """A case, by the names of what it is made of."""
    return {
        "collective": case.collective.name,
        "nbytes": case.nbytes,
        "dtype": case.dtype.name,
        "redop": case.redop.name,
        "root": case.root,
        "ranks": case.ranks,
        "in_place": case.in_place,
    }


def to_case(fields: dict[str, Any]) -> Case:
    """The case of a line; KeyError, TypeError or UsageError if it is none."""
    return Case(
        collective=find_collective(fields["collective"]),
        nbytes=_whole(fields, "nbytes"),
        dtype=find_datatype(fields["dtype"]),
        redop=NONE if fields["redop"] == NONE.name else find_reduction(fields["redop"]),
        root=_whole(fields, "root"),
        ranks=_whole(fields, "ranks"),
        in_place=bool(fields["in_place"]),
    )


def _whole(fields: Mapping[str, Any], name: str) -> int:
    """A field that must be a whole number: JSON's true is none, and nor is a text of digits."""
    value = fields[name]
    if type(value) is not int:
        raise ValueError(f"field {name!r} is {_shown(value)}, not a whole number")
    return value


def _seconds(fields: Mapping[str, Any], name: str) -> float:
    return _all_seconds({name: [fields[name]]}, name)[0]


def _all_seconds(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    values = fields[name]
    if not isinstance(values, list):
        raise ValueError(f"field {name!r} is {_shown(values)}, not a list of numbers")
    if not set(map(type, values)) <= {int, float}:
        wrong = next(value for value in values if type(value) not in (int, float))
        raise ValueError(f"field {name!r} holds {_shown(wrong)}, which is no number")
    return tuple(map(float, values))


def _shown(value: object) -> str:
    return text(repr(value)[:80], 40)


def sweep_fields(sweep: Sweep) -> dict[str, Any]:
    """A sweep as it stands in the header."""
    return {
        "collectives": [collective.name for collective in sweep.collectives],
        "sizes": list(sweep.sizes),
        "dtypes": [dtype.name for dtype in sweep.dtypes],
        "redops": [redop.name for redop in sweep.redops],
        "ranks": sweep.ranks,
        "implementations": list(sweep.implementations),
        "root": sweep.root,
        "in_place": sweep.in_place,
        "sampling": asdict(sweep.sampling),
        "spin": sweep.spin,
    }


def to_sweep(fields: dict[str, Any]) -> Sweep:
    """The sweep of a header that this version wrote."""
    named = {
        "collectives": tuple(find_collective(name) for name in fields["collectives"]),
        "sizes": tuple(fields["sizes"]),
        "dtypes": tuple(find_datatype(name) for name in fields["dtypes"]),
        "redops": tuple(find_reduction(name) for name in fields["redops"]),
        "implementations": tuple(fields["implementations"]),
        "sampling": Sampling(**fields["sampling"]),
    }
    return Sweep(**(fields | named))


def to_line(result: Result) -> dict[str, Any]:
    """A result as the fields of its line."""
    fields = {
        "kind": type(result).__name__.lower(),
        "implementation": result.implementation,
        "platform": result.platform,
        **case_fields(result.case),
    }
    if isinstance(result, Untimed):
        return fields | {"reason": result.reason}
    if isinstance(result, Explanation):
        return fields | _explanation_fields(result)
    if isinstance(result, Prediction):
        return fields | {name: getattr(result, name) for name in _PREDICTED} | note_fields(result.note)
    if isinstance(result, Reported):
        return fields | _reported_fields(result)
    fields |= {"launches": result.launches, "seconds": list(result.seconds)}
    fields |= {"check": "wrong"} | flaw_fields(result.mismatch) if result.mismatch else {"check": "ok"}
    fields |= note_fields(result.note)
    fields |= {"estimate": result.estimate} if result.estimate is not None else {}
    fields |= {"floor": result.floor} if result.floor is not None else {}
    fields |= {"library": result.library} if result.library else {}
    fields |= {"errors": asdict(result.errors)} if result.errors else {}
    return fields | ({"rounds": list(result.rounds)} if result.rounds else {})


def to_result(fields: dict[str, Any]) -> Result | None:
    """The result of a line; None for other lines, also of kinds that newer writers may add."""
    reader = _READERS.get(str(fields.get("kind")))
    return reader((to_case(fields), str(fields["implementation"]), str(fields["platform"])), fields) if reader else None


def _to_measurement(common: Common, fields: dict[str, Any]) -> Measurement:
    wrong, estimate, floor = fields["check"] == "wrong", fields.get("estimate"), float(fields.get("floor", 0))
    return Measurement(
        *common,
        launches=_whole(fields, "launches"),
        seconds=_all_seconds(fields, "seconds"),
        mismatch=to_flaw(fields) if wrong else None,
        note=_to_note(fields),
        estimate=None if estimate is None else _seconds(fields, "estimate"),
        rounds=tuple(int(field) for field in fields.get("rounds", ())),
        floor=floor if 0 < floor < math.inf else None,
        library=str(fields.get("library", "")),
        errors=_to_study(fields["errors"]) if fields.get("errors") else None,
    )


def _to_study(fields: dict[str, Any]) -> Study:
    plain, fed = (
        Lost(*(_seconds(fields[kind], name) for name in ("most", "rms", "bias"))) for kind in ("plain", "fed")
    )
    return Study(_whole(fields, "rounds"), _whole(fields, "elements"), plain, fed)


def note_fields(note: Note) -> dict[str, Any]:
    """The facts of a note, those that there are."""
    facts = asdict(note) | {"remarks": list(note.remarks)}
    return {name: value for name, value in facts.items() if value}


def _to_note(fields: Mapping[str, Any]) -> Note:
    shared = fields.get("shared")
    return Note(
        shared=Sharing(int(shared["ranks"]), int(shared["gpus"]), bool(shared["processes"])) if shared else None,
        oversubscribed=bool(fields.get("oversubscribed")),
        spin=str(fields.get("spin", "")),
        picked=str(fields.get("picked", "")),
        remarks=tuple(str(remark) for remark in fields.get("remarks", ())),
    )


_PREDICTED = ("seconds", "low", "high", "algorithm", "protocol")


def _to_prediction(common: Common, fields: dict[str, Any]) -> Prediction:
    case, implementation, platform = common
    seconds, low, high = (_seconds(fields, name) for name in ("seconds", "low", "high"))
    algorithm, protocol = (str(fields.get(name, "")) for name in ("algorithm", "protocol"))
    return Prediction(case, implementation, seconds, low, high, algorithm, protocol, platform, note=_to_note(fields))


def _reported_fields(result: Reported) -> dict[str, Any]:
    samples = {"samples": list(result.samples)} if result.samples else {}
    said = {"seconds": result.seconds, "statistic": result.statistic, "wrong": result.wrong_elements}
    return said | samples | note_fields(result.note) | {"printed": dict(result.printed)}


def _to_reported(common: Common, fields: dict[str, Any]) -> Reported:
    return Reported(
        *common,
        seconds=_seconds(fields, "seconds"),
        statistic=str(fields["statistic"]),
        wrong_elements=None if fields["wrong"] is None else _whole(fields, "wrong"),
        samples=_all_seconds({"samples": []} | fields, "samples"),
        printed=dict(fields.get("printed", {})),
        note=_to_note(fields),
    )


def _explanation_fields(result: Explanation) -> dict[str, Any]:
    fields: dict[str, Any] = {"seconds": result.seconds, "traced": result.traced}
    return fields | note_fields(result.note) | {"tracks": [_track_fields(track) for track in result.tracks]}


def _track_fields(track: Track) -> dict[str, Any]:
    """Times in seconds, to a tenth of a nanosecond: the clocks are no finer, and a file of digits is no use."""
    spans = [[span.phase, round(span.start, 10), round(span.seconds, 10)] for span in track.spans]
    return asdict(track) | {"spans": spans}


def _to_explanation(common: Common, fields: dict[str, Any]) -> Explanation:
    return Explanation(
        *common,
        seconds=_seconds(fields, "seconds"),
        traced=_seconds(fields, "traced"),
        tracks=tuple(_to_track(track) for track in fields["tracks"]),
        note=_to_note(fields),
    )


def _to_track(fields: dict[str, Any]) -> Track:
    return Track(
        rank=_whole(fields, "rank"),
        block=_whole(fields, "block"),
        start=float(fields["start"]),
        seconds=_seconds(fields, "seconds"),
        spent={phase: float(fields["spent"][phase]) for phase in PHASES},
        spans=tuple(Span(str(phase), float(start), float(seconds)) for phase, start, seconds in fields["spans"]),
        lost=int(fields.get("lost", 0)),
    )


_READERS: dict[str, Callable[[Common, dict[str, Any]], Result]] = {
    "skipped": lambda common, fields: Skipped(*common, reason=str(fields["reason"])),
    "failed": lambda common, fields: Failed(*common, reason=str(fields["reason"])),
    "measurement": _to_measurement,
    "explanation": _to_explanation,
    "prediction": _to_prediction,
    "reported": _to_reported,
}
