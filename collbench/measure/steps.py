"""Measures steps of a case: check, calibrate, then series of all implementations in turn, and check again.

Runs alike on every process of the run, as collbench/measure/runner.py does.  Steps of a series follow each other
without a meeting besides their own, as those of a training loop do, so that a late rank costs what it costs there.
"""

import gc
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Self

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.measure.clocks import Clocks, Taken
from collbench.measure.sampling import SEEDS, Heartbeat, enough
from collbench.measure.schedules import Moments, Parts, Recorder, RunStep, find_schedule, refuse
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.products import Products, at
from collbench.platforms.scheduling import RunQueue
from collbench.results import Activity, CheckFailure, Note, Result, Scheduling, Skipped, StepTimes

SERIES = 0.02  # seconds that a series lasts at least: what one step hands on to the next counts then
MOST_STEPS = 256  # of a series: the moments of each step are stored
LONGEST = 2.0  # seconds that a series lasts about at most, so that implementations take turns and a budget can be met
_HEARTBEAT = 0.5  # seconds between two signs of life in a series
_TRACED_STEPS = 7  # at most, of which the one of median length is stored
_TRACED_SECONDS = 2.0  # that they last about at most: they give no sign of life
_MOST_ACTIVITIES = 4096  # of a traced step


# Series of steps.


@dataclass(frozen=True)
class TakenSeries:
    """A series as it was taken: the moments of all ranks by their own clocks."""

    taken: Taken
    origins: float  # seconds by which moments of devices may be off the clocks of their processes
    paced: bool  # whether devices waited for the host to enqueue
    spoiled: bool  # whether a rank was off its core


def take_series(parts: Parts, step: RunStep, steps: Iterable[object]) -> TakenSeries:
    """*Collective*: take a series of steps from a meeting on; CaseFailed if a library or a kernel reports a failure."""
    platform = parts.platform
    platform.launcher.synchronize()
    origins = platform.clock.set_clocks()
    platform.launcher.synchronize()
    with platform.compute.stepping():
        begun = parts.moments()
        for rank in platform.local:
            parts.products.take_over(rank)  # no rank computes before that moment
        with _without_garbage_collection(), RunQueue() as waited:
            moments, enqueued = _run_steps(step, steps, platform.compute.queued)
    platform.launcher.synchronize()
    origins = max(origins, platform.clock.set_clocks())
    with platform.team.agreeing(), platform.compute.stepping():
        for operation in parts.operations:
            if operation.refuse:
                operation.refuse()
        platform.compute.refuse_given_up()
    own: list[tuple[float, list[float], list[float]]] = []
    for place, _ in enumerate(platform.local):
        computed = [at(moment[place]) for moment, _ in moments]
        done = [at(moment[place]) for _, moment in moments]
        own.append((at(begun[place]), computed, done))
    spoiled = waited.spoiled and not platform.compute.queued and not platform.note.oversubscribed
    every = platform.team.exchange(TakenSeries(own, origins, _host_was_late(enqueued, own), spoiled))
    return TakenSeries(
        taken=list(chain.from_iterable(process.taken for process in every)),
        origins=max(process.origins for process in every),
        paced=any(process.paced for process in every),
        spoiled=any(process.spoiled for process in every),
    )


def _run_steps(step: RunStep, steps: Iterable[object], queued: bool) -> tuple[list[Moments], list[float]]:
    """Return the moments of all steps, and when they were enqueued; not on a CPU, where a step may last for 20 us."""
    if not queued:
        return [step(None) for _ in steps], []
    moments, enqueued = [], []
    for _ in steps:
        moments.append(step(None))
        enqueued.append(time.perf_counter())
    return moments, enqueued


