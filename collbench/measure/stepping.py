"""Measures steps of a case: check, calibrate, then series of all implementations in turn, and check again.

Runs alike on every process of the run, as collbench/measure/runner.py does.  Steps of a series follow each other
without a meeting besides their own, as those of a training loop do, so that a late rank costs what it costs there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.flaws import Flaw
from collbench.implementations import Implementation
from collbench.measure.closely import activities
from collbench.measure.runner import SEEDS, Progress, enough
from collbench.measurement import Result, Skipped
from collbench.note import Note
from collbench.platforms.products import Products
from collbench.platforms.roles import Launching, Platform, Prepared
from collbench.schedules import Parts, StepOf, find_schedule, refuse
from collbench.step_times import Activity, Series, StepTimes

SERIES = 0.02  # seconds that a series lasts at least: what one step hands on to the next counts then
MOST_STEPS = 256  # of a series: each one's moments are kept


@dataclass
class _Contestant:
    """An implementation whose first step was right, and its series so far."""

    implementation: Implementation
    parts: Parts
    step: StepOf
    note: Note
    steps: int = 1  # of a series
    series: list[Series] = field(default_factory=list)
    activities: tuple[Activity, ...] = ()

    @property
    def samples(self) -> list[float]:
        """Seconds of a step, by series."""
        return [series.seconds for series in self.series]

    def take(self, steps: int = 0) -> Series:
        """*Collective*: one more series, of another length where one is given."""
        return series(self.parts, self.step, steps or self.steps)


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
    assert case.step
    with platform.team.agreeing():
        products = platform.products(case.step.size)
    contestants = []
    for implementation in implementations:
        progress(implementation.name)
        entrant = _entrant(case, implementation, platform, products, sampling.check_only)
        if isinstance(entrant, _Contestant):
            contestants.append(entrant)
        else:
            yield entrant
    yield from _measured(case, contestants, platform, products, sampling, progress, launches or {})


def _measured(
    case: Case,
    contestants: Sequence[_Contestant],
    platform: Platform,
    products: Products,
    sampling: Sampling,
    progress: Progress,
    known: Mapping[str, int],
) -> Iterator[StepTimes]:
    """Calibrated, sampled in turn, and checked once more."""
    for contestant in contestants:
        progress(contestant.implementation.name)
        contestant.steps = known.get(contestant.implementation.name) or _calibrated(contestant, platform, sampling)
    _sample(contestants, platform, sampling, progress)
    miscomputed = products.check()  # in any of the series: whoever communicated meanwhile, none was what it says
    for contestant in contestants:
        name = contestant.implementation.name
        progress(name)
        series, flaw = _checked(case, contestant, platform, products, SEEDS[3])
        contestant.series.append(series)
        contestant.activities = () if name in known else activities(contestant.step, platform)  # once is enough
        yield _result(case, contestant, platform, flaw or miscomputed)


def _entrant(
    case: Case, implementation: Implementation, platform: Platform, products: Products, check_only: bool
) -> _Contestant | StepTimes | Skipped:
    """Prepared, and its first step checked; a result where nothing is left to measure."""
    try:
        contestant = _prepared(case, implementation, platform, products)
    except Unsupported as reason:
        return Skipped(case, implementation.name, platform.name, str(reason))
    _, flaw = _checked(case, contestant, platform, products, SEEDS[0])
    return _result(case, contestant, platform, flaw) if flaw or check_only else contestant


def _prepared(case: Case, implementation: Implementation, platform: Platform, products: Products) -> _Contestant:
    """Unsupported if the implementation, or the schedule, cannot do it."""
    assert case.step
    refuse(case, implementation, platform.name)
    with platform.team.agreeing():
        schedule = find_schedule(case.step.schedule)
        prepare = implementation.prepare if schedule.communicates else _idle
        operations = [prepare(part, platform.shifted(offset)) for offset, part in case.buckets()]
        parts = Parts(case, platform, products, operations)
        note = Note.of(schedule.remark(case.ranks))
        return _Contestant(implementation, parts, schedule.prepare(parts), note)


def _idle(case: Case, platform: Launching) -> Prepared:
    """What nobody communicates: whoever computes alone needs no implementation that works here."""
    return Prepared(lambda launches: None)


def _checked(
    case: Case, contestant: _Contestant, platform: Platform, products: Products, seed: int
) -> tuple[Series, Flaw | None]:
    """A series with known data, and what is wrong with what it leaves: in the buffers, beside them, in the matrices.

    In place a result is the next step's input, so that only that of a single step is known.
    """
    assert case.step
    schedule = find_schedule(case.step.schedule)
    platform.fill(case, seed)
    products.reset()
    taken = contestant.take()
    if case.in_place and contestant.steps > 1:
        platform.fill(case, seed)
        contestant.take(1)
    received = platform.check(case, seed) if schedule.communicates else None
    return taken, received or platform.overrun(case) or (products.check() if schedule.computes else None)


def _calibrated(contestant: _Contestant, platform: Platform, sampling: Sampling) -> int:
    """Steps that last as long as a series should."""
    wanted = SERIES if sampling.region is None else sampling.region
    steps = 1
    while steps < MOST_STEPS:
        elapsed = min(contestant.take(steps).seconds for _ in range(2)) * steps
        if elapsed >= wanted:
            break
        steps = min(MOST_STEPS, max(2 * steps, int(0.8 * wanted / max(elapsed, 1e-9) * steps)))
    return steps


def _sample(contestants: Sequence[_Contestant], platform: Platform, sampling: Sampling, progress: Progress) -> None:
    """Take series A B B A A B ..., so that drift of the machine cancels in the ratios."""
    order = list(contestants)
    spent = 0.0
    while not enough([contestant.samples for contestant in order], sampling, spent):
        for contestant in order:
            progress(contestant.implementation.name)
            taken = contestant.take()
            contestant.series.append(taken)
            spent += taken.seconds * taken.steps
        order.reverse()


def series(parts: Parts, step: StepOf, steps: int) -> Series:
    """*Collective*: so many steps from a meeting on, and the moments of all ranks.

    CaseFailed if a library or a kernel says that it failed.
    """
    platform = parts.platform
    platform.synchronize()
    with platform.stepping():
        begun = parts.moments()
        for rank in platform.local:
            parts.products.take_over(rank)  # nobody computes before that moment
        moments = [step(None) for _ in range(steps)]
    platform.synchronize()
    with platform.team.agreeing(), platform.stepping():
        for operation in parts.operations:
            if operation.refuse:
                operation.refuse()
        platform.refuse_given_up()
    own = [
        (begun[place](), [one[place][0]() for one in moments], [one[place][1]() for one in moments])
        for place, _ in enumerate(platform.local)
    ]
    return _from_zero(list(chain.from_iterable(platform.team.exchange(own))))


def _from_zero(ranks: Sequence[tuple[float, list[float], list[float]]]) -> Series:
    origin = min(begun for begun, _, _ in ranks)
    return Series(
        tuple(begun - origin for begun, _, _ in ranks),
        tuple(tuple(moment - origin for moment in computed) for _, computed, _ in ranks),
        tuple(tuple(moment - origin for moment in done) for _, _, done in ranks),
    )


def _result(case: Case, contestant: _Contestant, platform: Platform, flaw: Flaw | None) -> StepTimes:
    first = contestant.parts.operations[0]
    return StepTimes(
        case=case,
        implementation=contestant.implementation.name,
        platform=platform.name,
        series=() if flaw else tuple(contestant.series),
        mismatch=flaw,
        note=platform.note | first.note | contestant.note,
        activities=() if flaw else contestant.activities,
        library=first.library,
    )
