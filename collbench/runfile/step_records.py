"""Steps and their times as they stand in a run file, and on the wire between supervisor and workers."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from collbench.runfile.fields import duration
from collbench.step_times import COMMUNICATED, COMPUTED, Activity, Series
from collbench.steps import STRONG, WEAK, Step

_DIGITS = 9  # of a moment in seconds: the clocks are no finer


def to_step(fields: Mapping[str, Any]) -> Step:
    """The step of a case; KeyError, TypeError or ValueError if it is none."""
    products, size, bucket = (fields[name] for name in ("products", "size", "bucket"))
    if not all(type(value) is int and value >= 0 for value in (products, size, bucket)):
        raise ValueError("a step's products, size and bucket are whole numbers, none below 0")
    slow = tuple((int(rank), float(factor)) for rank, factor in fields["slow"])
    if not all(math.isfinite(factor) and factor > 0 for _, factor in slow):
        raise ValueError("a step's ranks are slow by factors above 0")
    seconds = duration(fields, "seconds") if "seconds" in fields else 0.0
    if not 0 <= seconds < math.inf:
        raise ValueError("a step's seconds are no time")
    ctas, mode = fields.get("ctas", 0), fields.get("mode", "")
    if type(ctas) is not int or ctas < 0:
        raise ValueError("a step's CTAs are a whole number, none below 0")
    if mode not in ("", WEAK, STRONG):
        raise ValueError(f"a step's mode is {WEAK} or {STRONG}")
    return Step(products, size, str(fields["schedule"]), bucket, slow, seconds, ctas, mode)


def step_record(step: Step) -> dict[str, Any]:
    """A step, by the names of what it is made of; mode and CTAs only where it has some."""
    return {name: value for name, value in asdict(step).items() if name not in ("mode", "ctas") or value}


def series_fields(series: Series) -> dict[str, Any]:
    """Moments to the nanosecond."""
    return {
        "begun": [round(moment, _DIGITS) for moment in series.begun],
        "computed": [[round(moment, _DIGITS) for moment in own] for own in series.computed],
        "done": [[round(moment, _DIGITS) for moment in own] for own in series.done],
    }


def to_series(fields: Mapping[str, Any], ranks: int) -> Series:
    """One series of so many ranks; ValueError if its moments cannot have followed each other."""
    begun = _moments(fields["begun"])
    computed, done = (tuple(map(_moments, fields[name])) for name in ("computed", "done"))
    steps = {len(own) for own in (*computed, *done)}
    if not len(begun) == len(computed) == len(done) == ranks or len(steps) != 1 or 0 in steps:
        raise ValueError(f"a series holds moments of {ranks} ranks, as many of one as of another")
    series = Series(begun, computed, done)
    for rank in range(ranks):
        for begins, ends, leaves in zip(series.begins(rank), computed[rank], done[rank], strict=True):
            if not begins <= ends <= leaves:
                raise ValueError("the moments of a series go backwards")
    return series


def activity_fields(activity: Activity) -> list[Any]:
    """Rank, what, bucket, start and seconds, to the nanosecond."""
    start, seconds = round(activity.start, _DIGITS), round(activity.seconds, _DIGITS)
    return [activity.rank, activity.what, activity.bucket, start, seconds]


def to_activity(values: Any) -> Activity:
    """ValueError if it is none."""
    rank, what, bucket, start, seconds = values
    if type(rank) is not int or type(bucket) is not int or what not in (COMPUTED, COMMUNICATED):
        raise ValueError("an activity of a step is a rank, what it did, a bucket, a start and a length")
    begun, length = _moments([start, seconds])
    return Activity(rank, what, bucket, begun, max(0.0, length))


def _moments(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
        raise ValueError("the moments of a series are lists of numbers")
    moments = tuple(map(float, values))
    if not all(map(math.isfinite, moments)):
        raise ValueError("a moment of a series is no time")
    return moments
