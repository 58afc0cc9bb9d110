"""Two settings of the environment measured in turn, each by ranks of its own, so that drift cancels in their ratio.

NCCL and MPI read most variables once in the life of a process, so a setting needs fresh processes.  Ranks that are not
measured sleep (Processes.broadcast).  On a CPU both settings' ranks are kept on the same cores: left to the
scheduler, each set would find its own place whenever it wakes, and what that changes is more than most settings do.
"""

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol, Self

from collbench.cases import Case, Sampling, Sweep
from collbench.errors import PlatformError
from collbench.measure.greeting import Greeting
from collbench.measure.session import Opened, Session
from collbench.measure.supervisor import Supervisor
from collbench.measurement import Failed, Measurement, Result
from collbench.runs.environment import Setting
from collbench.runs.header import Interleaved

ROUNDS = 8  # of each setting
LEAST = 6  # however slow the case: with fewer, ratios have no 95 % interval (the least to the greatest of six is one)
COPIES = 2  # sets of ranks, which hold memory at the same time


def order(rounds: int) -> Iterator[tuple[int, int]]:
    """Which of the two settings (0, 1) comes first in each round, and which second: A B, B A, B A, A B, B A, A B, ...

    In this sequence (Thue and Morse) either is first equally often in any two rounds from an even one on, so that
    neither a steady drift nor the memory of who ran before favours one.
    """
    for number in range(rounds):
        first = number.bit_count() % 2
        yield first, 1 - first


def shares(sampling: Sampling) -> list[Sampling]:
    """How to sample in each round, so that all of them together are one case's worth for each setting.

    As many rounds as there are samples to take, if those are fewer than ROUNDS.
    """
    if sampling.iters is not None:
        rounds = min(ROUNDS, sampling.iters)
        counts = [len(range(number, sampling.iters, rounds)) for number in range(rounds)]
        return [replace(sampling, iters=count) for count in counts]
    share = replace(
        sampling,
        budget=sampling.budget / ROUNDS,
        minimum=math.ceil(sampling.minimum / ROUNDS),
        precision=sampling.precision * math.sqrt(ROUNDS),  # what the merged samples then have is as asked
    )
    return [share] * ROUNDS


def ratios(base: Measurement, other: Measurement) -> list[float]:
    """The time of `other` over that of `base` in each round that both took part in: medians of its samples."""
    return [median(theirs) / median(ours) for ours, theirs in zip(_rounds(base), _rounds(other), strict=False)]


def _rounds(result: Measurement) -> Iterator[tuple[float, ...]]:
    start = 0
    for count in result.rounds:
        yield result.seconds[start : start + count]
        start += count


class Measures(Opened, Protocol):
    """What is needed of a Supervisor."""

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        """Yield a result for each of the named implementations."""


@dataclass
class _Tally:
    """What one setting has of one case so far."""

    case: Case
    platform: str
    rounds: dict[str, list[Result]]  # by implementation, in the order of the table: a result for each round

    def round(self, ranks: Measures, sampling: Sampling) -> None:
        """One more round of all that can still be measured."""
        names = [name for name, results in self.rounds.items() if not results or _right(results[-1])]
        last = {name: self.rounds[name][-1:] for name in names}
        launches = {name: row.launches for name, rows in last.items() for row in rows if isinstance(row, Measurement)}
        waiting = set(names)
        try:
            for result in ranks.measure(self.case, names, sampling, launches) if names else ():
                self.rounds[result.implementation].append(result)
                waiting.discard(result.implementation)
        except PlatformError as error:  # ranks that died cannot be replaced; the other setting goes on
            for name in filter(waiting.__contains__, names):
                self.rounds[name].append(Failed(self.case, name, self.platform, str(error)))

    def spent(self) -> float:
        """Seconds that its samples lasted; infinite once there is nothing left to measure."""
        if not any(_right(results[-1]) for results in self.rounds.values()):
            return math.inf
        every = (result for results in self.rounds.values() for result in results)
        return sum(sum(result.seconds) * result.launches for result in every if isinstance(result, Measurement))

    def merged(self) -> list[Result]:
        """One result for each implementation: samples of all rounds in order, or what went wrong in the last."""
        return [_merge(results) for results in self.rounds.values()]


def _right(result: Result) -> bool:
    return isinstance(result, Measurement) and result.right


