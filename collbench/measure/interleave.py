"""Several sets of ranks that measure the same cases in turn: settings of the environment, MPI libraries, starts.

Drift of the machine cancels in the ratios of their times.  Ranks that are not measured sleep (Processes.broadcast).  On
a CPU all sets are bound to the same cores: left to the scheduler, each would find another place whenever it wakes, and
what that changes is more than most settings do.

`Interleaving` is the engine: PairedSession compares two settings by it (`sweep --ab`), `MultiLibrary` measures with
several MPI libraries (`sweep --mpi`).  `Starts` starts the ranks of one sweep a few times.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple, Protocol, Self

from collbench.algorithms import implementations
from collbench.cases import USUAL_STARTS, Case, Sampling, Sweep
from collbench.errors import PlatformError, RanksLost, UsageError
from collbench.measure.protocol import Opened, WorkerHello
from collbench.measure.supervisor import Supervisor
from collbench.platforms import find_platform
from collbench.platforms.cpu.mpi_libraries import Library
from collbench.results import Failed, Measurement, Result, StepTimes
from collbench.stats import Pool

Sampled = Measurement | StepTimes
"""What was sampled here, in rounds that can be joined."""

ROUNDS = 8  # of each arm
LEAST = 6  # however slow the case: with fewer, ratios have no 95 % interval (the least to the greatest of six is one)
LIBRARY_PLATFORM = "cpu"  # whose ranks an MPI library starts and measures
_QUICK = 2.0  # seconds that a start may take for ranks to be started several times unasked


def order(rounds: int, arms: int = 2) -> Iterator[tuple[int, ...]]:
    """Yield which arm (0, 1, ...) comes first in each round, which second and so on: A B, B A, B A, A B, B A, A B, ...

    In this sequence (Thue and Morse) either is first equally often in any two rounds from an even one on, so that
    neither a steady drift nor the memory of who ran before favours one.  Of more than two arms another one begins every
    two rounds, the second of which goes backwards: A B C, C B A, B C A, A C B, ...
    """
    for number in range(rounds):
        start = number // 2 % arms if arms > 2 else 0
        forwards = (*range(start, arms), *range(start))
        backwards = number % 2 if arms > 2 else number.bit_count() % 2
        yield forwards[::-1] if backwards else forwards


def shares(sampling: Sampling, rounds: int = ROUNDS) -> list[Sampling]:
    """Return how to sample in each round, so that all rounds together are one case's worth for each arm.

    There are as many rounds as there are samples to take, if those are fewer.
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


def ratios(base: Measurement, other: Measurement) -> list[float]:
    """Return the time of `other` over that of `base` in each round of both: medians of its samples."""
    rounds = zip(base.by_round(), other.by_round(), strict=False)
    return [median(theirs) / median(ours) for ours, theirs in rounds]


class Measures(Opened, Protocol):
    """What is needed of a Supervisor."""

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        """Yield a result for each of the named implementations."""


class Arm(NamedTuple):
    """One set of ranks, and what it measures: as many cases as the others, perhaps by fewer implementations.

    The first cases of all arms are measured in turn, then the second ones, and so on.  Each sweep has its own budget;
    how samples are counted is the same for all arms.
    """

    ranks: Measures
    sweep: Sweep
    name: str = ""  # for errors


@dataclass
class ArmResults:
    """What one arm has of one case so far."""

    case: Case
    platform: str
    rounds: dict[str, list[Result]]  # by implementation, in the order of the table: a result for each round

    @property
    def unfinished(self) -> list[str]:
        """The implementations that can still be measured."""
        return [name for name, results in self.rounds.items() if not results or _is_right(results[-1])]

    @property
    def disturbed(self) -> bool:
        """Whether all that was measured in the last round is disturbed."""
        last = [results[-1] for results in self.rounds.values() if results and _is_right(results[-1])]
        return bool(last) and all(result.disturbed for result in last)

    def measure(self, ranks: Measures, sampling: Sampling) -> None:
        """Measure one more round of all that can still be; RanksLost if no ranks can be had any more."""
        names = self.unfinished
        if not names:
            return
        launches = {}
        for name in names:
            for row in self.rounds[name][-1:]:
                if isinstance(row, Sampled):
                    launches[name] = row.launches
        for result in ranks.measure(self.case, names, sampling, launches):
            self.rounds[result.implementation].append(result)

    def measure_or_fail(self, ranks: Measures, sampling: Sampling) -> None:
        """Measure one more round; the implementations have failed if the ranks die and cannot be replaced."""
        before = {name: len(results) for name, results in self.rounds.items()}
        names = self.unfinished
        try:
            self.measure(ranks, sampling)
        except PlatformError as error:
            for name in names:
                if len(self.rounds[name]) == before[name]:
                    self.rounds[name].append(Failed(self.case, name, self.platform, str(error)))

    def spent(self) -> float:
        """Return the seconds that its samples lasted; infinite once there is nothing left to measure."""
        if not any(_is_right(results[-1]) for results in self.rounds.values()):
            return math.inf
        seconds = 0.0
        for results in self.rounds.values():
            seconds += sum(sum(result.times) * result.launches for result in results if isinstance(result, Sampled))
        return seconds

    def merged(self) -> list[Result]:
        """Return one result for each implementation: samples of all rounds in order, or what was wrong in the last."""
        return [_merge(results) for results in self.rounds.values() if results]


