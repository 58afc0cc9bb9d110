"""Cases, sweeps and results as they stand in a run file, and on the wire between supervisor and workers."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from collbench.cases import Case, Sampling, SizeRange, Sweep
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
from collbench.planned import PlannedStep
from collbench.runfile.fields import duration, durations, whole
from collbench.runfile.job_records import job_fields, to_job, trained_fields, trained_values
from collbench.runfile.note_records import note_fields, to_note
from collbench.runfile.plan_records import planned_fields, to_planned
from collbench.runfile.scheduling_records import scheduling_fields, to_scheduling
from collbench.runfile.step_records import step_record, to_step
from collbench.runfile.step_rows import predicted_step_fields, step_fields, to_step_prediction, to_step_times
from collbench.runfile.track_records import to_track, track_fields
from collbench.stats import Spread
from collbench.step_times import StepPrediction, StepTimes
from collbench.trained import Trained
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
        **({"step": step_record(case.step)} if case.step else {}),
        **({"job": job_fields(case.job)} if case.job else {}),
    }


def to_case(fields: dict[str, Any]) -> Case:
    """The case of a line; KeyError, TypeError or UsageError if it is none."""
    return Case(
        collective=find_collective(fields["collective"]),
        nbytes=whole(fields, "nbytes"),
        dtype=find_datatype(fields["dtype"]),
        redop=NONE if fields["redop"] == NONE.name else find_reduction(fields["redop"]),
        root=whole(fields, "root"),
        ranks=whole(fields, "ranks"),
        in_place=bool(fields["in_place"]),
        step=to_step(fields["step"]) if fields.get("step") else None,
        job=to_job(fields["job"]) if fields.get("job") else None,
    )


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
        **({"both_places": True} if sweep.both_places else {}),
        "sampling": asdict(sweep.sampling),
        "spin": sweep.spin,
        "bind": sweep.bind,
        **({"starts": sweep.starts} if sweep.starts > 1 else {}),
        **({"steps": [step_record(step) if step else None for step in sweep.steps]} if any(sweep.steps) else {}),
        **({"jobs": [job_fields(job) if job else None for job in sweep.jobs]} if any(sweep.jobs) else {}),
        **({"asked": asdict(sweep.asked)} if sweep.asked else {}),
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
        "steps": tuple(to_step(step) if step else None for step in fields.get("steps", [None])),
        "asked": SizeRange(**fields["asked"]) if fields.get("asked") else None,
        "jobs": tuple(to_job(job) if job else None for job in fields.get("jobs", [None])),
    }
    return Sweep(**(fields | named))


def to_line(result: Result) -> dict[str, Any]:
    """A result as the fields of its line."""
    fields = {
        "kind": _KINDS.get(type(result)) or type(result).__name__.lower(),
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
    if isinstance(result, StepPrediction | PlannedStep):
        return fields | (planned_fields(result) if isinstance(result, PlannedStep) else predicted_step_fields(result))
    if isinstance(result, Reported):
        return fields | _reported_fields(result)
    fields |= {"check": "wrong"} | flaw_fields(result.mismatch) if result.mismatch else {"check": "ok"}
    fields |= note_fields(result.note)
    if isinstance(result, StepTimes):
        return fields | step_fields(result)
    if isinstance(result, Trained):
        return fields | trained_fields(result) | scheduling_fields(result.scheduling)
    fields |= {"launches": result.launches, "seconds": list(result.seconds)}
    fields |= {"estimate": result.estimate} if result.estimate is not None else {}
    fields |= {"floor": result.floor} if result.floor is not None else {}
    fields |= {"barrier": result.barrier} if result.barrier is not None else {}
    fields |= {"library": result.library} if result.library else {}
    fields |= {"errors": asdict(result.errors)} if result.errors else {}
    fields |= scheduling_fields(result.scheduling)
    fields |= {"spread": asdict(result.spread)} if result.spread else {}
    return fields | ({"rounds": list(result.rounds)} if result.rounds else {})


def to_result(fields: dict[str, Any]) -> Result | None:
    """The result of a line; None for other lines, also of kinds that newer writers may add."""
    reader = _READERS.get(str(fields.get("kind")))
    return reader((to_case(fields), str(fields["implementation"]), str(fields["platform"])), fields) if reader else None


def _to_trained(common: Common, fields: dict[str, Any]) -> Trained:
    flaw = to_flaw(fields) if fields["check"] == "wrong" else None
    return Trained(
        *common, **trained_values(fields), mismatch=flaw, note=to_note(fields), scheduling=to_scheduling(fields)
    )


def _to_measurement(common: Common, fields: dict[str, Any]) -> Measurement:
    wrong, estimate = fields["check"] == "wrong", fields.get("estimate")
    floor, barrier = (float(fields.get(name, 0)) for name in ("floor", "barrier"))
    return Measurement(
        *common,
        launches=whole(fields, "launches"),
        seconds=durations(fields, "seconds"),
        mismatch=to_flaw(fields) if wrong else None,
        note=to_note(fields),
        estimate=None if estimate is None else duration(fields, "estimate"),
        rounds=tuple(int(field) for field in fields.get("rounds", ())),
        floor=floor if 0 < floor < math.inf else None,
        barrier=barrier if 0 < barrier < math.inf else None,
        library=str(fields.get("library", "")),
        errors=_to_study(fields["errors"]) if fields.get("errors") else None,
        scheduling=to_scheduling(fields),
        spread=_to_spread(fields["spread"]) if fields.get("spread") else None,
    )


def _to_spread(fields: dict[str, Any]) -> Spread:
    return Spread(duration(fields, "deviation"), duration(fields, "freedom"))


def _to_study(fields: dict[str, Any]) -> Study:
    plain, fed = (
        Lost(*(duration(fields[kind], name) for name in ("most", "rms", "bias"))) for kind in ("plain", "fed")
    )
    return Study(whole(fields, "rounds"), whole(fields, "elements"), plain, fed)


_PREDICTED = ("seconds", "low", "high", "algorithm", "protocol")


def _to_prediction(common: Common, fields: dict[str, Any]) -> Prediction:
    case, implementation, platform = common
    seconds, low, high = (duration(fields, name) for name in ("seconds", "low", "high"))
    algorithm, protocol = (str(fields.get(name, "")) for name in ("algorithm", "protocol"))
    return Prediction(case, implementation, seconds, low, high, algorithm, protocol, platform, note=to_note(fields))


def _reported_fields(result: Reported) -> dict[str, Any]:
    samples = {"samples": list(result.samples)} if result.samples else {}
    said = {"seconds": result.seconds, "statistic": result.statistic, "wrong": result.wrong_elements}
    return said | samples | note_fields(result.note) | {"printed": dict(result.printed)}


def _to_reported(common: Common, fields: dict[str, Any]) -> Reported:
    return Reported(
        *common,
        seconds=duration(fields, "seconds"),
        statistic=str(fields["statistic"]),
        wrong_elements=None if fields["wrong"] is None else whole(fields, "wrong"),
        samples=durations({"samples": []} | fields, "samples"),
        printed=dict(fields.get("printed", {})),
        note=to_note(fields),
    )


def _explanation_fields(result: Explanation) -> dict[str, Any]:
    fields: dict[str, Any] = {"seconds": result.seconds, "traced": result.traced}
    fields |= note_fields(result.note) | scheduling_fields(result.scheduling)
    return fields | {"tracks": [track_fields(track) for track in result.tracks]}


def _to_explanation(common: Common, fields: dict[str, Any]) -> Explanation:
    return Explanation(
        *common,
        seconds=duration(fields, "seconds"),
        traced=duration(fields, "traced"),
        tracks=tuple(to_track(track) for track in fields["tracks"]),
        note=to_note(fields),
        scheduling=to_scheduling(fields),
    )


_KINDS: dict[type, str] = {
    StepTimes: "steps",
    StepPrediction: "predicted-steps",
    Trained: "training",
    PlannedStep: "planned",
}  # others are called as their class is
_READERS: dict[str, Callable[[Common, dict[str, Any]], Result]] = {
    "skipped": lambda common, fields: Skipped(*common, reason=str(fields["reason"])),
    "failed": lambda common, fields: Failed(*common, reason=str(fields["reason"])),
    "measurement": _to_measurement,
    "steps": to_step_times,
    "predicted-steps": to_step_prediction,
    "training": _to_trained,
    "planned": to_planned,
    "explanation": _to_explanation,
    "prediction": _to_prediction,
    "reported": _to_reported,
}
