"""Steps back to back, and when every rank had computed and was done."""

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from collbench.measure.clocks import Taken
from collbench.platforms.products import at
from collbench.platforms.scheduling import RunQueue
from collbench.schedules import Moments, Parts, StepOf


@dataclass(frozen=True)
class Took:
    """What a series took: the moments of all ranks by their own clocks."""

    taken: Taken
    origins: float  # seconds by which moments of devices may be off the clocks of their processes
    paced: bool  # whether devices waited for the host to enqueue
    spoiled: bool  # whether a rank was off its core


def take(parts: Parts, step: StepOf, steps: Iterable[object]) -> Took:
    """*Collective*: so many steps from a meeting on.  CaseFailed if a library or a kernel says that it failed."""
    platform = parts.platform
    platform.launcher.synchronize()
    origins = platform.clock.set_clocks()
    platform.launcher.synchronize()
    with platform.compute.stepping():
        begun = parts.moments()
        for rank in platform.local:
            parts.products.take_over(rank)  # nobody computes before that moment
        with _uncollected(), RunQueue() as waited:
            moments, enqueued = _carried_out(step, steps, platform.compute.queued)
    platform.launcher.synchronize()
    origins = max(origins, platform.clock.set_clocks())
    with platform.team.agreeing(), platform.compute.stepping():
        for operation in parts.operations:
            if operation.refuse:
                operation.refuse()
        platform.compute.refuse_given_up()
    own = [
        (at(begun[place]), [at(had[place]) for had, _ in moments], [at(were[place]) for _, were in moments])
        for place, _ in enumerate(platform.local)
    ]
    spoiled = waited.spoiled and not platform.compute.queued and not platform.note.oversubscribed
    told = platform.team.exchange((origins, own, _paced(enqueued, own), spoiled))
    everyone = list(chain.from_iterable(ranks for _, ranks, _, _ in told))
    return Took(
        everyone,
        max(error for error, _, _, _ in told),
        any(paced for _, _, paced, _ in told),
        any(spoiled for *_, spoiled in told),
    )


def _carried_out(step: StepOf, steps: Iterable[object], queued: bool) -> tuple[list[Moments], list[float]]:
    """The moments of all steps, and where steps are enqueued, when they were; steps of a CPU may last for 20 us."""
    if not queued:
        return [step(None) for _ in steps], []
    moments, enqueued = [], []
    for _ in steps:
        moments.append(step(None))
        enqueued.append(time.perf_counter())
    return moments, enqueued


def _paced(enqueued: Sequence[float], own: Taken) -> bool:
    """Whether some device was done with a step before the next was enqueued, in most of the later half of the steps.

    A host that keeps up is ahead by then, and what it takes for a step shows nowhere.
    """
    later = range(max(2, len(enqueued) // 2), len(enqueued))
    waited = [min(done[number - 1] for _, _, done in own) < enqueued[number] for number in later]
    return 2 * sum(waited) > len(waited)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's collector of garbage, which would look through what is kept of every step."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