def _is_right(result: Result) -> bool:
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


@dataclass
class Interleaving:
    """The ranks of several arms, which take turns; a context manager that leaves none behind.

    `cases` are those that are measured together, one for each arm; by default those of the sweeps in their order.
    Arms may have the same ranks: then these measure different cases in turn.
    """

    platform: str
    arms: Sequence[Arm]
    cases: Sequence[tuple[Case, ...]] = ()
    _done: dict[int, list[list[Result]]] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.cases = self.cases or list(zip(*(arm.sweep.cases() for arm in self.arms), strict=True))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for place, arm in enumerate(self.arms):
                if any(arm.ranks is other.ranks for other in self.arms[:place]):
                    continue
                try:
                    stack.enter_context(arm.ranks)
                except PlatformError as error:
                    raise PlatformError(f"with {arm.name}: {error}" if arm.name else str(error)) from None
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def results(self, number: int, place: int) -> list[Result]:
        """Return those of the case with that number, of one of the arms; the first call measures it for all arms."""
        if number not in self._done:
            self._done = {number: self._measure(self.cases[number])}  # nobody asks for an earlier case
        return self._done[number][place]

    def _measure(self, cases: Sequence[Case]) -> list[list[Result]]:
        found = []
        for case, arm in zip(cases, self.arms, strict=True):
            found.append(ArmResults(case, self.platform, {name: [] for name in arm.sweep.implementations}))
        parts = [shares(arm.sweep.sampling) for arm in self.arms]
        for number, places in enumerate(order(len(parts[0]), len(parts))):
            if self._over_budget(number, found):
                break
            for place in places:
                found[place].measure_or_fail(self.arms[place].ranks, parts[place][number])
        return [results.merged() for results in found]

    def _over_budget(self, done: int, found: Sequence[ArmResults]) -> bool:
        """Return whether the budgets are spent after so many rounds; only an even number of them is fair to all."""
        samplings = [arm.sweep.sampling for arm in self.arms]
        if samplings[0].iters is not None or done < LEAST or done % 2:
            return False
        return all(results.spent() >= sampling.budget for results, sampling in zip(found, samplings, strict=True))


