"""Measures steps: check, calibrate, take series of implementations in turn, check again.

Every process of the run executes the same code, as in collbench/measure/sampling.py.  Steps of a series follow each
other with no extra barrier, as in a training loop, so a late rank costs as much as it does there.
"""

import gc
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from collbench import algorithms
from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.commands.step.rows import Series, StepTimes
from collbench.commands.step.schedules import SCHEDULES, Moments, Parts, RunStep, refuse
from collbench.commands.step.work import buckets, step_of
from collbench.measure.checks import SEEDS
from collbench.measure.clocks import Clocks, Taken
from collbench.measure.sampling import Candidate, Heartbeat, Subject, sample_in_turn
from collbench.platforms.interface import Platform, Prepared, at
from collbench.platforms.processes import RunQueue
from collbench.results import CheckFailure, Note, Result
from collbench.results.disturbed import Scheduling

SERIES = 0.02  # minimum seconds of a series: long enough for delays to pass from step to step
MOST_STEPS = 256  # of a series: the moments of each step are stored
LONGEST = 2.0  # approximate maximum seconds of a series: implementations take turns, and the budget holds
_HEARTBEAT = 0.5  # seconds between two signs of life in a series


@dataclass(frozen=True)
class TakenSeries:
    """A raw series: the moments of all ranks on their own clocks."""

    taken: Taken
    origins: float  # seconds of error between device moments and the clocks of their processes
    paced: bool  # whether devices waited for the host to enqueue
    spoiled: bool  # whether a rank was off its core


def take_series(parts: Parts, step: RunStep, steps: Iterable[object]) -> TakenSeries:
    """*Collective*: run a series of steps after a barrier; CaseFailed if a library or a kernel reports a failure."""
    platform = parts.platform
    platform.launcher.synchronize()
    origins = platform.clock.set_clocks()
    # A second barrier: a rank that set its clocks late must not start the first step late.
    platform.launcher.synchronize()
    with platform.compute.stepping():
        begun = parts.moments()
        for rank in platform.local:
            parts.products.take_over(rank)  # no rank computes before `begun`
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
    """Return the moments of all steps and their enqueue times; none on a CPU, where a step may last only 20 us."""
    if not queued:
        return [step() for _ in steps], []
    moments, enqueued = [], []
    for _ in steps:
        moments.append(step())
        enqueued.append(time.perf_counter())
    return moments, enqueued


