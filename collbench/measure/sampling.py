"""Sampling of implementations in turn: check, calibrate, warm up, measure, check again.

`sample_in_turn` is the sampler. Its Subject prepares, times and checks the operation: a collective in `measure`, a
training step in `collbench step`. Every process decides from the same numbers, so all run alike without messages.
"""

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.measure.checks import CALIBRATION_SEED, CLOSING_SEED, SAMPLES_SEED, checked, left_out, too_fast
from collbench.measure.wire_errors import wire_errors
from collbench.platforms.interface import Platform, Prepared
from collbench.results import Result
from collbench.results.collectives import Measurement, Skipped
from collbench.results.disturbed import Scheduling
from collbench.results.facts import CheckFailure, Note
from collbench.stats import relative_halfwidth

Heartbeat = Callable[..., None]
"""Called before each run of an implementation, with its name and perhaps the phase."""

_MOST_LAUNCHES = 2**16
_WAIT = 3e-3, 30e-3  # seconds by which a wait for a core lengthens a sample: a scheduler's tick or several
_SLOWEST = 50e6  # bytes per second; slower operations may be waits
_MORE, _GROWTH = 8, 4.0  # factor of launches in the next trial, and the least growth of its time
_SLICE = 3e-3  # seconds of a scheduler's time slice, about
_TRIES = 4  # of a sample in which a rank was off its core
_REPEATS = 0.5  # share of a case's budget for repeating samples in which a rank was off its core
_QUARTER, _LONGER, _TURNS = 4, 1.03, 8  # launches compared with a quarter: the least ratio, in each of _TURNS turns
_UNSTEADY = "an operation takes longer, the more of them are in a sample: this is of the fewest"
_BARRIERS = 128  # in a row, some tens of microseconds


# A time is converted four times between clock and table:
# 1. ticks of a clock or an event to seconds of an operation of the slowest rank, a sample (platform.clock.time);
# 2. a result with its samples to a message of rank 0 (protocol.Channel.send), where ranks are other processes;
# 3. the message to the result again (schema.to_result);
# 4. the result to a line of the run file (schema.to_line), and next to that to the text of a cell.


class Candidate(ABC):
    """An implementation that is prepared and checked, sampled in turn with others."""

    name: str
    samples: list[float]

    @abstractmethod
    def calibrate(self) -> Result | None:
        """*Collective*: choose the number of operations in a sample; return a result if that reveals a fault."""

    def warm_up(self) -> None:  # noqa: B027
        """*Collective*: take an untimed sample."""

    @abstractmethod
    def sample(self) -> float:
        """*Collective*: take a sample; return its duration in seconds."""

    @abstractmethod
    def close(self) -> Result:
        """*Collective*: take the last sample, check its outcome, and return the result."""


class Subject(ABC):
    """The sampled operation: a collective, a training step."""

    case: Case
    platform: Platform

    @abstractmethod
    def prepare(self, implementation: Implementation) -> Candidate | Result:
        """*Collective*: prepare and check; return a result if nothing is left to measure. Raises Unsupported."""

    def before_calibration(self) -> None:  # noqa: B027
        """*Collective*: called once candidates are prepared."""

    def before_samples(self) -> None:  # noqa: B027
        """*Collective*: called once candidates are calibrated."""

    def before_round(self) -> float:
        """*Collective*: take the measurements of a round; return their duration in seconds."""
        return 0.0

    def after_samples(self) -> None:  # noqa: B027
        """*Collective*: called before candidates are closed."""


def sample_in_turn(
    subject: Subject, implementations: Sequence[Implementation], sampling: Sampling, heartbeat: Heartbeat
) -> Iterator[Result]:
    """Yield one result for each implementation, in order, but skipped and wrong ones first."""
    candidates = []
    for implementation in implementations:
        heartbeat(implementation.name)
        try:
            prepared = subject.prepare(implementation)
        except Unsupported as reason:
            yield Skipped(subject.case, implementation.name, subject.platform.name, str(reason))
            continue
        if isinstance(prepared, Candidate):
            candidates.append(prepared)
        else:
            yield prepared
    if not candidates:
        return

    # A sample holds enough operations to make the clock's resolution negligible.
    subject.before_calibration()
    for candidate in tuple(candidates):
        heartbeat(candidate.name)
        if wrong := candidate.calibrate():
            candidates.remove(candidate)
            yield wrong
    _take_samples(subject, candidates, sampling, heartbeat)
    for candidate in candidates:
        heartbeat(candidate.name)
        yield candidate.close()


