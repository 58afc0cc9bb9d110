"""Several sets of ranks that measure the same cases in turn.

The machine's drift cancels in the ratios of their times. Idle sets sleep (Team.broadcast). On a CPU all sets are
bound to the same cores, because moving ranks changes times more than most settings do. `Interleaving` is the engine
of PairedSession (`sweep --ab`), `MultiLibrary` (`sweep --mpi`, `sweep --nccl`) and `Starts`, which starts the ranks
of one sweep several times.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

from collbench.algorithms import implementations
from collbench.cases import ROUNDS, USUAL_STARTS, Case, Sampling, Sweep
from collbench.errors import PlatformError, RanksLost, UsageError
from collbench.measure.protocol import Ranks, Tell, WorkerHello
from collbench.measure.resumed import tasks
from collbench.measure.supervisor import Supervisor
from collbench.platforms import find_platform
from collbench.platforms.cpu.mpi_libraries import Library
from collbench.results import Failed, Measurement, Repeated, Result, Sampled
from collbench.stats import Pool
from collbench.units import counted, format_seconds

if TYPE_CHECKING:
    from collbench.platforms.gpu.nccl import NcclLibrary

    RankLibrary: TypeAlias = Library | NcclLibrary

LEAST = 6  # rounds: with fewer, ratios have no 95 % interval (the range of six is one)
_QUICK = 2.0  # seconds: starts up to this long are repeated by default


def order(rounds: int, arms: int = 2) -> Iterator[tuple[int, ...]]:
    """Yield the order of the arms (0, 1, ...) in each round: A B, B A, B A, A B, B A, A B, ...

    With more than two arms another one begins every two rounds, and every second round is reversed: A B C, C B A, B C
    A, A C B, ...
    """
    for number in range(rounds):
        if arms > 2:
            start, backwards = number // 2 % arms, number % 2
        else:
            # Thue-Morse order: neither steady drift nor the effect of the previous arm favours one arm.
            start, backwards = 0, number.bit_count() % 2
        forwards = (*range(start, arms), *range(start))
        yield forwards[::-1] if backwards else forwards


def shares(sampling: Sampling, rounds: int = ROUNDS) -> list[Sampling]:
    """Return the sampling of each round; all rounds together are one case's budget for each arm."""
    # Every round needs a sample: fewer requested samples mean fewer rounds.
    if sampling.iters is not None:
        rounds = min(rounds, sampling.iters)
        counts = [len(range(number, sampling.iters, rounds)) for number in range(rounds)]
        return [replace(sampling, iters=count) for count in counts]
    share = replace(
        sampling,
        budget=sampling.budget / rounds,
        minimum=math.ceil(sampling.minimum / rounds),
        precision=sampling.precision * math.sqrt(rounds),  # so that the merged samples reach the requested precision
    )
    return [share] * rounds


class Arm(NamedTuple):
    """Sets of ranks and their sweep, with as many cases as the other arms, perhaps for fewer implementations.

    The first cases of all arms are measured in turn, then the second ones, and so on. Each sweep has its own budget;
    samples are counted alike for all arms.
    """

    ranks: Sequence[Supervisor]  # one set for each start; each measures a round in turn
    sweep: Sweep
    name: str = ""  # for errors


