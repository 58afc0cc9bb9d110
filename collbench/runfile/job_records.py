"""Training jobs and what they yield as they stand in a run file, and on the wire between supervisor and workers."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any

from collbench.jobs import Job
from collbench.runfile.fields import duration, durations, whole
from collbench.trained import Point, Trained

_DIGITS = 9  # of a moment in seconds: the clocks are no finer
_COUNTS = [field.name for field in fields(Job) if field.name not in ("slow", "rate", "target")]


def to_job(record: Mapping[str, Any]) -> Job:
    """The job of a case; KeyError, TypeError or ValueError if it is none."""
    counts = {name: whole(record, name) for name in _COUNTS}
    rate, slow = duration(record, "rate"), tuple((int(rank), float(factor)) for rank, factor in record["slow"])
    if min(counts.values()) < 0 or not all(
        math.isfinite(number) and number > 0 for number in (rate, *dict(slow).values())
    ):
        raise ValueError("a job's counts are not below 0, its rate and its ranks' factors are above")
    target = duration(record, "target") if "target" in record else 0.0
    if not 0 <= target < math.inf:
        raise ValueError("a job's target is a loss")
    return Job(**counts, rate=rate, slow=slow, target=target)


def trained_fields(result: Trained) -> dict[str, Any]:
    """Moments to the nanosecond; a loss that is no number is null."""
    return {
        "seconds": result.seconds,
        "points": [
            [batches, round(seconds, _DIGITS), loss if math.isfinite(loss) else None]
            for batches, seconds, loss in result.points
        ],
        "steps": list(result.steps),
        "computing": [round(seconds, _DIGITS) for seconds in result.computing],
        "age": result.age,
    }


def trained_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """The same by the names of a Trained; ValueError for what cannot be."""
    points = tuple(map(_point, record["points"]))
    if any(after.seconds < before.seconds or after.batches < before.batches for before, after in pairwise(points)):
        raise ValueError("the points of a training run go backwards")
    if not all(type(steps) is int and steps >= 0 for steps in record["steps"]):
        raise ValueError("the steps of ranks are whole numbers, none below 0")
    return {
        "points": points,
        "seconds": duration(record, "seconds"),
        "steps": tuple(record["steps"]),
        "computing": durations(record, "computing"),
        "age": duration(record, "age"),
    }


def _point(values: Any) -> Point:
    batches, seconds, loss = values
    if type(batches) is not int or batches < 0:
        raise ValueError("a point of a training run counts batches")
    return Point(batches, *durations({"point": [seconds, math.inf if loss is None else loss]}, "point"))


def job_fields(job: Job) -> dict[str, Any]:
    """A job, by the names of what it is made of; the target only where one was set."""
    return {name: value for name, value in asdict(job).items() if name != "target" or value}
