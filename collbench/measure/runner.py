"""Measures one case: check, stress, calibrate, warm up, then samples of all implementations in turn, and check again.

Runs alike on every process of the run: each decision is taken from numbers that `Platform.time` returns the same
everywhere, so no process needs to be told.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.errors import CaseFailed, Unsupported
from collbench.flaws import Flaw
from collbench.measure import plausible, stress
from collbench.measure.floor import Floor
from collbench.measure.launches import calibrate, disturbed, repeatable
from collbench.measure.study import study
from collbench.measurement import Measurement, Result, Skipped
from collbench.platforms.interface import Platform, Prepared
from collbench.scheduling import Scheduling
from collbench.stats import relative_halfwidth

Progress = Callable[[str], None]
"""Told the implementation that is about to run, before each time it does."""

SEEDS = _CHECK_SEED, _CALIBRATION_SEED, _SAMPLES_SEED, _CLOSING_SEED = 1, 2, 3, 4
"""Each phase has its own, so that nothing left over from one passes for a result of another."""

_STRESS_SEED = 1000  # of the first call back to back; the others follow it
_LOST = 0.5  # of a case's budget, for samples that are repeated since a rank was off its core
_COLD = 1e-3  # seconds: a first operation that is shorter, or small, may have been long because it was the first


@dataclass
class _Contestant:
    """An implementation that passed its check, and the samples it has so far."""

    implementation: Implementation
    prepared: Prepared
    parts: int = 1  # of an operation: samples are of one
    launches: int = 1
    samples: list[float] = field(default_factory=list)
    spoiled: int = 0  # samples that were kept although a rank was off its core
    repeated: int = 0  # samples that were taken again for that reason
    lost: float = 0.0  # seconds that those lasted
    switches: int = 0  # involuntary, of this process's rank in all of them
    cores: set[int] = field(default_factory=set)  # on which it ran

    def sample(self, platform: Platform, most_lost: float, refill: Callable[[], None] = lambda: None) -> float:
        """*Collective*: take a sample, and again while a rank is off its core; the seconds that all of it lasted.

        Repeating costs at most `most_lost` seconds in all.  `refill` is called before each try.
        """
        lasted = 0.0
        platform.clock.scheduled.take()  # what was timed before is not this implementation's
        while True:
            refill()
            seconds = platform.clock.time(self.prepared, self.launches)
            lasted += seconds * self.launches
            if not repeatable(platform, seconds * self.launches) or self.lost + seconds * self.launches > most_lost:
                break
            self.repeated += 1
            self.lost += seconds * self.launches
        self.spoiled += platform.clock.scheduled.spoiled
        switches, cores = platform.clock.scheduled.take()
        self.switches += switches
        self.cores.update(cores)
        self.samples.append(seconds / self.parts)
        return lasted


def measure(
    case: Case,
    implementations: Sequence[Implementation],
    platform: Platform,
    sampling: Sampling,
    progress: Progress = lambda name: None,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """Yield one result for each implementation, in their order where possible: skipped and wrong ones come first.

    `launches` says of how many operations a sample is made at least, for implementations where that is known already.
    Raises CaseFailed when a kernel gives up waiting; the platform must then be opened anew.
    """
    contestants = []
    for implementation in implementations:
        progress(implementation.name)
        entrant = _checked(case, implementation, platform, sampling, implementation.name in (launches or {}))
        if isinstance(entrant, _Contestant):
            contestants.append(entrant)
        else:
            yield entrant
    if not contestants:
        return
    platform.checker.fill(case, _CALIBRATION_SEED)
    for contestant in tuple(contestants):
        progress(contestant.implementation.name)
        if flaw := _calibrated(case, contestant, platform, sampling, launches or {}):
            contestants.remove(contestant)
            yield _result(case, contestant, platform, flaw)
    platform.checker.fill(case, _SAMPLES_SEED)
    floor = Floor.of(case, platform)
    most_lost = _LOST * sampling.budget / max(1, len(contestants))
    _sample(contestants, platform, sampling, progress, floor, most_lost)
    for contestant in contestants:
        progress(contestant.implementation.name)
        studied = _studied(case, contestant, platform, most_lost)
        yield replace(studied, floor=floor.seconds, barrier=floor.of_barrier)


def _checked(
    case: Case, implementation: Implementation, platform: Platform, sampling: Sampling, known: bool
) -> _Contestant | Measurement | Skipped:
    """Prepared and checked; a result where nothing is left to measure.

    What was measured in an earlier round (`known`) was checked and tried back to back then; the closing check of its
    samples is made in every round.
    """
    try:
        implementation.refuse(case)
        with platform.team.agreeing():
            prepared = implementation.prepare(case, platform)
    except Unsupported as reason:
        return Skipped(case, implementation.name, platform.name, str(reason))
    contestant = _Contestant(implementation, prepared, case.collective.parts)
    if known and not sampling.check_only:
        return contestant
    slow = None if implementation.library else partial(_hesitant, case, implementation, platform)
    flaw = checked(case, contestant.prepared, platform, sampling, slow)
    return _result(case, contestant, platform, flaw) if flaw or sampling.check_only else contestant


def _hesitant(case: Case, implementation: Implementation, platform: Platform, seconds: float) -> Prepared | None:
    """The same operations, of so many seconds, by kernels that hesitate; None where those measured can be halted."""
    try:
        with platform.team.agreeing():
            other = platform.hesitant(seconds)
            return implementation.prepare(case, other) if other else None
    except Unsupported as reason:  # though it was prepared without: better no row than a weaker check
        raise CaseFailed(f"the stress check cannot be made: {reason}") from None


def checked(
    case: Case,
    prepared: Prepared,
    platform: Platform,
    sampling: Sampling,
    hesitant: Callable[[float], Prepared | None] | None = None,
) -> Flaw | None:
    """One operation between meetings of the ranks, then many without; what is wrong, or None.

    `hesitant` makes kernels that lose time in the middle of an operation of so many seconds, to be tried as well.
    """
    platform.checker.fill(case, _CHECK_SEED, prepared.wire)
    seconds = platform.clock.time(prepared, 1)
    if flaw := platform.checker.check(case, _CHECK_SEED, prepared.wire):
        return flaw
    if seconds < _COLD or case.nbytes <= stress.SMALL:
        seconds = min(seconds, *(platform.clock.time(prepared, 1) for _ in range(2)))
    plan = stress.plan(case, seconds, sampling, _STRESS_SEED)
    if flaw := platform.checker.stress(case, prepared, plan):
        return flaw
    slow = hesitant(seconds) if hesitant and not prepared.host_driven else None
    if slow and (flaw := platform.checker.stress(case, slow, stress.hesitating(plan))):
        return flaw
    return platform.checker.overrun(case)


def _calibrated(
    case: Case, contestant: _Contestant, platform: Platform, sampling: Sampling, launches: Mapping[str, int]
) -> Flaw | None:
    """Find out how many launches a sample has, and what is wrong if their time does not fit their number.

    A sample of one operation leaves nothing out, and what was measured already was asked then.
    """
    name = contestant.implementation.name
    contestant.launches = calibrate(contestant.prepared, platform, sampling, launches.get(name, 1), case.nbytes)
    if name in launches or contestant.launches == 1:
        return None
    return plausible.left_out(contestant.prepared, platform, contestant.launches)


def _sample(
    contestants: Sequence[_Contestant],
    platform: Platform,
    sampling: Sampling,
    progress: Progress,
    floor: Floor,
    most_lost: float,
) -> None:
    """Take samples A B B A A B ..., so that drift of the machine cancels in the ratios."""
    order = list(contestants)
    for _ in range(sampling.warmup):
        for contestant in order:
            progress(contestant.implementation.name)
            lasted = platform.clock.time(contestant.prepared, contestant.launches) * contestant.launches
            if disturbed(lasted, platform, sampling):
                contestant.launches = calibrate(contestant.prepared, platform, sampling, contestant.launches)
    spent = 0.0
    while not enough([contestant.samples for contestant in order], sampling, spent):
        spent += floor.sample()
        for contestant in order:
            progress(contestant.implementation.name)
            spent += contestant.sample(platform, most_lost)
        order.reverse()


def enough(samples: Sequence[Sequence[float]], sampling: Sampling, spent: float) -> bool:
    """Whether every contestant has as many samples as it should, but one: that is still to come, in a closing check."""
    if not samples:
        return True
    taken = len(samples[0]) + 1
    if sampling.iters is not None:
        return taken >= sampling.iters
    if taken < sampling.minimum:
        return False
    if spent >= sampling.budget:
        return True
    if spent < sampling.budget / 10 or taken % 8:  # a few lucky samples are no evidence
        return False
    return all(relative_halfwidth(own) <= sampling.precision for own in samples)


def _closing(case: Case, contestant: _Contestant, platform: Platform, most_lost: float) -> Measurement:
    """The last sample is taken with fresh buffers and its outcome checked, and whether the samples can be.

    In place, a launch's result is the next one's input, so a whole sample has no known outcome: one launch has.
    """
    wire = contestant.prepared.wire
    contestant.sample(platform, most_lost, lambda: platform.checker.fill(case, _CLOSING_SEED, wire))
    if case.in_place:
        platform.checker.fill(case, _CLOSING_SEED, wire)
        platform.clock.time(contestant.prepared, 1)
    written = platform.checker.check(case, _CLOSING_SEED, wire) or platform.checker.overrun(case)
    typical = statistics.median(contestant.samples)
    return _result(case, contestant, platform, written or plausible.too_fast(case, typical, platform.clock.limits))


def _studied(case: Case, contestant: _Contestant, platform: Platform, most_lost: float) -> Measurement:
    """As it is closed, with what its wire is wrong by, if it has one."""
    closed, wire = _closing(case, contestant, platform, most_lost), contestant.prepared.wire
    return replace(closed, errors=study(platform, wire)) if wire and closed.right else closed


def _result(case: Case, contestant: _Contestant, platform: Platform, flaw: Flaw | None) -> Measurement:
    return Measurement(
        case=case,
        implementation=contestant.implementation.name,
        platform=platform.name,
        launches=contestant.launches,
        seconds=() if flaw else tuple(contestant.samples),
        mismatch=flaw,
        note=platform.note | contestant.prepared.note,
        estimate=contestant.prepared.estimate,
        library=contestant.prepared.library,
        scheduling=None if flaw else _scheduling(contestant, platform),
    )


def _scheduling(contestant: _Contestant, platform: Platform) -> Scheduling | None:
    """*Collective*: what the operating system did to the ranks, where they have cores."""
    ranks = platform.team.exchange((contestant.switches, tuple(sorted(contestant.cores))))
    if not any(cores for _, cores in ranks):
        return None
    return Scheduling(
        off_core=contestant.spoiled / max(1, len(contestant.samples)),
        repeated=contestant.repeated,
        switches=sum(switches for switches, _ in ranks),
        cores=tuple(cores for _, cores in ranks),
    )