class ArmResults:
    """The results of one arm for one case so far."""

    def __init__(self, case: Case, platform: str, names: Sequence[str]) -> None:
        self.case, self.platform = case, platform
        self.rounds: dict[str, list[Result]] = {name: [] for name in names}  # in the order of the table

    @property
    def disturbed(self) -> bool:
        """Whether all measurements of the last round are disturbed."""
        last = [results[-1] for results in self.rounds.values() if results and _is_right(results[-1])]
        return bool(last) and all(result.disturbed for result in last)

    def measure(self, ranks: Supervisor, sampling: Sampling) -> None:
        """Measure one more round of all implementations that have not failed; RanksLost if ranks cannot restart."""
        launches: dict[str, int] = {}
        names = []
        for name, results in self.rounds.items():
            if not results:
                names.append(name)
            elif _is_right(last := results[-1]):
                names.append(name)
                launches[name] = last.launches  # so that all rounds' samples have the same number of launches
        if names:
            for result in ranks.measure(self.case, names, sampling, launches):
                self.rounds[result.implementation].append(result)

    def measure_or_fail(self, ranks: Supervisor, sampling: Sampling, number: int) -> None:
        """Measure a round; if ranks die and cannot be replaced, their implementations fail."""
        try:
            self.measure(ranks, sampling)
        except PlatformError as error:
            for name, results in self.rounds.items():
                if len(results) == number and all(map(_is_right, results)):
                    results.append(Failed(self.case, name, self.platform, str(error)))

    def spent(self) -> float:
        """Return the seconds spent on samples; infinite once nothing is left to measure."""
        if not any(_is_right(results[-1]) for results in self.rounds.values()):
            return math.inf
        seconds = 0.0
        for results in self.rounds.values():
            seconds += sum(sum(result.times) * result.launches for result in results if isinstance(result, Sampled))
        return seconds

    @property
    def title(self) -> str:
        """The work of this arm, or the part that differs between arms."""
        work = self.case.work.words[1:] if self.case.work else ()
        return ", ".join((counted(self.case.ranks, "rank"), *work))

    @property
    def progress(self) -> str:
        """A line with the times so far of each implementation."""
        right = [row for row in self.merged() if isinstance(row, Sampled) and row.right]
        times = [f"{row.label} {format_seconds(row.typical)}" for row in right]
        return f"{self.title}: {', '.join(times)}"

    def merged(self) -> list[Result]:
        """Return one result for each implementation: samples of all rounds in order, or the last round's failure."""
        return [_merge(results) for results in self.rounds.values() if results]


def _is_right(result: Result) -> TypeGuard[Repeated]:
    return isinstance(result, Repeated) and result.right


def _merge(results: list[Any]) -> Result:
    last: Result = results[-1]
    if isinstance(last, Failed) and len(results) > 1:
        return replace(last, reason=f"{last.reason} (in round {len(results)})")
    return last.joined(results) if _is_right(last) else last


class Interleaving(Ranks):
    """The ranks of several arms, which take turns.

    `cases` holds tuples of cases to measure together, one for each arm; by default the sweeps' cases in order. Arms
    may share ranks, which then measure different cases in turn. The hello comes from arm `first`.
    """

    def __init__(
        self, platform: str, arms: Sequence[Arm], cases: Sequence[tuple[Case, ...]] = (), first: int = 0
    ) -> None:
        self.platform, self.arms, self._first = platform, arms, first
        self.cases = cases or list(zip(*(arm.sweep.cases() for arm in arms), strict=True))

    def start(self, stack: ExitStack) -> WorkerHello:
        """Start the ranks of each arm in turn; a PlatformError names the failing arm."""
        started: list[Supervisor] = []
        for arm in self.arms:
            for ranks in arm.ranks:
                # Arms may share their ranks.
                if any(ranks is other for other in started):
                    continue
                try:
                    stack.enter_context(ranks)
                except PlatformError as error:
                    raise PlatformError(f"with {arm.name}: {error}" if arm.name else str(error)) from None
                started.append(ranks)
        first = self.arms[self._first].ranks
        return replace(first[0].greeting, starts=len(first))

    def run(self) -> Iterator[Result]:
        """Yield every result; cases measured together come in the order of the arms."""
        for cases in self.cases:
            yield from chain.from_iterable(self.measure(cases))

    def measure(self, cases: Sequence[Case]) -> list[list[Result]]:
        """Measure a case of each arm round by round until every arm has spent its budget; return each arm's results."""
        samplings = [arm.sweep.sampling for arm in self.arms]
        parts = [shares(sampling) for sampling in samplings]
        so_far = []
        for case, arm in zip(cases, self.arms, strict=True):
            so_far.append(ArmResults(case, self.platform, arm.sweep.implementations))

        # A round's duration is unknown: after the second, start none that would exceed twice the budgets.
        last = time.monotonic()
        end = last + 2 * sum(sampling.budget for sampling in samplings) if cases[0].work else math.inf
        for number, turns in enumerate(order(len(parts[0]), len(parts))):
            before, last = last, time.monotonic()

            # Stop only after an even number of rounds, so that each arm went first equally often. Two more take about
            # twice as long as the last.
            if samplings[0].iters is None and number and not number % 2:
                spent = [results.spent() / sampling.budget for results, sampling in zip(so_far, samplings, strict=True)]
                if last + 2 * (last - before) > end or (number >= LEAST and min(spent) >= 1):
                    break

            # An arm with several starts uses another one in each round.
            for turn in turns:
                ranks = self.arms[turn].ranks[number % len(self.arms[turn].ranks)]
                ranks.tell = self._telling(f"round {number + 1} of {len(parts[0])}, {so_far[turn].title}", so_far)
                so_far[turn].measure_or_fail(ranks, parts[turn][number], number)
        return [results.merged() for results in so_far]

    def _telling(self, turn: str, so_far: Sequence[ArmResults]) -> Tell:
        """Return a function that reports an arm's turn, with a line for each arm and its times so far."""
        lines = "\n".join(results.progress for results in so_far)
        return lambda phase: self.tell(f"{turn}: {phase}\n{lines}")


