"""Measures one case: check, calibrate, warm up, then samples of all implementations in turn, and check once more.

Runs alike on every process of the run: each decision is taken from numbers that `Platform.time` returns the same
everywhere, so no process needs to be told.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.implementations import Implementation
from collbench.measure.floor import Floor
from collbench.measurement import Measurement, Mismatch, Result, Skipped
from collbench.platforms.roles import Platform, Prepared, Timing
from collbench.stats import relative_halfwidth

Progress = Callable[[str], None]
"""Told the implementation that is about to run, before each time it does."""

SEEDS = _CHECK_SEED, _TIMING_SEED = 1, 2  # two, so that a result left over from the first check cannot pass the second
_MOST_LAUNCHES = 2**16


@dataclass
class _Contestant:
    """An implementation that passed its check, and the samples it has so far."""

    implementation: Implementation
    prepared: Prepared
    launches: int = 1
    samples: list[float] = field(default_factory=list)


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
        entrant = _checked(case, implementation, platform, sampling)
        if isinstance(entrant, _Contestant):
            contestants.append(entrant)
        else:
            yield entrant
    if not contestants:
        return
    platform.fill(case, _TIMING_SEED)
    for contestant in contestants:
        progress(contestant.implementation.name)
        known = (launches or {}).get(contestant.implementation.name, 1)
        contestant.launches = calibrate(contestant.prepared, platform, sampling, known)
    floor = Floor.of(case, platform)
    _sample(contestants, platform, sampling, progress, floor)
    for contestant in contestants:
        progress(contestant.implementation.name)
        yield replace(_closing(case, contestant, platform), floor=floor.seconds)


def _checked(
    case: Case, implementation: Implementation, platform: Platform, sampling: Sampling
) -> _Contestant | Measurement | Skipped:
    """Prepared and checked; a result where nothing is left to measure."""
    try:
        implementation.refuse(case)
        with platform.team.agreeing():
            contestant = _Contestant(implementation, implementation.prepare(case, platform))
    except Unsupported as reason:
        return Skipped(case, implementation.name, platform.name, str(reason))
    mismatch = checked_run(case, contestant.prepared, platform, _CHECK_SEED)
    return _result(case, contestant, platform, mismatch) if mismatch or sampling.check_only else contestant


def checked_run(case: Case, prepared: Prepared, platform: Platform, seed: int) -> Mismatch | None:
    """One operation on fresh buffers; the first mismatch, or None."""
    platform.fill(case, seed)
    platform.time(prepared, 1)
    return platform.check(case, seed)


def calibrate(prepared: Prepared, platform: Timing, sampling: Sampling, launches: int = 1) -> int:
    """Double the launches until they last as long as a sample should."""
    region = platform.region if sampling.region is None else sampling.region
    while launches < _MOST_LAUNCHES:
        elapsed = min(platform.time(prepared, launches) for _ in range(2)) * launches  # one may have been disturbed
        if elapsed >= region:
            break
        launches *= 2
    return launches


def _sample(
    contestants: Sequence[_Contestant], platform: Timing, sampling: Sampling, progress: Progress, floor: Floor
) -> None:
    """Take samples A B B A A B ..., so that drift of the machine cancels in the ratios."""
    order = list(contestants)
    for _ in range(sampling.warmup):
        for contestant in order:
            progress(contestant.implementation.name)
            platform.time(contestant.prepared, contestant.launches)
    spent = 0.0
    while not _enough(order, sampling, spent):
        spent += floor.sample()
        for contestant in order:
            progress(contestant.implementation.name)
            seconds = platform.time(contestant.prepared, contestant.launches)
            contestant.samples.append(seconds)
            spent += seconds * contestant.launches
        order.reverse()


def _enough(contestants: Sequence[_Contestant], sampling: Sampling, spent: float) -> bool:
    """One sample is still to come, in the closing check."""
    taken = len(contestants[0].samples) + 1
    if sampling.iters is not None:
        return taken >= sampling.iters
    if taken < sampling.minimum:
        return False
    if spent >= sampling.budget:
        return True
    if spent < sampling.budget / 10 or taken % 8:  # a few lucky samples are no evidence
        return False
    return all(relative_halfwidth(contestant.samples) <= sampling.precision for contestant in contestants)


def _closing(case: Case, contestant: _Contestant, platform: Platform) -> Measurement:
    """The last sample is taken with fresh buffers and its outcome checked.

    In place, a launch's result is the next one's input, so a whole sample has no known outcome: one launch has.
    """
    platform.fill(case, _TIMING_SEED)
    contestant.samples.append(platform.time(contestant.prepared, contestant.launches))
    if case.in_place:
        mismatch = checked_run(case, contestant.prepared, platform, _TIMING_SEED)
    else:
        mismatch = platform.check(case, _TIMING_SEED)
    return _result(case, contestant, platform, mismatch)


def _result(case: Case, contestant: _Contestant, platform: Platform, mismatch: Mismatch | None) -> Measurement:
    return Measurement(
        case=case,
        implementation=contestant.implementation.name,
        platform=platform.name,
        launches=contestant.launches,
        seconds=() if mismatch else tuple(contestant.samples),
        mismatch=mismatch,
        note=platform.note | contestant.prepared.note,
        estimate=contestant.prepared.estimate,
        library=contestant.prepared.library,
    )
