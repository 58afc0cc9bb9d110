"""`communicate`: the communicating of a step alone, bucket by bucket: the other side of what overlap can reach."""

from collbench.cases import COMMUNICATE
from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf, sender


def _prepare(parts: Parts) -> StepOf:
    send, buckets = sender(parts), range(len(parts.operations))

    def step(recorder: Recorder | None) -> Moments:
        begun = parts.moments()
        for bucket in buckets:
            send(bucket, recorder)
        return begun, parts.moments()

    return step


SCHEDULE = Schedule(COMMUNICATE, "communicate, and compute nothing", _prepare, computes=False)
