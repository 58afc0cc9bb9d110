"""Carries training jobs out: every style once for a seed, a few steps first, and every update checked afterwards."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.flaws import Flaw
from collbench.learning.data import Data
from collbench.learning.network import loss
from collbench.learning.seat import Seat
from collbench.learning.trail import Kept, Part, Stepped, first_flaw, known_weights, miscounted, shared
from collbench.measure.runner import SEEDS, Progress
from collbench.measurement import Result, Skipped
from collbench.note import Note
from collbench.platforms.roles import Platform
from collbench.styles import Style, styles
from collbench.trained import Point, Trained

FIRST = 4  # steps that are made and checked before any that count
POINTS = 50  # of a curve, about


@dataclass(frozen=True)
class _Run:
    """What the ranks have done, as every process knows it."""

    case: Case
    trails: Sequence[Sequence[Kept]]
    begun: tuple[float, ...]  # by rank, as the moments of its trail
    computing: tuple[float, ...]
    flaw: Flaw | None
    note: Note


def train(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, progress: Progress
) -> Iterator[Result]:
    """*Collective*: yield a result of each style, in an order that turns with the seed, as drift should not help one.

    Raises CaseFailed when ranks wait in vain; the platform must then be opened anew.
    """
    assert case.job
    turn = case.job.seed % len(names)
    for name in (*names[turn:], *names[:turn]):
        progress(name)
        yield _result(case, styles()[name], platform, sampling, lambda name=name: progress(name))  # type: ignore[misc]


def _result(
    case: Case, style: Style, platform: Platform, sampling: Sampling, alive: Callable[[], None]
) -> Trained | Skipped:
    assert case.job
    short = replace(case, job=replace(case.job, steps=min(FIRST, case.job.steps)))
    try:
        style.refuse(platform.name)
        run = _run(short, style, platform, sampling, alive)
        if not run.flaw and not sampling.check_only:
            run = _run(case, style, platform, sampling, alive)
    except Unsupported as reason:
        return Skipped(case, style.name, platform.name, str(reason))
    return _trained(case, run, style, platform)


def _run(case: Case, style: Style, platform: Platform, sampling: Sampling, alive: Callable[[], None]) -> _Run:
    """Train once from the first weights on; Unsupported, on all processes, if it cannot be."""
    team = platform.team
    with team.agreeing():
        seat = Seat(case, platform, sampling.timeout, alive)
    with seat:
        with team.agreeing():
            run = style.prepare(seat)
        platform.fill(case, SEEDS[0])  # what lies beside the buffers is known then
        gc.collect()
        platform.synchronize()
        with team.agreeing():
            trail = run()
            platform.refuse_given_up()
            for operation in seat.operations:
                if operation.refuse:
                    operation.refuse()
        trails, begun, computing = zip(*team.exchange((trail, seat.begun, seat.computed)), strict=True)
        alive()
        flaw = platform.overrun(case) or _checked(case, style, platform, trails)
        note = Note.of(*(operation.library for operation in seat.operations))
    return _Run(case, trails, begun, computing, flaw, note)


def _checked(case: Case, style: Style, platform: Platform, trails: Sequence[Sequence[Kept]]) -> Flaw | None:
    """*Collective*: the first update that is not what it must be; the ranks share the work."""
    assert case.job
    job, (rank,) = case.job, platform.local
    if flaw := miscounted(job, case.ranks, shared(trails), style.behind(job)):
        return flaw
    known = known_weights(job, trails)
    every = [(owner, kept) for owner, trail in enumerate(trails) for kept in trail]
    with platform.team.agreeing():
        own = first_flaw(job, every[rank :: case.ranks], known)
    return next(filter(None, platform.team.exchange(own)), None)


def _trained(case: Case, run: _Run, style: Style, platform: Platform) -> Trained:
    common = shared(run.trails)
    ages = [origin.before - part.read for origin, part in _parts([common])]  # type: ignore[operator]
    steps = Counter(part.rank for _, part in _parts(run.trails))
    return Trained(
        case=case,
        implementation=style.name,
        platform=platform.name,
        points=() if run.flaw else tuple(_points(case, run, platform)),
        seconds=max(kept.moment - begun for trail, begun in zip(run.trails, run.begun, strict=True) for kept in trail),
        steps=tuple(steps[rank] for rank in range(case.ranks)),
        computing=run.computing,
        age=float(np.mean(ages)) if ages else 0.0,
        mismatch=run.flaw,
        note=platform.note | run.note,
    )


def _parts(trails: Sequence[Sequence[Kept]]) -> Iterator[tuple[Stepped, Part]]:
    """All gradients that went into weights, with the update that each is a part of."""
    for kept in chain.from_iterable(trails):
        if isinstance(kept.origin, Stepped):
            yield from ((kept.origin, part) for part in kept.origin.parts)


def _points(case: Case, run: _Run, platform: Platform) -> Iterator[Point]:
    """*Collective*: losses of the first weights, and of others spread evenly to the last; the ranks share the work.

    Ranks that change the weights in turn have one clock, and the first of them begins.
    """
    assert case.job
    common = shared(run.trails)
    start = min(begun for begun, trail in zip(run.begun, run.trails, strict=True) if shared([trail]))
    job, (rank,) = case.job, platform.local
    places = sorted(set(np.linspace(-1, len(common) - 1, POINTS + 1).round().astype(int).tolist()))
    with platform.team.agreeing():
        own = {
            place: loss(job, common[place].weights if place >= 0 else Data(job).first, *Data(job).held_out)
            for place in places[rank :: case.ranks]
        }
    losses = {place: value for part in platform.team.exchange(own) for place, value in part.items()}
    for place in places:
        batches, seconds = (common[place].name, common[place].moment - start) if place >= 0 else (0, 0.0)
        assert isinstance(batches, int)
        yield Point(batches, seconds, losses[place])
