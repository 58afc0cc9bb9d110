"""`auto`: the rung that the model of costs expects to be fastest for a case, and its name in the row's note.

All that the choice looks at, the case and the platform's record of its hardware, is the same on every process.
"""

from dataclasses import replace

from collbench.algorithms import Implementation, implementations
from collbench.algorithms.ring_flags import COLLECTIVES
from collbench.cases import Case
from collbench.errors import Unsupported
from collbench.platforms.roles import Launching, Prepared
from collbench.results import Note


def _rungs() -> list[Implementation]:
    return [
        way for way in implementations().values() if way.cost and not way.wire
    ]  # a sum is exact unless asked otherwise


def expected(case: Case, platform: Launching) -> dict[str, float]:
    """Seconds that each rung which takes the case should need on this hardware, fastest first; equal ones by rung."""
    seconds = {}
    for rung in _rungs():
        try:
            rung.refuse(case)
        except Unsupported:
            continue
        if rung.cost and platform.name in rung.platforms:
            seconds[rung.name] = platform.hardware.seconds(rung.cost(case), case.nbytes)
    return dict(sorted(seconds.items(), key=lambda item: item[1]))


def _prepare(case: Case, platform: Launching) -> Prepared:
    """The first that the hardware lets us prepare."""
    refused = []
    for name in expected(case, platform):
        try:
            with platform.team.agreeing():  # one process may find no room for a grid that the others have
                prepared = implementations()[name].prepare(case, platform)
        except Unsupported as reason:
            refused.append(f"{name}: {reason}")
            continue
        return replace(prepared, note=prepared.note | Note(picked=name))
    raise Unsupported(refused[0] if refused else "no rung carries it out")


IMPLEMENTATION = Implementation(
    name="auto",
    summary="the rung that a model of latency and bandwidth expects to be fastest",
    platforms=("gpu", "cpu"),
    collectives=COLLECTIVES,  # of all rungs together
    prepare=_prepare,
    rung=11,
    uses=lambda: tuple(rung.name for rung in _rungs()),
)
