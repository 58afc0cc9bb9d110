"""Steps back to back, and when every rank had computed and was done."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from collbench.measure.clocks import Taken
from collbench.platforms.products import at
from collbench.schedules import Parts, StepOf


def take(parts: Parts, step: StepOf, steps: Iterable[object]) -> tuple[Taken, float]:
    """*Collective*: so many steps from a meeting on, and the moments of all ranks by their own clocks.

    With the seconds by which devices' may be off those of their processes.  CaseFailed if a library or a kernel says
    that it failed.
    """
    platform = parts.platform
    platform.synchronize()
    origins = platform.set_clocks()
    platform.synchronize()
    with platform.stepping():
        begun = parts.moments()
        for rank in platform.local:
            parts.products.take_over(rank)  # nobody computes before that moment
        with _uncollected():
            moments = [step(None) for _ in steps]
    platform.synchronize()
    with platform.team.agreeing(), platform.stepping():
        for operation in parts.operations:
            if operation.refuse:
                operation.refuse()
        platform.refuse_given_up()
    own = [
        (at(begun[place]), [at(had[place]) for had, _ in moments], [at(were[place]) for _, were in moments])
        for place, _ in enumerate(platform.local)
    ]
    told = platform.team.exchange((origins, own))
    everyone = list(chain.from_iterable(ranks for _, ranks in told))
    return everyone, max(error for error, _ in told)


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
