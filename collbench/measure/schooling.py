"""Carries training jobs out: every style once for a seed, a few steps first, and every update checked afterwards."""

import gc
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.learning.data import Data
from collbench.learning.network import loss
from collbench.learning.seat import Seat
from collbench.learning.trail import Kept, Part, Stepped, first_flaw, known_weights, miscounted, shared
from collbench.measure.sampling import SEEDS
from collbench.measure.sampling import Heartbeat as Progress
from collbench.platforms.interface import Platform
from collbench.platforms.scheduling import RunQueue
from collbench.results import CheckFailure, Note, Point, Result, Scheduling, Skipped, Trained
from collbench.styles import Style, Training, styles

FIRST = 4  # steps that are made and checked before any that count
TURN = 15  # steps of a turn: a slow rank makes some in it, and a machine's load hardly changes
POINTS = 50  # of a curve, about


@dataclass(frozen=True)
class _Pupil:
    """A style that trains, and the place of this process's rank in it."""

    case: Case
    style: Style
    seat: Seat
    training: Training

    @property
    def steps(self) -> int:
        """That it is to make."""
        return self.seat.job.steps


@dataclass(frozen=True)
class _Run:
    """What the ranks have done, as every process knows it."""

    trails: Sequence[Sequence[Kept]]
    begun: Sequence[Sequence[float]]  # by rank, whenever training went on
    computing: tuple[float, ...]
    flaw: CheckFailure | None
    note: Note
    scheduling: Scheduling


def train(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, progress: Progress
) -> Iterator[Result]:
    """*Collective*: yield a result of each style, in an order that turns with the seed, as drift should not help one.

    They take turns, A B B A, some steps at a time, so that whatever else the machine does meets them all alike.
    Raises CaseFailed when ranks wait in vain; the platform must then be opened anew.
    """
    assert case.job
    turn, steps = case.job.seed % len(names), case.job.steps
    pupils: list[_Pupil] = []
    for name in (*names[turn:], *names[:turn]):
        entrant = _entrant(case, styles()[name], platform, sampling, partial(progress, name))
        if isinstance(entrant, _Pupil):
            pupils.append(entrant)
        else:
            yield entrant
    order = list(pupils)
    for until in (*range(TURN, steps, TURN), steps):
        for pupil in order:
            _go(pupil, platform, until, partial(progress, pupil.style.name))
        order.reverse()
    for pupil in pupils:
        progress(pupil.style.name)
        run = _finished(pupil, platform)
        yield _trained(case, run, pupil.style, platform)


def _entrant(
    case: Case, style: Style, platform: Platform, sampling: Sampling, alive: Callable[[], None]
) -> _Pupil | Trained | Skipped:
    """Ready to train, after a few steps that were right; a result where nothing is left to do."""
    assert case.job
    alive()
    short = replace(case, job=replace(case.job, steps=min(FIRST, case.job.steps)))
    try:
        style.refuse(platform.name)
        pupil = _pupil(short, style, platform, sampling, alive)
        _go(pupil, platform, pupil.steps, alive)
        run = _finished(pupil, platform)
        if run.flaw or sampling.check_only:
            return _trained(case, run, style, platform)
        return _pupil(case, style, platform, sampling, alive)
    except Unsupported as reason:
        return Skipped(case, style.name, platform.name, str(reason))


def _pupil(case: Case, style: Style, platform: Platform, sampling: Sampling, alive: Callable[[], None]) -> _Pupil:
    """Unsupported, on all processes, if it cannot be."""
    platform.checker.fill(case, SEEDS[0])  # what lies beside the buffers is known then
    with platform.team.agreeing():
        seat = Seat(case, platform, sampling.timeout, alive)
        return _Pupil(case, style, seat, style.prepare(seat))


