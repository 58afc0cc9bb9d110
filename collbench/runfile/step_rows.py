"""Rows of steps, measured and predicted, as they stand in a run file."""

from typing import Any

from collbench.cases import Case
from collbench.flaws import to_flaw
from collbench.runfile.fields import duration, durations
from collbench.runfile.note_records import note_fields, to_note
from collbench.runfile.scheduling_records import scheduling_fields, to_scheduling
from collbench.runfile.step_records import activity_fields, series_fields, to_activity, to_series
from collbench.step_times import StepPrediction, StepTimes


def step_fields(result: StepTimes) -> dict[str, Any]:
    """Series, what was done in a typical step, and how far the clocks may be off."""
    series = [series_fields(series) for series in result.series]
    fields = {"series": series, "clock": result.clock} | ({"library": result.library} if result.library else {})
    fields |= scheduling_fields(result.scheduling)
    if result.activities:
        fields["activities"] = [activity_fields(activity) for activity in result.activities]
    return fields | ({"rounds": list(result.rounds)} if result.rounds else {})


def to_step_times(common: tuple[Case, str, str], fields: dict[str, Any]) -> StepTimes:
    """The steps of a row; KeyError, TypeError or ValueError if it has none."""
    series = tuple(to_series(series, common[0].ranks) for series in fields["series"])
    rounds = tuple(int(field) for field in fields.get("rounds", ()))
    if rounds and (min(rounds) < 1 or sum(rounds) != len(series)):
        raise ValueError("the rounds of a row are not those of its series")
    return StepTimes(
        *common,
        series=series,
        mismatch=to_flaw(fields) if fields["check"] == "wrong" else None,
        note=to_note(fields),
        library=str(fields.get("library", "")),
        rounds=rounds,
        activities=tuple(to_activity(activity) for activity in fields.get("activities", ())),
        clock=duration(fields, "clock"),
        scheduling=to_scheduling(fields),
    )


def predicted_step_fields(result: StepPrediction) -> dict[str, Any]:
    """The parts, the band and what the library would choose."""
    named = {name: getattr(result, name) for name in ("low", "high", "algorithm", "protocol")}
    return {"parts": list(result.parts)} | named | note_fields(result.note)


def to_step_prediction(common: tuple[Case, str, str], fields: dict[str, Any]) -> StepPrediction:
    """The predicted step of a row; likewise."""
    case, implementation, platform = common
    computing, waiting, exposed = durations(fields, "parts")
    low, high = (duration(fields, name) for name in ("low", "high"))
    way, protocol = (str(fields.get(name, "")) for name in ("algorithm", "protocol"))
    parts = computing, waiting, exposed
    return StepPrediction(case, implementation, parts, low, high, way, protocol, platform, note=to_note(fields))
