"""A few more steps, looked at closely: what every rank did for every bucket, and when."""

from itertools import chain

from collbench.platforms.interface import Platform
from collbench.platforms.products import at
from collbench.results import Activity
from collbench.schedules import Recorder, StepOf

_STEPS = 7  # at most, of which the one of median length is kept
_SECONDS = 2.0  # that they last about at most: nobody hears of them meanwhile
_MOST = 4096  # activities of it


def activities(step: StepOf, platform: Platform, seconds: float) -> tuple[Activity, ...]:
    """*Collective*: those of a typical step, of all ranks; none where they would be too many to look at.

    `seconds` is about what a step takes, the same on every process.
    """
    recorders = [Recorder() for _ in range(min(_STEPS, max(1, int(_SECONDS / seconds))))]
    platform.launcher.synchronize()
    with platform.compute.stepping():
        for recorder in recorders:
            step(recorder)
    platform.launcher.synchronize()
    own = [_own(recorder) for recorder in recorders]
    everyone = platform.team.exchange(own)
    steps = [tuple(chain.from_iterable(ranks)) for ranks in zip(*everyone, strict=True)]
    typical = sorted(steps, key=_length)[len(steps) // 2]
    origin = min((start for _, _, _, start, _ in typical), default=0.0)
    if len(typical) > _MOST:
        return ()
    return tuple(
        Activity(rank, what, bucket, start - origin, end - start) for rank, what, bucket, start, end in typical
    )


def _own(recorder: Recorder) -> list[tuple[int, str, int, float, float]]:
    return [(rank, what, bucket, at(begun), at(ended)) for rank, what, bucket, begun, ended in recorder.noted]


def _length(step: tuple[tuple[int, str, int, float, float], ...]) -> float:
    return max((end for *_, end in step), default=0.0) - min((start for *_, start, _ in step), default=0.0)
