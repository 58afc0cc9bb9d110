"""Steps back to back, and when every rank had computed and was done."""

from collections.abc import Iterable
from itertools import chain

from collbench.measure.clocks import Taken
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
        moments = [step(None) for _ in steps]
    platform.synchronize()
    with platform.team.agreeing(), platform.stepping():
        for operation in parts.operations:
            if operation.refuse:
                operation.refuse()
        platform.refuse_given_up()
    own = [
        (begun[place](), [one[place][0]() for one in moments], [one[place][1]() for one in moments])
        for place, _ in enumerate(platform.local)
    ]
    told = platform.team.exchange((origins, own))
    everyone = list(chain.from_iterable(ranks for _, ranks in told))
    return everyone, max(error for error, _ in told)