def _take_samples(subject: Subject, candidates: Sequence[Candidate], sampling: Sampling, heartbeat: Heartbeat) -> None:
    subject.before_samples()
    for _ in range(sampling.warmup):
        for candidate in candidates:
            heartbeat(candidate.name)
            candidate.warm_up()

    # A B B A A B ...: drift of the machine cancels in the ratios.
    order = list(candidates)
    spent = 0.0
    while not _enough([candidate.samples for candidate in order], sampling, spent):
        spent += subject.before_round()
        for candidate in order:
            heartbeat(candidate.name)
            spent += candidate.sample()
        order.reverse()
    subject.after_samples()


def _enough(samples: Sequence[Sequence[float]], sampling: Sampling, spent: float) -> bool:
    """Return whether every candidate has all its samples but the last, which `close` takes."""
    if not samples:
        return True
    # Series of steps are long: the budget takes precedence over their number.
    if sampling.steps and spent >= sampling.budget:
        return True
    taken = len(samples[0]) + 1
    if sampling.iters is not None:
        return taken >= sampling.iters
    if taken < sampling.minimum:
        return False
    if spent >= sampling.budget:
        return True

    # A narrow interval of a few samples is no evidence.
    if spent < sampling.budget / 10 or taken % 8:
        return False
    return all(relative_halfwidth(of_candidate) <= sampling.precision for of_candidate in samples)


def measure(
    case: Case,
    implementations: Sequence[Implementation],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat = lambda name: None,
    launches: Mapping[str, int] | None = None,
) -> Iterator[Result]:
    """Yield one result of a collective for each implementation.

    `launches` has the minimum number of operations per sample for implementations that an earlier round checked;
    every round ends with a check. CaseFailed if a kernel times out; the platform must then be opened anew.
    """
    subject = _Collective(case, platform, sampling, launches or {})
    return sample_in_turn(subject, implementations, sampling, heartbeat)


class _Collective(Subject):
    """A collective, with the copy and the barrier that are timed in every round of its samples."""

    def __init__(self, case: Case, platform: Platform, sampling: Sampling, launches: Mapping[str, int]) -> None:
        self.case, self.platform, self.sampling = case, platform, sampling
        self.launches = launches  # by name, from an earlier round's calibration
        self.platforms: dict[int, Platform] = {}  # platforms of the candidates, without duplicates
        self.reference: Reference | None = None
        self.candidates = 0

    def prepare(self, implementation: Implementation) -> Candidate | Result:
        case = self.case
        implementation.refuse(case)
        platform = implementation.home(self.platform, case)
        self.platforms[id(platform.memory)] = platform
        with platform.team.agreeing():
            prepared = implementation.prepare(case, platform)
        candidate = _CollectiveCandidate(self, implementation.name, prepared, platform)

        # Earlier rounds of the same ranks have checked it already.
        if self.sampling.check_only or implementation.name not in self.launches:
            delayed = None if implementation.library else implementation
            failure = checked(case, prepared, platform, self.sampling, delayed)
            if failure or self.sampling.check_only:
                return candidate.result(failure)
        self.candidates += 1
        return candidate

    def before_calibration(self) -> None:
        for platform in self.platforms.values():
            platform.checker.fill(self.case, CALIBRATION_SEED)

    def before_samples(self) -> None:
        for platform in self.platforms.values():
            platform.checker.fill(self.case, SAMPLES_SEED)
        self.reference = Reference(self.case, self.platform)

    def before_round(self) -> float:
        assert self.reference
        return self.reference.sample()


