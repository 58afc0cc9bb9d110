"""Carries communicators' lives out: the first of this process, then others until the budget is spent.

Runs alike on every process of the run, as collbench/measure/sampling.py does.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from collbench import algorithms
from collbench.cases import Case, Sampling, Sweep
from collbench.commands.init.lifecycles import LIFECYCLES, Lifecycle
from collbench.commands.init.rows import COLLECTIVE, IDENTITY, InitTimes, Life
from collbench.errors import CaseFailed, Unsupported
from collbench.measure.checks import SEEDS
from collbench.measure.sampling import Heartbeat
from collbench.platforms.interface import Platform
from collbench.platforms.layout import Needs
from collbench.platforms.processes import Team
from collbench.results import CheckFailure, Result, Skipped

MOST = 64  # communicators that a start makes after its first


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return what the library wants of memory."""
    return algorithms.needs(sweep.implementations, sweep.ranks, platform)


def measure(
    case: Case,
    names: Sequence[str],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """*Collective*: yield a result of each library.

    Raises:
        CaseFailed: A phase failed or took too long; the platform must be opened anew.

    """
    for name in names:
        try:
            life = LIFECYCLES[name](case, platform)
        except Unsupported as reason:
            yield Skipped(case, name, platform.name, str(reason))
            continue
        lives, failure = _lives(life, case, platform, sampling, partial(heartbeat, name))
        yield InitTimes(
            case=case,
            implementation=name,
            platform=platform.name,
            first=() if failure else tuple(lives[:1]),
            again=() if failure else tuple(lives[1:]),
            mismatch=failure,
            note=platform.note | life.note,
            library=life.library,
        )


def _lives(
    life: Lifecycle, case: Case, platform: Platform, sampling: Sampling, begin: Callable[[str], None]
) -> tuple[list[Life], CheckFailure | None]:
    """*Collective*: return as many lives as fit into the budget, two at least; one that went wrong ends them."""
    lives: list[Life] = []
    failure, spent = None, 0.0
    while not failure and (len(lives) < 2 or (len(lives) <= MOST and spent < sampling.budget)):
        taken, failure = _one(life, case, platform, SEEDS[len(lives) % len(SEEDS)], begin)
        lives.append(taken)
        spent += taken.seconds
    return lives, failure


def _one(
    life: Lifecycle, case: Case, platform: Platform, seed: int, begin: Callable[[str], None]
) -> tuple[Life, CheckFailure | None]:
    """*Collective*: return what a communicator took, and what is wrong with the result of its collective."""
    platform.checker.fill(case, seed)
    platform.launcher.synchronize()  # what fills the buffers is no part of the first phase
    own: dict[str, float] = {}
    failure = None
    for phase, action in life.phases.items():
        begin(phase)
        own[phase] = _timed(action, platform.team)
        if phase == COLLECTIVE:
            failure = platform.checker.check(case, seed) or platform.checker.overrun(case)
    every = platform.team.exchange(own)
    slowest: dict[str, float | None] = {IDENTITY: None}
    for phase in own:
        slowest[phase] = max(process[phase] for process in every)
    return Life(**slowest), failure  # type: ignore[arg-type]


def _timed(action: Callable[[], object], team: Team) -> float:
    """*Collective*: return the seconds of a phase on this process; all begin it together, from the end of the last."""
    team.meet()
    with team.agreeing():
        begun = time.perf_counter()
        try:
            action()
        except Unsupported as reason:
            # The library can be had, as was asked before: in this command it is a failure that it does not start.
            raise CaseFailed(str(reason)) from None
        return time.perf_counter() - begun