def _host_was_late(enqueued: Sequence[float], own: Taken) -> bool:
    """Return whether a device idled before most steps of the second half: it was done before the next was enqueued.

    A host that keeps up is ahead by then, and its own time per step is hidden.
    """
    later = range(max(2, len(enqueued) // 2), len(enqueued))
    waited = sum(min(done[number - 1] for _, _, done in own) < enqueued[number] for number in later)
    return 2 * waited > len(later)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector, which would scan the stored moments."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def measure(case: Case, names: Sequence[str], platform: Platform, *how: Any) -> Iterator[Result]:
    """*Collective*: measure the steps of a case by these implementations, as `measure_steps` does."""
    implementations = algorithms.implementations()
    return measure_steps(case, [implementations[name] for name in names], platform, *how)


def measure_steps(
    case: Case,
    implementations: Sequence[Implementation],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat = lambda *_: None,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """*Collective*: yield one result of a case with a step for each implementation.

    `launches` maps implementations to steps per series, where an earlier round found them.  CaseFailed if a kernel
    times out; the platform must then be reopened.
    """
    subject = _Steps(case, platform, sampling, launches or {}, heartbeat)
    return sample_in_turn(subject, implementations, sampling, heartbeat)


class _Steps(Subject):
    """Steps of a case, with the matrices and clocks shared by all candidates."""

    def __init__(
        self, case: Case, platform: Platform, sampling: Sampling, steps: Mapping[str, int], heartbeat: Heartbeat
    ) -> None:
        self.case, self.platform, self.sampling, self.steps = case, platform, sampling, steps
        self.heartbeat = heartbeat
        with platform.team.agreeing():
            self.products = platform.compute.products(step_of(case).size, partial(heartbeat, ""))
        self.clocks = Clocks(platform.team)
        self.clocks.read()
        self.schedule = SCHEDULES[step_of(case).schedule]

    def prepare(self, implementation: Implementation) -> Candidate | Result:
        case, platform, schedule = self.case, self.platform, self.schedule
        refuse(case, implementation, platform.name)
        # Computing alone needs no implementation that works here.
        if schedule.communicates:
            platform = implementation.home(platform, next(part for _, part in buckets(case)))
        with platform.team.agreeing():
            prepare = implementation.prepare if schedule.communicates else lambda *_: Prepared(lambda launches: None)
            operations = [prepare(part, platform.shifted(offset)) for offset, part in buckets(case)]
            parts = Parts(case, platform, self.products, operations)
            note = Note.of(schedule.remark(case.ranks))
            candidate = _StepCandidate(self, implementation.name, parts, schedule.prepare(parts), note)
        self.products.reset()  # only once: the end of a round checks the products of all its series
        _, failure = candidate.check(SEEDS[0], "first check")
        return candidate.result(failure) if failure or self.sampling.check_only else candidate

    def after_samples(self) -> None:
        self.clocks.read()

    def series(self, taken: TakenSeries) -> Series:
        """Return a series on the clock of rank 0."""
        return Series(*self.clocks.moments(taken.taken))


class _StepCandidate(Candidate):
    """One way to communicate in the steps; a sample is a series of them."""

    def __init__(self, subject: _Steps, name: str, parts: Parts, step: RunStep, note: Note) -> None:
        self.name, self.samples = name, []  # seconds of a step, by series
        self._subject, self._parts, self._step, self._note = subject, parts, step, note
        self._steps = 1  # of a series
        self._taken: list[TakenSeries] = []

    def calibrate(self) -> Result | None:
        """*Collective*: find the number of steps that fills a series."""
        sampling, earlier = self._subject.sampling, self._subject.steps.get(self.name)
        duration = SERIES if sampling.region is None else sampling.region
        duration = LONGEST if sampling.steps else duration
        steps, most = earlier or 1, earlier or sampling.steps or MOST_STEPS
        while steps < most:
            tried = [self._subject.series(self._take(steps, "calibration")).seconds for _ in range(2)]
            elapsed = min(tried) * steps  # the faster one: the first may include warm-up
            if elapsed >= duration:
                break
            steps = min(most, max(2 * steps, int(0.8 * duration / max(elapsed, 1e-9) * steps)))
        self._steps = steps
        return None

    def sample(self) -> float:
        return self._keep(self._take(self._steps, f"series {len(self.samples) + 1}"))

    def _take(self, steps: int, phase: str) -> TakenSeries:
        """*Collective*: take a series; *phase* names it in heartbeats."""
        taken = take_series(self._parts, self._step, self._with_heartbeat(steps, phase))
        self._subject.clocks.origins = max(self._subject.clocks.origins, taken.origins)
        return taken

    def _with_heartbeat(self, steps: int, phase: str) -> Iterator[None]:
        """Yield once per step, with a heartbeat from time to time, so that a slow step does not look like a hang."""
        last = -math.inf
        for _ in range(steps):
            if (now := time.monotonic()) > last + _HEARTBEAT:
                self._subject.heartbeat(self.name, phase)
                last = now
            yield

    def _keep(self, taken: TakenSeries) -> float:
        """Keep a series as a sample; return the total seconds of its steps."""
        series = self._subject.series(taken)
        self._taken.append(taken)
        self.samples.append(series.seconds)
        return series.seconds * series.steps

    def close(self) -> Result:
        taken, failure = self.check(SEEDS[3], "last check")
        self._keep(taken)
        return self.result(failure)

    def check(self, seed: int, phase: str) -> tuple[TakenSeries, CheckFailure | None]:
        """Take a series on known data; return it with any error in buffers, guards or matrices.

        In place a result is the next step's input, so only a single step can be checked.  The matrices accumulate the
        products of all series since the reset, so one wrong product invalidates all times.
        """
        subject = self._subject
        case, checker, products = subject.case, self._parts.platform.checker, subject.products
        wire = self._parts.operations[0].wire
        checker.fill(case, seed, wire)
        taken = self._take(self._steps, phase)
        if case.in_place and self._steps > 1:
            checker.fill(case, seed, wire)
            self._take(1, phase)
        failure = checker.check(case, seed, wire) if subject.schedule.communicates else None
        failure = failure or checker.overrun(case)
        if not failure and subject.schedule.computes:
            failure = products.check()
        return taken, failure

    def result(self, failure: CheckFailure | None) -> StepTimes:
        """Return the measured series, or the failure."""
        subject, first = self._subject, self._parts.operations[0]
        platform = subject.platform
        paced = [series.paced for series in self._taken]
        spoiled = [series.spoiled for series in self._taken]
        return StepTimes(
            case=subject.case,
            implementation=self.name,
            platform=platform.name,
            series=() if failure else tuple(map(subject.series, self._taken)),
            mismatch=failure,
            note=platform.note | first.note | self._note | Note(paced=2 * sum(paced) > len(paced)),
            library=first.library,
            clock=subject.clocks.error,
            scheduling=None if failure or platform.compute.queued else Scheduling.of_ranks([spoiled]),
        )
