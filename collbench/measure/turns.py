"""Several sets of ranks that measure the same cases in turn, so that drift cancels in the ratios of their times.

Ranks that are not measured sleep (Processes.broadcast).  On a CPU all sets are bound to the same cores: left to the
scheduler, each would find another place whenever it wakes, and what that changes is more than most settings do.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self

from collbench.cases import Case, Sampling, Sweep
from collbench.errors import PlatformError
from collbench.measure.greeting import Opened
from collbench.results import Failed, Measurement, Result, Sampled, StepTimes

ROUNDS = 8  # of each side
LEAST = 6  # however slow the case: with fewer, ratios have no 95 % interval (the least to the greatest of six is one)


def order(rounds: int, sets: int = 2) -> Iterator[tuple[int, ...]]:
    """Which set (0, 1, ...) comes first in each round, which second and so on: A B, B A, B A, A B, B A, A B, ...

    In this sequence (Thue and Morse) either is first equally often in any two rounds from an even one on, so that
    neither a steady drift nor the memory of who ran before favours one.  Of more than two sets another one begins every
    two rounds, the second of which goes backwards: A B C, C B A, B C A, A C B, ...
    """
    for number in range(rounds):
        start = number // 2 % sets if sets > 2 else 0
        forwards = (*range(start, sets), *range(start))
        backwards = number % 2 if sets > 2 else number.bit_count() % 2
        yield forwards[::-1] if backwards else forwards


def shares(sampling: Sampling, rounds: int = ROUNDS) -> list[Sampling]:
    """How to sample in each round, so that all of them together are one case's worth for each side.

    As many rounds as there are samples to take, if those are fewer.
    """
    if sampling.iters is not None:
        rounds = min(rounds, sampling.iters)
        counts = [len(range(number, sampling.iters, rounds)) for number in range(rounds)]
        return [replace(sampling, iters=count) for count in counts]
    share = replace(
        sampling,
        budget=sampling.budget / rounds,
        minimum=math.ceil(sampling.minimum / rounds),
        precision=sampling.precision * math.sqrt(rounds),  # what the merged samples then have is as asked
    )
    return [share] * rounds


class Measures(Opened, Protocol):
    """What is needed of a Supervisor."""

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        """Yield a result for each of the named implementations."""


@dataclass
class Tally:
    """What one side has of one case so far."""

    case: Case
    platform: str
    rounds: dict[str, list[Result]]  # by implementation, in the order of the table: a result for each round

    @property
    def waiting(self) -> list[str]:
        """The implementations that can still be measured."""
        return [name for name, results in self.rounds.items() if not results or _right(results[-1])]

    @property
    def disturbed(self) -> bool:
        """Whether all that was measured in the last round is disturbed."""
        last = [results[-1] for results in self.rounds.values() if results and _right(results[-1])]
        return bool(last) and all(result.disturbed for result in last)

    def measure(self, ranks: Measures, sampling: Sampling) -> None:
        """One more round of all that can still be measured; RanksLost if no ranks can be had any more."""
        names = self.waiting
        last = {name: self.rounds[name][-1:] for name in names}
        launches = {name: row.launches for name, rows in last.items() for row in rows if isinstance(row, Sampled)}
        for result in ranks.measure(self.case, names, sampling, launches) if names else ():
            self.rounds[result.implementation].append(result)

    def round(self, ranks: Measures, sampling: Sampling) -> None:
        """The same where the other sides go on if the ranks of one died and cannot be replaced."""
        before = {name: len(results) for name, results in self.rounds.items()}
        names = self.waiting
        try:
            self.measure(ranks, sampling)
        except PlatformError as error:
            for name in names:
                if len(self.rounds[name]) == before[name]:
                    self.rounds[name].append(Failed(self.case, name, self.platform, str(error)))

    def spent(self) -> float:
        """Seconds that its samples lasted; infinite once there is nothing left to measure."""
        if not any(_right(results[-1]) for results in self.rounds.values()):
            return math.inf
        every = (result for results in self.rounds.values() for result in results)
        return sum(sum(result.seconds) * result.launches for result in every if isinstance(result, Sampled))

    def merged(self) -> list[Result]:
        """One result for each implementation: samples of all rounds in order, or what went wrong in the last."""
        return [_merge(results) for results in self.rounds.values() if results]


def _right(result: Result) -> bool:
    return isinstance(result, Sampled) and result.right


def _merge(results: Sequence[Result]) -> Result:
    last = results[-1]
    if isinstance(last, Failed) and len(results) > 1:
        return replace(last, reason=f"{last.reason} (in round {len(results)})")
    if not isinstance(last, Sampled) or not last.right:
        return last
    if isinstance(last, StepTimes):
        return last.joined([result for result in results if isinstance(result, StepTimes)])
    return last.joined([result for result in results if isinstance(result, Measurement)])


class Side(NamedTuple):
    """One set of ranks, and what it measures: as many cases as the others, perhaps by fewer implementations.

    The first cases of all sides are measured in turn, then the second ones, and so on.  The budget of its sweep is its
    own; how samples are counted is the same for all sides.
    """

    ranks: Measures
    sweep: Sweep
    name: str = ""  # for errors


@dataclass
class Turns:
    """The ranks of several sides, which take turns; a context manager that leaves none behind.

    `cases` are those that are measured together, one for each side; by default those of the sweeps in their order.
    Sides may have the same ranks: then these measure different cases in turn.
    """

    platform: str
    sides: Sequence[Side]
    cases: Sequence[tuple[Case, ...]] = ()
    _done: dict[int, list[list[Result]]] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for place, side in enumerate(self.sides):
                if any(side.ranks is other.ranks for other in self.sides[:place]):
                    continue
                try:
                    stack.enter_context(side.ranks)
                except PlatformError as error:
                    raise PlatformError(f"with {side.name}: {error}" if side.name else str(error)) from None
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def __post_init__(self) -> None:
        self.cases = self.cases or list(zip(*(side.sweep.cases() for side in self.sides), strict=True))

    def results(self, number: int, place: int) -> list[Result]:
        """Of the case with that number, of one of the sides; the first who asks has all of them measured."""
        if number not in self._done:
            self._done = {number: self._measure(self.cases[number])}  # nobody asks for an earlier case
        return self._done[number][place]

    def _measure(self, cases: Sequence[Case]) -> list[list[Result]]:
        tallies = [
            Tally(case, self.platform, {name: [] for name in side.sweep.implementations})
            for case, side in zip(cases, self.sides, strict=True)
        ]
        parts = [shares(side.sweep.sampling) for side in self.sides]
        for number, turns in enumerate(order(len(parts[0]), len(parts))):
            if self._overdue(number, tallies):
                break
            for place in turns:
                tallies[place].round(self.sides[place].ranks, parts[place][number])
        return [tally.merged() for tally in tallies]

    def _overdue(self, done: int, tallies: Sequence[Tally]) -> bool:
        """Whether the budgets are spent after so many rounds; only an even number of them is fair to all sides."""
        samplings = [side.sweep.sampling for side in self.sides]
        if samplings[0].iters is not None or done < LEAST or done % 2:
            return False
        return all(tally.spent() >= sampling.budget for tally, sampling in zip(tallies, samplings, strict=True))