class _CollectiveCandidate(Candidate):
    """One implementation of the collective."""

    def __init__(self, subject: _Collective, name: str, prepared: Prepared, platform: Platform) -> None:
        self.name, self.samples = name, []
        self._subject, self._prepared, self._platform = subject, prepared, platform
        self._enqueue: float | None = None  # the host's seconds per operation
        self._launches = subject.launches.get(name, 1)
        self._steady = True  # whether the time per operation is independent of their number
        self._limited = False  # whether launches are fewer than needed, because more slow each
        self._spoiled = 0  # stored samples in which a rank was off its core
        self._repeated = 0  # samples repeated for that reason
        self._lost = 0.0  # seconds of the repeated samples
        self._switches = 0  # involuntary switches of this process's rank
        self._cores: set[int] = set()  # cores that it ran on

    def calibrate(self) -> Result | None:
        subject, prepared = self._subject, self._prepared
        self._enqueue = self._platform.clock.enqueue_seconds(prepared)
        self._calibrate()

        # A sample of one operation omits nothing, and earlier rounds have been checked.
        if self.name in subject.launches or self._launches == 1:
            return None
        failure = left_out(prepared, self._platform, self._launches)
        if not failure:
            return None
        subject.candidates -= 1
        return self.result(failure)

    def _calibrate(self) -> None:
        """*Collective*: choose the launches of a sample: enough for its duration, if each takes constant time."""
        subject, prepared, platform = self._subject, self._prepared, self._platform
        enough = calibrate(prepared, platform, subject.sampling, self._launches, subject.case.nbytes)
        if enough > self._launches:
            launches, self._steady = steady_launches(prepared, platform, enough)
            self._launches, self._limited = max(self._launches, launches), launches < enough

    def warm_up(self) -> None:
        platform, sampling = self._platform, self._subject.sampling
        lasted = platform.clock.time(self._prepared, self._launches) * self._launches

        # Only the calibration was disturbed.
        if not self._limited and lasted < _region(platform, sampling) / _MORE:
            self._calibrate()

    def sample(self, refill: Callable[[], None] = lambda: None) -> float:
        """Take a sample, and repeat it while a rank is off its core; `refill` is called before each try."""
        platform, lasted = self._platform, 0.0
        repeats = _REPEATS * self._subject.sampling.budget / max(1, self._subject.candidates)  # seconds, in all
        platform.clock.scheduled.take()  # discard the timings of another implementation

        # Repeat, within a share of the budget, while another program had a rank's core.
        while True:
            refill()
            seconds = platform.clock.time(self._prepared, self._launches)
            took = seconds * self._launches
            lasted += took
            if not _repeatable(platform, took) or self._lost + took > repeats:
                break
            self._repeated += 1
            self._lost += took
        self._spoiled += platform.clock.scheduled.spoiled
        switches, cores = platform.clock.scheduled.take()
        self._switches += switches
        self._cores.update(cores)
        self.samples.append(seconds / self._subject.case.collective.parts)
        return lasted

    def close(self) -> Result:
        """Take the last sample with fresh buffers, and check its outcome and the plausibility of all samples."""
        case, platform, wire = self._subject.case, self._platform, self._prepared.wire
        self.sample(lambda: platform.checker.fill(case, CLOSING_SEED, wire))

        # In place a launch's result is the next one's input: a whole sample has no known outcome, one launch has.
        if case.in_place:
            platform.checker.fill(case, CLOSING_SEED, wire)
            platform.clock.time(self._prepared, 1)
        failure = platform.checker.check(case, CLOSING_SEED, wire) or platform.checker.overrun(case)
        result = self.result(failure or too_fast(case, statistics.median(self.samples), platform.clock.limits))

        # After the samples, since it overwrites the buffers.
        if wire and result.right:
            result = replace(result, errors=wire_errors(platform, wire))
        reference = self._subject.reference
        assert reference
        return replace(result, floor=reference.copy_seconds or None, barrier=reference.barrier_seconds or None)

    def result(self, failure: CheckFailure | None) -> Measurement:
        """*Collective*: return the measurement, or the failure."""
        platform, prepared = self._platform, self._prepared
        return Measurement(
            case=self._subject.case,
            implementation=self.name,
            platform=platform.name,
            launches=self._launches,
            seconds=() if failure else tuple(self.samples),
            mismatch=failure,
            note=platform.note | prepared.note | Note.of("" if self._steady else _UNSTEADY),
            estimate=prepared.estimate,
            **prepared.ran._asdict(),
            enqueue=self._enqueue,
            library_bytes=prepared.library_bytes,
            library=prepared.library,
            scheduling=None if failure else self._scheduling(),
        )

    def _scheduling(self) -> Scheduling | None:
        """*Collective*: return how the operating system scheduled the ranks; None on GPUs."""
        ranks = self._platform.team.exchange((self._switches, tuple(sorted(self._cores))))

        # Ranks on GPUs have no cores of their own.
        if not any(cores for _, cores in ranks):
            return None
        return Scheduling(
            off_core=self._spoiled / max(1, len(self.samples)),
            repeated=self._repeated,
            switches=sum(switches for switches, _ in ranks),
            cores=tuple(cores for _, cores in ranks),
        )