class Starts:
    """Several sets of ranks for one sweep, started one after the other: `sweep.starts`, or as many as are usual (0).

    Where the memory of a process happens to lie changes a small message's time by a tenth or more, for as long as the
    process lives.  No number of samples from one start shows that.  So all starts measure every case in turn, and a
    row's interval comes from how far its starts are apart.
    """

    def __init__(self, platform: str, sweep: Sweep) -> None:
        self._sweep, self._platform = sweep, platform
        self._starts = [Supervisor(platform, sweep)]
        self._open = ExitStack()
        self._pools: dict[tuple[str, Case], Pool] = {}  # by curve
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            begun = time.monotonic()
            stack.enter_context(self._starts[0])
            more = self._more(time.monotonic() - begun)
            with suppress(PlatformError) if not self._sweep.starts else ExitStack():
                for _ in range(more):
                    another = Supervisor(self._platform, self._sweep)
                    stack.enter_context(another)
                    self._starts.append(another)
            self._open = stack.pop_all()
        self.greeting = replace(self._starts[0].greeting, starts=len(self._starts))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def _more(self, seconds: float) -> int:
        """Return how many sets of ranks to start after the first, which took so many seconds."""
        if self._sweep.starts:
            return self._sweep.starts - 1
        return USUAL_STARTS - 1 if seconds < _QUICK and find_platform(self._platform).process_per_rank else 0

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep, those of a case once all starts have measured it.

        A start whose ranks end and cannot be had again is left out from then on; the last result says so where that was
        the last start.
        """
        if len(self._starts) == 1:
            yield from self._starts[0].run()
            return
        for case in self._sweep.cases():
            results = ArmResults(case, self._platform, {name: [] for name in self._sweep.implementations})
            parts = shares(self._sweep.sampling, len(self._starts))
            lost = None
            for ranks, share in zip(tuple(self._starts), parts, strict=False):
                try:
                    results.measure(ranks, share)
                except RanksLost as error:
                    self._starts.remove(ranks)
                    lost = error
                if results.disturbed:
                    break  # the other starts would meet the same program on the same cores
            yield from map(self._with_spread, results.merged())
            if lost and not self._starts:
                yield Failed(case, lost.implementation, self._platform, f"{lost}; the run ends here")
                return

    def _with_spread(self, result: Result) -> Result:
        """Return the result with what its starts and those of smaller sizes say of how far starts are apart."""
        if not isinstance(result, Measurement) or not result.right or len(result.rounds) < 2:
            return result
        pool = self._pools.setdefault((result.implementation, result.case.kind), Pool())
        return replace(result, spread=pool.add([median(samples) for samples in result.by_round()]))


class Rotation:
    """The ranks of one arm of an interleaved run, started several times: each round is measured by the next start."""

    def __init__(self, starts: Sequence[Supervisor]) -> None:
        self._starts = starts
        self._open = ExitStack()
        self._round = 0
        self._case: Case | None = None
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for ranks in self._starts:
                stack.enter_context(ranks)
            self._open = stack.pop_all()
        self.greeting = replace(self._starts[0].greeting, starts=len(self._starts))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        """Yield a result for each of the named implementations, by the start whose round of that case it is."""
        self._round = self._round + 1 if case == self._case else 0
        self._case = case
        return self._starts[self._round % len(self._starts)].measure(case, names, sampling, launches)


def library_suffixes(libraries: Sequence[Library]) -> list[str]:
    """Return what tells the rows of these libraries apart: nothing, or `@` and a kind, numbered where it comes again.

    Raises:
        UsageError: A library is there twice.

    """
    names: list[str] = []
    seen: set[Any] = set()
    for library in libraries:
        file = library.file.resolve() if library.file else None
        if file in seen:
            raise UsageError(f"--mpi names {library.kind.name} twice ({file}); leave one out")
        seen.add(file)
        name = f"@{library.kind.key}"
        same = sum(other.split("-")[0] == name for other in names)
        names.append("" if library.own else f"{name}-{same + 1}" if same else name)
    return names


def _supervised(sweep: Sweep, library: Library) -> Measures:
    return Supervisor(LIBRARY_PLATFORM, sweep, library=library)


class MultiLibrary:
    """The ranks of a sweep with several MPI libraries, as a Session needs them: an arm for each, by its own launcher.

    The first library's ranks measure all implementations, the others' only those that call the library.  A row is
    called after its library by `@`, as in `mpi@openmpi`, unless that is the one that mpi4py loads by itself: then it is
    `mpi`, as in a sweep that names no library, so that rows of one name are always of one library.  `sweep` has the
    names of all rows.
    """

    def __init__(
        self, sweep: Sweep, libraries: Sequence[Library], start: Callable[[Sweep, Library], Measures] = _supervised
    ) -> None:
        known = implementations()
        calling = [name for name in sweep.implementations if known[name].library]
        if len(libraries) > 1 and not calling:
            names = ",".join(sweep.implementations)
            raise UsageError(f"--impl {names} calls no MPI library, so there is nothing to compare; add mpi")
        self._suffixes = library_suffixes(libraries)
        share = replace(sweep.sampling, budget=sweep.sampling.budget * len(calling) / len(sweep.implementations))
        others = replace(sweep, implementations=tuple(calling), sampling=share)
        arms = []
        self._rows: list[tuple[str, int, str]] = []  # row's name, arm, implementation
        for place, library in enumerate(libraries):
            of_arm = others if place else sweep
            arms.append(Arm(start(of_arm, library), of_arm, f"--mpi {library.kind.key}"))
        for name in sweep.implementations:
            for place in range(len(libraries)) if name in calling else (0,):
                self._rows.append((name + self._suffixes[place] if name in calling else name, place, name))
        self._asked = sweep
        self.sweep = replace(sweep, implementations=tuple(row for row, _, _ in self._rows))
        self._interleaving = Interleaving(LIBRARY_PLATFORM, arms)
        self.greeting = WorkerHello()

    def __enter__(self) -> Self:
        self._interleaving.__enter__()
        hellos = [arm.ranks.greeting for arm in self._interleaving.arms]
        versions = {name: version for name, version in hellos[0].versions.items() if name != "mpi"}
        pids: tuple[int, ...] = ()
        for suffix, hello in zip(self._suffixes, hellos, strict=True):
            versions[f"mpi{suffix}"] = hello.versions["mpi"]
            pids += hello.pids
        self.greeting = replace(hellos[0], versions=versions, pids=pids)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._interleaving.__exit__(*exception)

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep: of a case those of all libraries, before the next."""
        arms = self._interleaving.arms
        for number, case in enumerate(self._asked.cases()):
            if len(arms) == 1:  # as they come
                names = {name: row for row, _, name in self._rows}
                for result in arms[0].ranks.measure(case, self._asked.implementations, self._asked.sampling):
                    yield replace(result, implementation=names[result.implementation])
                continue
            results = {}
            for place, _ in enumerate(arms):
                for result in self._interleaving.results(number, place):
                    results[place, result.implementation] = result
            for row, place, name in self._rows:
                yield replace(results[place, name], implementation=row)