def _go(pupil: _Pupil, platform: Platform, until: int, alive: Callable[[], None]) -> None:
    """*Collective*: so far, from a meeting on; another one lets nobody compute before all have begun."""
    alive()
    gc.collect()
    platform.launcher.synchronize()
    pupil.seat.begin()
    platform.launcher.synchronize()
    with platform.team.agreeing():
        with RunQueue() as waited:
            pupil.training.go(until)
        pupil.seat.spoils.append(waited.spoiled and not platform.note.oversubscribed)
        platform.compute.refuse_given_up()
        for operation in pupil.seat.operations:
            if operation.refuse:
                operation.refuse()


def _finished(pupil: _Pupil, platform: Platform) -> _Run:
    """*Collective*: what became of it, and what is wrong with that."""
    seat = pupil.seat
    told = platform.team.exchange((pupil.training.trail(), seat.begun, sum(seat.computed), seat.spoils))
    trails, begun, computing, spoils = zip(*told, strict=True)
    flaw = platform.checker.overrun(pupil.case) or _checked(pupil.case, pupil.style, platform, trails)
    seat.close()
    note = Note.of(*(operation.library for operation in seat.operations))
    return _Run(trails, begun, computing, flaw, note, Scheduling.of_ranks(spoils))


def _checked(case: Case, style: Style, platform: Platform, trails: Sequence[Sequence[Kept]]) -> CheckFailure | None:
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
    clock = _clock(run)
    points = () if run.flaw else tuple(_points(case, common, clock, platform))
    return Trained(
        case=case,
        implementation=style.name,
        platform=platform.name,
        points=points,
        seconds=clock(common[-1].moment),
        steps=tuple(steps[rank] for rank in range(case.ranks)),
        computing=run.computing,
        age=float(np.mean(ages)) if ages else 0.0,
        mismatch=run.flaw,
        note=platform.note | run.note,
        scheduling=None if run.flaw else run.scheduling,
    )


def _parts(trails: Sequence[Sequence[Kept]]) -> Iterator[tuple[Stepped, Part]]:
    """All gradients that went into weights, with the update that each is a part of."""
    for kept in chain.from_iterable(trails):
        if isinstance(kept.origin, Stepped):
            yield from ((kept.origin, part) for part in kept.origin.parts)


def _clock(run: _Run) -> Callable[[float], float]:
    """From moments of updates to seconds of training: the time between two turns does not count.

    A turn lasts until its last update.  Ranks that change the weights in turn have one clock; else only one does.
    """
    sharing = [(begun, shared([trail])) for begun, trail in zip(run.begun, run.trails, strict=True)]
    starts = [min(moments) for moments in zip(*(begun for begun, trail in sharing if trail), strict=True)]
    spent = [0.0] * len(starts)
    for kept in (kept for _, trail in sharing for kept in trail):
        turn = bisect_right(starts, kept.moment) - 1
        spent[turn] = max(spent[turn], kept.moment - starts[turn])

    def seconds(moment: float) -> float:
        turn = bisect_right(starts, moment) - 1
        return float(sum(spent[:turn]) + moment - starts[turn])

    return seconds


def _points(case: Case, common: Sequence[Kept], clock: Callable[[float], float], platform: Platform) -> Iterator[Point]:
    """*Collective*: losses of the first weights, and of others spread evenly to the last; the ranks share the work."""
    assert case.job
    job, (rank,) = case.job, platform.local
    places = sorted(set(np.linspace(-1, len(common) - 1, POINTS + 1).round().astype(int).tolist()))
    with platform.team.agreeing():
        own = {
            place: loss(job, common[place].weights if place >= 0 else Data(job).first, *Data(job).held_out)
            for place in places[rank :: case.ranks]
        }
    losses = {place: value for part in platform.team.exchange(own) for place, value in part.items()}
    for place in places:
        batches, seconds = (common[place].name, clock(common[place].moment)) if place >= 0 else (0, 0.0)
        assert isinstance(batches, int)
        yield Point(batches, seconds, losses[place])