def _host_was_late(enqueued: Sequence[float], own: Taken) -> bool:
    """Return whether in most of the later half of the steps a device was done before the next step was enqueued.

    A host that keeps up is ahead by then, and its time for a step does not show.
    """
    later = range(max(2, len(enqueued) // 2), len(enqueued))
    waited = [min(done[number - 1] for _, _, done in own) < enqueued[number] for number in later]
    return 2 * sum(waited) > len(waited)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep Python's collector from looking through what is stored of every step."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


# One traced step.

_Noted = tuple[int, str, int, float, float]  # rank, what, bucket, begun, ended


def trace_step(step: RunStep, platform: Platform, seconds: float) -> tuple[Activity, ...]:
    """*Collective*: return what all ranks did in a step of median length; nothing where that would be too much.

    *seconds* is about what a step takes, the same on every process.
    """
    recorders = [Recorder() for _ in range(min(_TRACED_STEPS, max(1, int(_TRACED_SECONDS / seconds))))]
    platform.launcher.synchronize()
    with platform.compute.stepping():
        for recorder in recorders:
            step(recorder)
    platform.launcher.synchronize()
    every = platform.team.exchange([_noted(recorder) for recorder in recorders])
    steps = [list(chain.from_iterable(ranks)) for ranks in zip(*every, strict=True)]
    median = sorted(steps, key=_length)[len(steps) // 2]
    if len(median) > _MOST_ACTIVITIES:
        return ()
    origin = min((begun for *_, begun, _ in median), default=0.0)
    return tuple(
        Activity(rank, what, bucket, begun - origin, ended - begun) for rank, what, bucket, begun, ended in median
    )


def _noted(recorder: Recorder) -> list[_Noted]:
    return [(rank, what, bucket, at(begun), at(ended)) for rank, what, bucket, begun, ended in recorder.noted]


def _length(step: Sequence[_Noted]) -> float:
    return max((ended for *_, ended in step), default=0.0) - min((begun for *_, begun, _ in step), default=0.0)


# Implementations in turn.


@dataclass(frozen=True)
class _Run:
    """What all candidates have in common."""

    case: Case
    platform: Platform
    products: Products
    clocks: Clocks
    heartbeat: Heartbeat

    @classmethod
    def of(cls, case: Case, platform: Platform, heartbeat: Heartbeat) -> Self:
        """Make the matrices and read the clocks."""
        assert case.step
        with platform.team.agreeing():
            products = platform.compute.products(case.step.size)
        clocks = Clocks(platform.team)
        clocks.read()
        return cls(case, platform, products, clocks, heartbeat)


@dataclass
class _Candidate:
    """An implementation whose first step was right, and its series so far."""

    run: _Run
    implementation: Implementation
    parts: Parts
    step: RunStep
    note: Note
    steps: int = 1  # of a series
    taken: list[TakenSeries] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)  # seconds of a step, by series
    activities: tuple[Activity, ...] = ()

    def take(self, steps: int = 0) -> TakenSeries:
        """*Collective*: take one more series, of another length where one is given."""
        taken = take_series(self.parts, self.step, self._with_heartbeat(steps or self.steps))
        self.run.clocks.origins = max(self.run.clocks.origins, taken.origins)
        return taken

    def _with_heartbeat(self, steps: int) -> Iterator[None]:
        """Yield so often, with a sign of life now and then, which tells a step that takes long from one that hangs."""
        last = -math.inf
        for _ in range(steps):
            if (now := time.monotonic()) > last + _HEARTBEAT:
                self.run.heartbeat(self.implementation.name)
                last = now
            yield

    def keep(self, taken: TakenSeries) -> float:
        """Keep a series as a sample; return its seconds, all steps together."""
        series = self.run.clocks.series(taken.taken)
        self.taken.append(taken)
        self.samples.append(series.seconds)
        return series.seconds * series.steps


def measure_steps(
    case: Case,
    implementations: Sequence[Implementation],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat = lambda name: None,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """*Collective*: yield one result for each implementation.

    Args:
        case: The case, with its step.
        implementations: What carries the collective out.
        platform: Where the ranks live.
        sampling: How long to measure.
        heartbeat: Called with an implementation's name as a sign of life.
        launches: The number of steps of a series by implementation, where it is known from an earlier round.

    Raises:
        CaseFailed: A kernel gave up waiting; the platform must then be opened anew.

    """
    run = _Run.of(case, platform, heartbeat)
    candidates = []
    for implementation in implementations:
        heartbeat(implementation.name)
        tried = _try(run, implementation, sampling.check_only)
        if isinstance(tried, _Candidate):
            candidates.append(tried)
        else:
            yield tried
    yield from _measure(run, candidates, sampling, launches or {})


def _measure(
    run: _Run, candidates: Sequence[_Candidate], sampling: Sampling, known: Mapping[str, int]
) -> Iterator[StepTimes]:
    """Calibrate all candidates, sample them in turn, and check them once more."""
    for candidate in candidates:
        run.heartbeat(candidate.implementation.name)
        candidate.steps = known.get(candidate.implementation.name) or _calibrate(candidate, sampling)
    _sample(candidates, sampling, run.heartbeat)
    # The products of all series so far: an error of any makes all times worthless, whichever communicated meanwhile.
    miscomputed = run.products.check()
    run.clocks.read()
    for candidate in candidates:
        name = candidate.implementation.name
        run.heartbeat(name)
        taken, flaw = _check(candidate, SEEDS[3])
        candidate.keep(taken)
        if name not in known:  # a trace of the first round is enough
            candidate.activities = trace_step(candidate.step, run.platform, min(candidate.samples))
        yield _result(candidate, flaw or miscomputed)


def _try(run: _Run, implementation: Implementation, check_only: bool) -> _Candidate | StepTimes | Skipped:
    """Prepare an implementation and check its first step; return a result where nothing is left to measure."""
    try:
        candidate = _prepare(run, implementation)
    except Unsupported as reason:
        return Skipped(run.case, implementation.name, run.platform.name, str(reason))
    _, flaw = _check(candidate, SEEDS[0])
    return _result(candidate, flaw) if flaw or check_only else candidate


def _prepare(run: _Run, implementation: Implementation) -> _Candidate:
    """Raise Unsupported if the implementation, or the schedule, cannot do it."""
    case, platform = run.case, run.platform
    assert case.step
    refuse(case, implementation, platform.name)
    with platform.team.agreeing():
        schedule = find_schedule(case.step.schedule)
        prepare = implementation.prepare if schedule.communicates else _prepare_nothing
        operations = [prepare(part, platform.shifted(offset)) for offset, part in case.buckets()]
        parts = Parts(case, platform, run.products, operations)
        step, note = schedule.prepare(parts), Note.of(schedule.remark(case.ranks))
        return _Candidate(run, implementation, parts, step, note)


def _prepare_nothing(case: Case, platform: Platform) -> Prepared:
    """Prepare no communication: computing alone needs no implementation that works here."""
    return Prepared(lambda launches: None)


def _check(candidate: _Candidate, seed: int) -> tuple[TakenSeries, CheckFailure | None]:
    """Take a series with known data; return it with what is wrong in the buffers, next to them, or in the matrices.

    In place a result is the next step's input, so that only the result of a single step is known.
    """
    run = candidate.run
    case, platform, products = run.case, run.platform, run.products
    assert case.step
    schedule = find_schedule(case.step.schedule)
    wire = candidate.parts.operations[0].wire
    platform.checker.fill(case, seed, wire)
    products.reset()
    taken = candidate.take()
    if case.in_place and candidate.steps > 1:
        platform.checker.fill(case, seed, wire)
        candidate.take(1)
    flaw = platform.checker.check(case, seed, wire) if schedule.communicates else None
    flaw = flaw or platform.checker.overrun(case)
    if not flaw and schedule.computes:
        flaw = products.check()
    return taken, flaw


def _calibrate(candidate: _Candidate, sampling: Sampling) -> int:
    """Return the number of steps that last as long as a series should."""
    duration = SERIES if sampling.region is None else sampling.region
    duration = LONGEST if sampling.steps else duration
    steps, most = 1, sampling.steps or MOST_STEPS
    while steps < most:
        tried = [candidate.run.clocks.series(candidate.take(steps).taken).seconds for _ in range(2)]
        elapsed = min(tried) * steps
        if elapsed >= duration:
            break
        steps = min(most, max(2 * steps, int(0.8 * duration / max(elapsed, 1e-9) * steps)))
    return steps


def _sample(candidates: Sequence[_Candidate], sampling: Sampling, heartbeat: Heartbeat) -> None:
    """Take series A B B A A B ..., so that drift of the machine cancels in the ratios."""
    order = list(candidates)
    spent = 0.0
    while not enough([candidate.samples for candidate in order], sampling, spent):
        if sampling.steps and spent >= sampling.budget:
            break
        for candidate in order:
            heartbeat(candidate.implementation.name)
            spent += candidate.keep(candidate.take())
        order.reverse()


def _result(candidate: _Candidate, flaw: CheckFailure | None) -> StepTimes:
    run, first = candidate.run, candidate.parts.operations[0]
    paced = [series.paced for series in candidate.taken]
    spoiled = [series.spoiled for series in candidate.taken]
    return StepTimes(
        case=run.case,
        implementation=candidate.implementation.name,
        platform=run.platform.name,
        series=() if flaw else tuple(run.clocks.series(series.taken) for series in candidate.taken),
        mismatch=flaw,
        note=run.platform.note | first.note | candidate.note | Note(paced=2 * sum(paced) > len(paced)),
        activities=() if flaw else candidate.activities,
        library=first.library,
        clock=run.clocks.error,
        scheduling=None if flaw or run.platform.compute.queued else Scheduling.of_ranks([spoiled]),
    )
