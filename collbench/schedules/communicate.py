"""`communicate`: the communicating of a step alone, bucket by bucket: the other side of what overlap can reach."""

from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf, send_all
from collbench.steps import COMMUNICATE


def _prepare(parts: Parts) -> StepOf:
    def step(recorder: Recorder | None) -> Moments:
        begun = parts.moments()
        send_all(parts, recorder)
        return list(zip(begun, parts.moments(), strict=True))

    return step


SCHEDULE = Schedule(COMMUNICATE, "communicate, and compute nothing", _prepare, computes=False)