class Reference:
    """The machine's state during a case: memory bandwidth, and latency between cores.

    All ranks copy the fewest bytes that the case must move, by the platform's fastest method. A barrier shows the
    latency between their cores. Both are timed in every round: a hypervisor moves virtual cores between chips, which
    can triple the time of small messages.
    """

    def __init__(self, case: Case, platform: Platform) -> None:
        self._platform = platform
        self._copies: list[Prepared] = []

        # Not if a time is of part of an operation: messages in flight reuse bytes in caches.
        if case.collective.parts == 1:
            with platform.team.agreeing():
                self._copies += platform.clock.floor(case)
        for copy in self._copies:
            platform.clock.time(copy, 1)  # the first one does not count
        with platform.team.agreeing():
            self._barrier = platform.clock.barrier()
        self._copy_samples: list[list[float]] = [[] for _ in self._copies]
        self._barrier_samples: list[float] = []

    def sample(self) -> float:
        """*Collective*: time a barrier and each copy once; return the total seconds."""
        taken = 0.0
        if self._barrier:
            seconds = self._platform.clock.time(self._barrier, _BARRIERS)
            self._barrier_samples.append(seconds)
            taken += seconds * _BARRIERS
        for copy, samples in zip(self._copies, self._copy_samples, strict=True):
            seconds = self._platform.clock.time(copy, 1)
            samples.append(seconds)
            taken += seconds
        return taken

    @property
    def barrier_seconds(self) -> float | None:
        """Median seconds of a barrier; None where there is none."""
        return statistics.median(self._barrier_samples) if self._barrier_samples else None

    @property
    def copy_seconds(self) -> float | None:
        """Median seconds of the fastest copy; None where there is none."""
        return min((statistics.median(samples) for samples in self._copy_samples if samples), default=None)


def calibrate(prepared: Prepared, platform: Platform, sampling: Sampling, launches: int = 1, nbytes: int = 0) -> int:
    """*Collective*: double the launches until they fill a sample, waits for cores excluded."""
    region = _region(platform, sampling)
    while launches < _MOST_LAUNCHES:
        elapsed = min(_steady(prepared, platform, launches) for _ in range(2)) * launches
        if elapsed < region:
            launches *= 2
        elif _held_up(prepared, platform, launches, elapsed, nbytes):
            launches = min(_MORE * launches, _MOST_LAUNCHES)
        else:
            break
    return launches


def steady_launches(prepared: Prepared, platform: Platform, launches: int) -> tuple[int, bool]:
    """*Collective*: return the most launches, up to a limit, that do not slow each other, and whether any exist."""
    # Launches that fill a queue slow each operation; then a sample takes fewer.
    steady = True
    while launches >= _QUARTER:
        steady = not _longer(prepared, platform, launches)
        if steady:
            break
        launches //= _QUARTER
    return launches, steady


def _longer(prepared: Prepared, platform: Platform, launches: int) -> bool:
    """Return whether operations take longer in samples of `launches` than of a quarter as many, in every turn."""
    # One turn without a difference is enough; it is nearly always the first.
    for _ in range(_TURNS):
        few = _steady(prepared, platform, launches // _QUARTER)
        if _steady(prepared, platform, launches) <= _LONGER * few:
            return False
    return True


def _region(platform: Platform, sampling: Sampling) -> float:
    return platform.clock.region if sampling.region is None else sampling.region


def _steady(prepared: Prepared, platform: Platform, launches: int) -> float:
    """Return the seconds per operation in the fastest of a few tries, ending once all ranks keep their cores."""
    fastest = math.inf
    for _ in range(_TRIES):
        seconds = platform.clock.time(prepared, launches)
        fastest = min(fastest, seconds)
        if not _repeatable(platform, seconds * launches):
            break
    return fastest


def _repeatable(platform: Platform, lasted: float) -> bool:
    """Return whether a rank was off its core in the last timing, and a repeat may help."""
    # An operation longer than a time slice is interrupted again.
    return platform.clock.scheduled.spoiled and lasted * (1 - platform.clock.scheduled.off_core) < _SLICE


def _held_up(prepared: Prepared, platform: Platform, launches: int, elapsed: float, nbytes: int) -> bool:
    """Return whether ranks waited for a core, a delay that does not depend on the number of operations."""
    least, most = _WAIT
    if not least + nbytes / _SLOWEST < elapsed < most:
        return False

    # Then more launches take hardly longer, and a short sample would show only the wait.
    many = _MORE * launches
    return min(platform.clock.time(prepared, many) for _ in range(2)) * many < _GROWTH * elapsed
