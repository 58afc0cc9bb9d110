"""`auto`: the hand-written implementation that the cost model selects.

The choice depends only on the case and the platform's record of its hardware, which are the same on every process.
"""

from contextlib import suppress
from dataclasses import replace

from collbench.algorithms import Implementation, implementations
from collbench.algorithms.ring import COLLECTIVES
from collbench.cases import Case
from collbench.errors import Unsupported
from collbench.platforms.interface import Platform, Prepared
from collbench.results import Note


def _candidates() -> list[Implementation]:
    return [way for way in implementations().values() if way.cost and not way.wire]


def expected(case: Case, platform: Platform) -> dict[str, float]:
    """Return the expected seconds of each candidate that supports the case on this hardware, fastest first."""
    seconds = {}
    for candidate in _candidates():
        if candidate.cost and platform.name in candidate.platforms:
            with suppress(Unsupported):
                candidate.refuse(case)
                seconds[candidate.name] = platform.hardware.seconds(candidate.cost(case), case.nbytes)
    return dict(sorted(seconds.items(), key=lambda item: item[1]))


def _home(platform: Platform, case: Case) -> Platform:
    """Return the ranks with multicast memory, if available and the expected fastest kernel needs it."""
    if any(implementations()[name].multicast for name in list(expected(case, platform))[:1]):
        with suppress(Unsupported):
            return platform.on_switch()
    return platform


def _prepare(case: Case, platform: Platform) -> Prepared:
    refused = []
    for name in expected(case, platform):
        # If a grid does not fit on one process, all must try the next candidate.
        try:
            with platform.team.agreeing():
                prepared = implementations()[name].prepare(case, platform)
        except Unsupported as reason:
            refused.append(f"{name}: {reason}")
            continue
        return replace(prepared, note=prepared.note | Note(picked=name))
    raise Unsupported(refused[0] if refused else "no hand-written implementation carries it out")


IMPLEMENTATION = Implementation(
    name="auto",
    summary="the implementation that a model of latency and bandwidth expects to be fastest",
    collectives=COLLECTIVES,  # of all candidates together
    prepare=_prepare,
    home=_home,
    order=11,
    uses=lambda: tuple(candidate.name for candidate in _candidates()),
)