class Starts(Ranks):
    """The ranks of one sweep, started `sweep.starts` times; 0 selects the default.

    Memory placement changes a small message's time by a tenth or more for the life of a process. More samples do not
    reveal that. So all starts measure every case in turn, and their spread gives a row's interval.
    """

    def __init__(
        self, platform: str, sweep: Sweep, existing: Sequence[Result] = (), folder: Path | None = None
    ) -> None:
        self._sweep, self._platform, self._existing, self._folder = sweep, platform, existing, folder
        self._starts = [Supervisor(platform, sweep, folder=folder)]
        self._pools: dict[tuple[str, Case], Pool] = {}  # by curve

    def start(self, stack: ExitStack) -> WorkerHello:
        """Start the ranks once, and again if requested or if the first start was quick."""
        begun = time.monotonic()
        stack.enter_context(self._starts[0])
        quick = time.monotonic() - begun < _QUICK and find_platform(self._platform).process_per_rank
        starts = self._sweep.starts or (USUAL_STARTS if quick else 1)

        # Additional default starts may fail for lack of memory.
        with suppress(PlatformError) if not self._sweep.starts else ExitStack():
            for _ in range(1, starts):
                another = Supervisor(self._platform, self._sweep, folder=self._folder)
                stack.enter_context(another)
                self._starts.append(another)
        return replace(self._starts[0].greeting, starts=len(self._starts))

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep; if ranks cannot restart, the last one reports it."""
        for result in self._existing:
            self._with_spread(result)  # it determines the starts of the next cases
        for case, names, sampling in tasks(self._sweep, self._existing):
            try:
                if len(self._starts) == 1:  # results as they come
                    self._starts[0].tell = self.tell
                    yield from self._starts[0].measure(case, names, sampling)
                else:
                    yield from self._in_turn(case, names, sampling)
            except RanksLost as loss:
                yield Failed(case, loss.implementation, self._platform, f"{loss}; the run ends here")
                return

    def _in_turn(self, case: Case, names: Sequence[str], sampling: Sampling) -> Iterator[Result]:
        """Yield the results of a case once all starts have measured it; RanksLost with the last start."""
        results = ArmResults(case, self._platform, names)
        lost = None
        for ranks, share in zip(tuple(self._starts), shares(sampling, len(self._starts)), strict=False):
            try:
                results.measure(ranks, share)
            except RanksLost as loss:
                self._starts.remove(ranks)  # the other starts continue
                lost = loss

            # The other starts would be disturbed by the same program.
            if results.disturbed:
                break
        yield from map(self._with_spread, results.merged())
        if lost and not self._starts:
            raise lost

    def _with_spread(self, result: Result) -> Result:
        """Return the result with the spread between starts, estimated from this and smaller sizes."""
        if not isinstance(result, Measurement) or not result.right or len(result.rounds) < 2:
            return result
        pool = self._pools.setdefault((result.implementation, result.case.kind), Pool())
        return replace(result, spread=pool.add([median(samples) for samples in result.by_round()]))


def library_suffixes(libraries: "Sequence[RankLibrary]") -> list[str]:
    """Return the suffixes of these libraries' rows: "", or `@` and a key, numbered if repeated.

    The key is an MPI library's kind, or NCCL's release. UsageError if a library is named twice.
    """
    suffixes: list[str] = []
    files: list[Any] = []
    keys: list[str] = []
    for library in libraries:
        file = library.file.resolve() if library.file else None
        if file in files:
            raise UsageError(f"--{library.product} names {file or library.key} twice; leave one out")
        files.append(file)
        if library.own:
            suffixes.append("")
            continue
        keys.append(library.key)
        same = keys.count(library.key)
        suffixes.append(f"@{library.key}-{same}" if same > 1 else f"@{library.key}")
    return suffixes


class MultiLibrary(Interleaving):
    """The ranks of a sweep with several MPI or NCCL libraries, an arm for each.

    The first library's ranks measure all implementations; the others measure only those that call the library. Rows
    are named after their library (`mpi@openmpi`, `nccl@2.30.7`), except the default library's, which are `mpi` or
    `nccl`. `sweep` has the names of all rows. The libraries' output goes to files in the run's `folder`.
    """

    def __init__(self, sweep: Sweep, libraries: "Sequence[RankLibrary]", folder: Path | None = None) -> None:
        platform, self._product = libraries[0].platform, libraries[0].product
        calling = [name for name in sweep.implementations if implementations()[name].library]
        if len(libraries) > 1 and not calling:
            names, product = ",".join(sweep.implementations), self._product
            raise UsageError(f"--impl {names} calls no {product.upper()} library: nothing to compare; add {product}")
        self._suffixes = library_suffixes(libraries)

        # Every library gives an implementation the same time.
        share = replace(sweep.sampling, budget=sweep.sampling.budget * len(calling) / len(sweep.implementations))
        others = replace(sweep, implementations=tuple(calling), sampling=share)
        arms: list[Arm] = []
        for library in libraries:
            measured = others if arms else sweep
            by_mpi = library if isinstance(library, Library) else None
            ranks = Supervisor(platform, measured, library.changes, library=by_mpi, folder=folder)
            arms.append(Arm((ranks,), measured, f"--{self._product} {library.key}"))
        rows: list[str] = []
        for name in sweep.implementations:
            rows += [name + suffix for suffix in self._suffixes] if name in calling else [name]
        self._calling = calling
        self.sweep = replace(sweep, implementations=tuple(rows))
        super().__init__(platform, arms)

    def start(self, stack: ExitStack) -> WorkerHello:
        """Start the ranks of each library in turn; their hello has the versions of all libraries.

        Its variables are only those that are equal for all ranks, so not the library's name.
        """
        hello = super().start(stack)
        versions, variables = dict(hello.versions), dict(hello.variables)
        versions.pop(self._product, None)
        for suffix, arm in zip(self._suffixes, self.arms, strict=True):
            greeting = arm.ranks[0].greeting
            if version := greeting.versions.get(self._product):
                versions[f"{self._product}{suffix}"] = version
            variables = dict(variables.items() & greeting.variables.items())
        return replace(hello, versions=versions, variables=dict(sorted(variables.items())))

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep: each case with all libraries before the next case."""
        for cases in self.cases:
            if len(self.arms) == 1:  # as they come
                sweep = self.arms[0].sweep
                for result in self.arms[0].ranks[0].measure(cases[0], sweep.implementations, sweep.sampling):
                    yield self._row(result, 0)
                continue
            rows: list[Result] = []
            for arm, results in enumerate(self.measure(cases)):
                rows += [self._row(result, arm) for result in results]
            yield from sorted(rows, key=lambda row: self.sweep.implementations.index(row.implementation))

    def _row(self, result: Result, arm: int) -> Result:
        if result.implementation not in self._calling:
            return result
        return replace(result, implementation=result.implementation + self._suffixes[arm])
