"""Where the time of a case goes, from kernels that log.

Runs alike on every process of the run, as collbench/measure/sampling.py does.
"""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.errors import Unsupported
from collbench.measure.checks import SEEDS, checked
from collbench.measure.sampling import Heartbeat, calibrate, steady_launches
from collbench.platforms import tracelog
from collbench.platforms.interface import Moment, Platform, Prepared, at
from collbench.results import Result
from collbench.results.collectives import PHASES, WAITED, Explanation, Measurement, Skipped, Span, Track
from collbench.results.disturbed import Scheduling

_ROUNDS = 15  # the median operation is shown
_DIGITS = 10  # decimals of a time
_TRIES = 3  # of a round if a rank was off its core


def explain(
    case: Case,
    implementations: Sequence[Implementation],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat = lambda name: None,
) -> Iterator[Result]:
    """Yield an explanation for each implementation, in order; skipped and wrong ones as in `measure`.

    CaseFailed if a kernel gives up waiting; the platform must then be opened anew.
    """
    for implementation in implementations:
        heartbeat(implementation.name)
        try:
            implementation.refuse(case)
            home = implementation.home(platform, case)
            with platform.team.agreeing():
                plain = implementation.prepare(case, home)
                traced = implementation.prepare(case, home.traced())
        except Unsupported as reason:
            yield Skipped(case, implementation.name, platform.name, str(reason))
            continue
        wrong = checked(case, plain, home, sampling) or checked(case, traced, home, sampling)
        if wrong:
            note = platform.note | plain.note
            yield Measurement(case, implementation.name, platform.name, 1, (), mismatch=wrong, note=note)
        else:
            yield _explanation(case, implementation, home, sampling, plain, traced)


@dataclass(frozen=True)
class _Round:
    """Seconds of a plain and of a traced operation, the tracks of the latter, and whether a rank was off its core."""

    seconds: float
    traced: float
    tracks: Sequence[Track]
    spoiled: bool


def _explanation(
    case: Case,
    implementation: Implementation,
    platform: Platform,
    sampling: Sampling,
    plain: Prepared,
    traced: Prepared,
) -> Explanation:
    """Time plain and traced operations in turn; the tracks are those of the round of median length."""
    platform.checker.fill(case, SEEDS[1])
    _tracks(platform)  # clears what the checks have left
    launches, _ = steady_launches(plain, platform, calibrate(plain, platform, sampling, nbytes=case.nbytes))
    rounds = []
    for _ in range(_ROUNDS):
        for _ in range(_TRIES):
            timed = _time(plain, traced, platform, launches, implementation.library)
            if not timed.spoiled:
                break
        rounds.append(timed)

    # The drawing shows one real operation: a mean of several would blur where each wait lies.
    shown = sorted(rounds, key=lambda timed: timed.traced)[len(rounds) // 2]
    origin = min((track.start for track in shown.tracks), default=0.0)
    tracks = []
    for track in shown.tracks:
        spans = [Span(phase, round(start, _DIGITS), round(seconds, _DIGITS)) for phase, start, seconds in track.spans]
        tracks.append(replace(track, start=track.start - origin, spans=tuple(spans)))
    return Explanation(
        case=case,
        implementation=implementation.name,
        platform=platform.name,
        seconds=statistics.median(timed.seconds for timed in rounds),
        traced=shown.traced,
        tracks=tuple(sorted(tracks, key=lambda track: (track.rank, track.block))),
        **plain.ran._asdict(),
        note=platform.note | plain.note,
        scheduling=Scheduling.of_ranks([[timed.spoiled for timed in rounds]]),
    )


def _time(plain: Prepared, traced: Prepared, platform: Platform, launches: int, library: bool) -> _Round:
    seconds = platform.clock.time(plain, launches)
    spoiled = platform.clock.scheduled.spoiled
    if library:
        return _Round(seconds, seconds, (), spoiled)
    if traced.watched:
        traced_seconds, tracks = _watch(traced, platform)
    else:
        traced_seconds, tracks = platform.clock.time(traced, launches), _tracks(platform)
    return _Round(seconds, traced_seconds, tracks, spoiled or platform.clock.scheduled.spoiled)


def _tracks(platform: Platform) -> list[Track]:
    logs = {rank: platform.logs.take_logs(rank) for rank in platform.local}
    tracks = []

    # Each device has its own clock: `offset` converts its times to the common clock.
    for ranks, offset in platform.logs.log_clocks().items():
        for track in tracelog.tracks({rank: logs[rank] for rank in ranks}):
            tracks.append(replace(track, start=track.start + offset))
    return list(chain.from_iterable(platform.team.exchange(tracks)))


@dataclass
class _Watcher:
    """Records when each rank began and ended an action, for operations that the host drives."""

    platform: Platform
    noted: list[tuple[int, str, Moment, Moment]] = field(default_factory=list)

    @contextmanager
    def __call__(self, rank: int, phase: str) -> Iterator[None]:
        begun = self.platform.clock.moment(rank)
        yield
        self.noted.append((rank, phase, begun, self.platform.clock.moment(rank)))

    def tracks(self) -> Iterator[Track]:
        """Yield the track of each rank; a rank that does nothing waits, for others or for the host."""
        for rank in self.platform.local:
            moments = [(phase, at(begun), at(ended)) for who, phase, begun, ended in self.noted if who == rank]
            origin = before = moments[0][1]
            spans: list[Span] = []
            for phase, begun, ended in moments:
                if begun > before:
                    spans.append(Span(WAITED, before - origin, begun - before))
                spans.append(Span(phase, begun - origin, ended - begun))
                before = ended
            spent = dict.fromkeys(PHASES, 0.0)
            for span in spans:
                spent[span.phase] += span.seconds
            yield Track(rank, 0, origin, before - origin, spent, tuple(spans))


def _watch(prepared: Prepared, platform: Platform) -> tuple[float, list[Track]]:
    """Watch one operation; its seconds are those of the slowest rank."""
    watched, watcher = prepared.watched, _Watcher(platform)
    assert watched
    once = Prepared(lambda launches: watched(watcher), prepared.host_driven, notes_moments=True)
    seconds = platform.clock.time(once, 1)
    return seconds, list(chain.from_iterable(platform.team.exchange(list(watcher.tracks()))))