def _merge(results: Sequence[Result]) -> Result:
    last = results[-1]
    if isinstance(last, Failed) and len(results) > 1:
        return replace(last, reason=f"{last.reason} (in round {len(results)})")
    if not isinstance(last, Measurement) or not last.right:
        return last
    measured = [result for result in results if isinstance(result, Measurement)]
    samples = tuple(sample for result in measured for sample in result.seconds)
    floors = [result.floor for result in measured if result.floor is not None]
    rounds = tuple(len(result.seconds) for result in measured)
    return replace(last, seconds=samples, rounds=rounds, floor=median(floors) if floors else None)


@dataclass
class Pair:
    """The ranks of two settings, which take turns; a context manager that leaves none behind."""

    platform: str
    sweep: Sweep
    ranks: tuple[Measures, Measures]
    names: tuple[str, str] = ("", "")  # of the settings, for errors
    _done: dict[Case, tuple[list[Result], list[Result]]] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for ranks, name in zip(self.ranks, self.names, strict=True):
                try:
                    stack.enter_context(ranks)
                except PlatformError as error:
                    raise PlatformError(f"with {name}: {error}" if name else str(error)) from None
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def results(self, case: Case, place: int) -> list[Result]:
        """Of one of the two settings; the first who asks has both measured."""
        if case not in self._done:
            self._done = {case: self._measure(case)}  # nobody asks for an earlier case
        return self._done[case][place]

    def _measure(self, case: Case) -> tuple[list[Result], list[Result]]:
        tallies = [_Tally(case, self.platform, {name: [] for name in self.sweep.implementations}) for _ in self.ranks]
        parts = shares(self.sweep.sampling)
        for number, (part, turns) in enumerate(zip(parts, order(len(parts)), strict=True)):
            if self._overdue(number, tallies):
                break
            for place in turns:
                tallies[place].round(self.ranks[place], part)
        first, second = tallies
        return first.merged(), second.merged()

    def _overdue(self, done: int, tallies: Sequence[_Tally]) -> bool:
        """Whether the budget is spent after so many rounds; only an even number of them is fair to both settings."""
        sampling = self.sweep.sampling
        if sampling.iters is not None or done < LEAST or done % 2:
            return False
        return all(tally.spent() >= sampling.budget for tally in tallies)


class _Side:
    """One setting of a pair, which is open already: what a Session needs of its ranks."""

    def __init__(self, pair: Pair, place: int, interleaved: Interleaved) -> None:
        self._pair, self._place, self._interleaved = pair, place, interleaved
        self.greeting = Greeting()

    def __enter__(self) -> Self:
        said = self._pair.ranks[self._place].greeting
        self.greeting = replace(said, interleaved=replace(self._interleaved, cores=said.cores))
        return self

    def __exit__(self, *exception: object) -> None:
        """The pair ends the ranks."""

    def run(self) -> Iterator[Result]:
        """Yield every result of the setting, in the order of the table."""
        for case in self._pair.sweep.cases():
            yield from self._pair.results(case, self._place)


class PairedSession:
    """A sweep under two settings, and a run file of each; iterate over `run()` inside `with`.

    `settings` are each a change of the environment, what to call it in the header, and the folder of its run file.
    """

    def __init__(self, platform: str, sweep: Sweep, settings: Sequence[tuple[Setting, str, Path]]) -> None:
        named = tuple({name: None for setting, _, _ in settings for name in setting.names})
        first, second = (Supervisor(platform, sweep, setting, named, pinned=True) for setting, _, _ in settings)
        names = settings[0][1], settings[1][1]
        self.sweep = sweep
        self._pair = Pair(platform, sweep, (first, second), names)
        self._open = ExitStack()
        run = str(uuid.uuid4())
        self.sessions: list[Session] = []
        for place, (_, name, folder) in enumerate(settings):
            try:
                side = _Side(self._pair, place, Interleaved(id=run, setting=name))
                self.sessions.append(Session(side, sweep, None, folder))
            except BaseException:
                self._discard()
                raise

    def _discard(self) -> None:
        for session in reversed(self.sessions):
            session.discard()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._pair)
            except BaseException:
                self._discard()
                raise
            for session in self.sessions:
                stack.enter_context(session)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def run(self) -> Iterator[tuple[Result, Result]]:
        """Yield the results of the two settings for each case and implementation once they are on disk."""
        first, second = self.sessions
        yield from zip(first.run(), second.run(), strict=True)
