"""Measures steps of a case: check, calibrate, then series of all implementations in turn, and check again.

Runs alike on every process of the run, as collbench/measure/runner.py does.  Steps of a series follow each other
without a meeting besides their own, as those of a training loop do, so that a late rank costs what it costs there.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.measure.clocks import Clocks, Taken
from collbench.measure.closely import activities
from collbench.measure.sampling import SEEDS, enough
from collbench.measure.sampling import Heartbeat as Progress
from collbench.measure.series import take
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.products import Products
from collbench.results import Activity, CheckFailure, Note, Result, Scheduling, Skipped, StepTimes
from collbench.schedules import Parts, StepOf, find_schedule, refuse

SERIES = 0.02  # seconds that a series lasts at least: what one step hands on to the next counts then
MOST_STEPS = 256  # of a series: each one's moments are kept
LONGEST = 2.0  # seconds that one lasts about at most, so that implementations take turns and a budget can be kept
_SILENT = 0.5  # seconds between two words of a series


@dataclass(frozen=True)
class _Run:
    """What all contestants have in common."""

    case: Case
    platform: Platform
    products: Products
    clocks: Clocks
    progress: Progress

    @classmethod
    def of(cls, case: Case, platform: Platform, progress: Progress) -> Self:
        """With matrices made and clocks read."""
        assert case.step
        with platform.team.agreeing():
            products = platform.compute.products(case.step.size)
        clocks = Clocks(platform.team)
        clocks.read()
        return cls(case, platform, products, clocks, progress)


@dataclass
class _Contestant:
    """An implementation whose first step was right, and its series so far."""

    implementation: Implementation
    parts: Parts
    step: StepOf
    note: Note
    clocks: Clocks
    progress: Progress
    steps: int = 1  # of a series
    taken: list[Taken] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)  # seconds of a step, by series
    activities: tuple[Activity, ...] = ()
    paced: bool = False  # whether devices waited for the host in the last series
    waits: list[bool] = field(default_factory=list)  # the same, by series
    spoiled: bool = False  # whether a rank was off its core in the last series
    spoils: list[bool] = field(default_factory=list)  # the same, by series

    def heard(self, steps: int) -> Iterator[None]:
        """So many steps, from which a word comes now and then: one that hangs is told from one that takes long."""
        told = -math.inf
        for _ in range(steps):
            if (now := time.monotonic()) > told + _SILENT:
                self.progress(self.implementation.name)
                told = now
            yield

    def keep(self, taken: Taken) -> float:
        """One more series; its seconds, all steps together."""
        kept = self.clocks.series(taken)
        self.taken.append(taken)
        self.waits.append(self.paced)
        self.spoils.append(self.spoiled)
        self.samples.append(kept.seconds)
        return kept.seconds * kept.steps

    def take(self, steps: int = 0) -> Taken:
        """*Collective*: one more series, of another length where one is given."""
        took = take(self.parts, self.step, self.heard(steps or self.steps))
        self.clocks.origins = max(self.clocks.origins, took.origins)
        self.paced, self.spoiled = took.paced, took.spoiled
        return took.taken


def measure_steps(
    case: Case,
    implementations: Sequence[Implementation],
    platform: Platform,
    sampling: Sampling,
    progress: Progress = lambda name: None,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """Yield one result for each implementation; `launches` says of how many steps a series is made, where it is known.

    Raises CaseFailed when a kernel gives up waiting; the platform must then be opened anew.
    """
    run = _Run.of(case, platform, progress)
    contestants = []
    for implementation in implementations:
        progress(implementation.name)
        entrant = _entrant(run, implementation, sampling.check_only)
        if isinstance(entrant, _Contestant):
            contestants.append(entrant)
        else:
            yield entrant
    yield from _measured(run, contestants, sampling, launches or {})


def _measured(
    run: _Run, contestants: Sequence[_Contestant], sampling: Sampling, known: Mapping[str, int]
) -> Iterator[StepTimes]:
    """Calibrated, sampled in turn, and checked once more."""
    for contestant in contestants:
        run.progress(contestant.implementation.name)
        contestant.steps = known.get(contestant.implementation.name) or _calibrated(contestant, sampling)
    _sample(contestants, sampling, run.progress)
    miscomputed = run.products.check()  # in any of the series: whoever communicated meanwhile, none was what it says
    run.clocks.read()
    for contestant in contestants:
        name = contestant.implementation.name
        run.progress(name)
        taken, flaw = _checked(run, contestant, SEEDS[3])
        contestant.keep(taken)
        if name not in known:  # once is enough
            contestant.activities = activities(contestant.step, run.platform, min(contestant.samples))
        yield _result(run, contestant, flaw or miscomputed)


def _entrant(run: _Run, implementation: Implementation, check_only: bool) -> _Contestant | StepTimes | Skipped:
    """Prepared, and its first step checked; a result where nothing is left to measure."""
    try:
        contestant = _prepared(run, implementation)
    except Unsupported as reason:
        return Skipped(run.case, implementation.name, run.platform.name, str(reason))
    _, flaw = _checked(run, contestant, SEEDS[0])
    return _result(run, contestant, flaw) if flaw or check_only else contestant


def _prepared(run: _Run, implementation: Implementation) -> _Contestant:
    """Unsupported if the implementation, or the schedule, cannot do it."""
    case, platform = run.case, run.platform
    assert case.step
    refuse(case, implementation, platform.name)
    with platform.team.agreeing():
        schedule = find_schedule(case.step.schedule)
        prepare = implementation.prepare if schedule.communicates else _idle
        operations = [prepare(part, platform.shifted(offset)) for offset, part in case.buckets()]
        parts = Parts(case, platform, run.products, operations)
        step, note = schedule.prepare(parts), Note.of(schedule.remark(case.ranks))
        return _Contestant(implementation, parts, step, note, run.clocks, run.progress)


def _idle(case: Case, platform: Platform) -> Prepared:
    """What nobody communicates: whoever computes alone needs no implementation that works here."""
    return Prepared(lambda launches: None)


def _checked(run: _Run, contestant: _Contestant, seed: int) -> tuple[Taken, CheckFailure | None]:
    """A series with known data, and what is wrong with what it leaves: in the buffers, beside them, in the matrices.

    In place a result is the next step's input, so that only that of a single step is known.
    """
    case, platform, products = run.case, run.platform, run.products
    assert case.step
    schedule = find_schedule(case.step.schedule)
    wire = contestant.parts.operations[0].wire
    platform.checker.fill(case, seed, wire)
    products.reset()
    taken = contestant.take()
    if case.in_place and contestant.steps > 1:
        platform.checker.fill(case, seed, wire)
        contestant.take(1)
    received = platform.checker.check(case, seed, wire) if schedule.communicates else None
    return taken, received or platform.checker.overrun(case) or (products.check() if schedule.computes else None)


def _calibrated(contestant: _Contestant, sampling: Sampling) -> int:
    """Steps that last as long as a series should."""
    wanted = SERIES if sampling.region is None else sampling.region
    wanted = LONGEST if sampling.steps else wanted
    steps, most = 1, sampling.steps or MOST_STEPS
    while steps < most:
        tried = (contestant.clocks.series(contestant.take(steps)) for _ in range(2))
        elapsed = min(one.seconds for one in tried) * steps
        if elapsed >= wanted:
            break
        steps = min(most, max(2 * steps, int(0.8 * wanted / max(elapsed, 1e-9) * steps)))
    return steps


def _sample(contestants: Sequence[_Contestant], sampling: Sampling, progress: Progress) -> None:
    """Take series A B B A A B ..., so that drift of the machine cancels in the ratios."""
    order = list(contestants)
    spent = 0.0
    while not enough([contestant.samples for contestant in order], sampling, spent):
        if sampling.steps and spent >= sampling.budget:
            break
        for contestant in order:
            progress(contestant.implementation.name)
            spent += contestant.keep(contestant.take())
        order.reverse()


def _result(run: _Run, contestant: _Contestant, flaw: CheckFailure | None) -> StepTimes:
    first = contestant.parts.operations[0]
    paced = Note(paced=2 * sum(contestant.waits) > len(contestant.waits))
    return StepTimes(
        case=run.case,
        implementation=contestant.implementation.name,
        platform=run.platform.name,
        series=() if flaw else tuple(map(run.clocks.series, contestant.taken)),
        mismatch=flaw,
        note=run.platform.note | first.note | contestant.note | paced,
        activities=() if flaw else contestant.activities,
        library=first.library,
        clock=run.clocks.error,
        scheduling=None if flaw or run.platform.compute.queued else Scheduling.of_ranks([contestant.spoils]),
    )
