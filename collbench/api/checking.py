"""`collbench.check`: measure briefly, in rounds, until it is sure whether all is right and as fast as expected."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path

from collbench.algorithms import implementations, libraries
from collbench.analysis.check import (
    CheckedCurve,
    CheckResult,
    Status,
    by_case,
    judge_by_model,
    judge_rounds,
    shares_cores,
    unsure,
)
from collbench.analysis.diagnose import RunFacts
from collbench.analysis.diagnose import diagnose as diagnose_curve
from collbench.analysis.expectations import CALIBRATED, Expectation, expect_run, first_of, read_floors
from collbench.analysis.machine import assumptions, placed, sized, spread
from collbench.analysis.sequential import FEWEST, Decision, SequentialTest, usual_slower
from collbench.analysis.verdict import Correctness
from collbench.api.measuring import measuring_session
from collbench.api.notices import is_leader, started
from collbench.api.requests import SweepRequest, split_names
from collbench.api.words import Names, Size, Time
from collbench.collectives import find_collective
from collbench.errors import CollbenchError, UsageError
from collbench.host.launcher import launched
from collbench.platforms import on_auto
from collbench.results import Result, by_key, observed
from collbench.results.base import Observed
from collbench.runfile import baselines
from collbench.runfile.baselines import store
from collbench.runfile.header import Header
from collbench.runfile.listing import list_runs
from collbench.runfile.rounds import joined, one_of_each, scatter_in_words
from collbench.runfile.store import Run, read, why_none
from collbench.topology import files
from collbench.topology.system import System
from collbench.units import format_list, parse_duration, parse_share

SURE = 6  # rounds before which nothing is called slow: what disturbs a machine for a moment is over by then
OF_A_BASELINE = 15  # rounds of a run that later checks are compared with
DISTURBED = 4  # of a run of a baseline at most one row in so many was disturbed
CASE = 0.1  # seconds of a round for a case
ON_CACHES = 2 * 2**20  # bytes of the largest message on a CPU: larger ones leave time for a few rounds only


@dataclass(frozen=True)
class Against:
    """What a check compares times with, as far as its user says it."""

    expectation: Expectation | None = None  # of the user's reference: a run that was right, or floors
    on: str | None = None  # the system, where the topology does not say it
    nodes: int | None = None  # of that system
    slower: float | None = None  # share of the expected time that is too much; None: as is usual
    renew: bool = False  # whether a run that is right replaces the baseline


@dataclass
class Rounds:
    """What has been measured so far."""

    header: Header
    results: list[Result] = field(default_factory=list)
    count: int = 0


def check(
    op: Names = "allreduce",
    *,
    run: Run | Path | str | None = None,
    impl: Names = "",
    reference: Path | str | None = None,
    on: str | None = None,
    nodes: int | None = None,
    slower: float | str | None = None,
    budget: Time = 60.0,
    ranks: int | None = None,
    minbytes: Size = 8,
    maxbytes: Size | None = None,
    stepfactor: float = 8.0,
    renew: bool = False,
    out: Path | str | None = None,
    each: Callable[[int, CheckResult], object] = lambda count, result: None,
) -> CheckResult | None:
    """Measure briefly, first for correctness, then for speed, and say whether it is as expected.

    Times are compared with the reference; without any, with the model of the system that the topology matches; without
    that, with this machine's earlier good runs, its baseline; and on a CPU without those, with its own latency and copy
    speed.

    Args:
        op: Collectives.
        run: A run, or its path, to judge instead of measuring.
        impl: Implementations; by default the library on GPUs, and on a CPU `auto`.
        reference: A run that was right, or FILE.toml with floors (docs/checking.md).
        on: The system to compare with: a preset or FILE.toml.
        nodes: How many nodes of it the ranks are spread over.
        slower: Share of the expected time that is too much; by default "10%", which is 0.1, and on a CPU 0.2.
        budget: Seconds, or a duration such as "5s", after which no further round begins, of three at least.
        ranks: Number of ranks; by default every GPU, and 2 on a CPU.
        minbytes: Smallest message.
        maxbytes: Largest message; by default 2 MiB on a CPU, and on GPUs what memory allows, up to 128 MiB.
        stepfactor: Factor between sizes.
        renew: Begin the baseline anew with this run, if it is right.
        out: New folder in which the run is stored.
        each: Called after every round with the number of rounds and the verdict so far.

    Returns:
        The verdict: `status`, `line`, and `curves` with all sizes; None on all but the first process of a launcher.

    Raises:
        UsageError: Something does not exist or cannot be.
        PlatformError: The hardware cannot do it.

    >>> import collbench
    >>> result = collbench.check(run="results/cpu-2-ranks", reference="results/cpu-2-ranks", slower=0.3)
    >>> result.status.value
    'OK'

    """
    if run is not None:
        usual = signature(check).parameters
        words: dict[str, object] = {
            "op": op,
            "impl": impl,
            "budget": budget,
            "ranks": ranks,
            "minbytes": minbytes,
        }
        words |= {"maxbytes": maxbytes, "stepfactor": stepfactor, "renew": renew, "out": out}
        if given := [f"--{name}" for name, word in words.items() if str(word) != str(usual[name].default)]:
            raise UsageError(f"--run is judged as it is; leave {format_list(given)} out")
    if on:
        files.load(on)  # raises for a system that there is not, before anything is measured
    seconds = parse_duration(budget, "--budget")
    expected = read_reference(Path(reference)) if reference and is_leader(launched()) else None
    share = None if slower is None else parse_share(slower, "--slower")
    against = Against(expected, on, nodes, share, renew)
    if run is not None:
        whole = run if isinstance(run, Run) else read(Path(run))
        rows = whole.cases if whole.header.imported.tests else whole.results
        rounds = Rounds(whole.header, [row.worst if isinstance(row, Observed) else row for row in rows], 1)
        result = Judge.of(against, whole, measured=False).verdict(rounds, math.nan)
        return result if result.curves or result.correctness.faults else replace(result, no_verdict=why_none([whole]))
    sweep = SweepRequest(
        op,
        impl=impl or default_implementations(op),
        ranks=ranks,
        minbytes=minbytes,
        maxbytes=maxbytes or (ON_CACHES if on_auto() == "cpu" else None),
        stepfactor=stepfactor,
        budget=CASE,
        starts=1,
    )
    return _measure(sweep, against, seconds, Path(out) if out else None, each)


def default_implementations(op: Names) -> str:
    """Return the library on GPUs; on a CPU `auto`, of which it is known what it should take, where it does the job."""
    library = ",".join(name for name in libraries() if on_auto() in implementations()[name].platforms)
    if on_auto() != "cpu":
        return library
    able = implementations()["auto"].collectives
    names = ["all"] if op == "all" else [find_collective(name).name for name in split_names(op)]
    return "auto" if set(names) <= set(able) else f"{library},auto"


def _measure(
    sweep: SweepRequest, against: Against, budget: float, out: Path | None, each: Callable[[int, CheckResult], object]
) -> CheckResult | None:
    """Measure rounds, each with ranks that are started anew, until the verdict is sure or the budget is spent."""
    begun = time.monotonic()
    judge: Judge | None = None
    result: CheckResult | None = None
    rounds, more = Rounds(Header()), True
    while more:
        session = measuring_session(sweep).session
        with started(session):
            rounds.header = rounds.header if rounds.count else session.header
            rounds.results += session.run()
        rounds.count += 1
        spent = time.monotonic() - begun
        more = rounds.count < FEWEST or spent * (1 + 1 / rounds.count) < budget
        if session.leader:
            judge = judge or Judge.of(against, Run(Path("this check"), rounds.header, (), True), measured=True)
            result = judge.verdict(rounds, spent)
            each(rounds.count, result)
            more = more and not judge.sure(result)
        more = _agreed(more)
    if not result or not judge:  # the first process of the launcher has them
        return None
    result = judge.stored(rounds, result)
    if out:
        try:
            store(out, rounds.header, rounds.results, int(bool(result.correctness.faults)))
        except CollbenchError as error:  # the verdict is not lost with it
            return replace(result, hint=f"not stored: {error}")
    return result


def _agreed(more: bool) -> bool:
    """Return what the first process of a launcher says; without a launcher what this process says."""
    joined_ranks = launched()
    if not joined_ranks or joined_ranks[1] == 1:
        return more
    from collbench.measure.external_launcher import world  # the ranks' side of MPI

    return bool(world().broadcast(more))


# ------------------------------------------------------------------------------------------------------------ verdicts


@dataclass(frozen=True)
class Judge:
    """What times are compared with, and how."""

    test: SequentialTest
    compared: str
    expectation: Expectation | None = None  # of rounds; else the model of the system
    system: System | None = None
    nodes: int | None = None
    remarks: tuple[str, ...] = ()
    facts: RunFacts = field(default_factory=lambda: RunFacts({}))
    folder: Path | None = None  # of this machine's baseline, if that takes another run
    renew: bool = False

    @classmethod
    def of(cls, against: Against, run: Run, measured: bool) -> "Judge":
        """Return what a run is compared with, by its header; only one that was `measured` now has a baseline."""
        header = run.header
        test = SequentialTest(against.slower or usual_slower(header.topology.platform))
        if against.expectation:
            name = against.expectation.name
            return cls(test, name, against.expectation, nodes=against.nodes, remarks=tuple(assumptions(run)))
        system, nodes, why = placed(run, against.on, against.nodes)
        facts = replace(RunFacts.of(run, why), unplaced=why if system else "")
        if system or not measured or against.on:
            where = spread(system, sized(system, header.topology.ranks or system.ranks, nodes)) if system else ""
            name = f"the model of {system.name}, {where}" if system else ""
            remarks = tuple(assumptions(run, system, where, against.nodes))
            return cls(test, name, system=system, nodes=nodes, remarks=remarks, facts=facts)
        folder = baselines.folder_of(header)
        earlier = [] if against.renew else [read(entry.path) for entry in list_runs(folder) if entry.whole]
        takes_another = against.renew or len(earlier) < baselines.MOST
        # On a GPU no barrier is timed with the rows that would tell what they should take.
        costs = [CALIBRATED] if header.topology.platform == "cpu" else []
        name = costs[0].name if costs else ""
        if earlier:
            name = f"{len(earlier)} earlier good run{'s' if len(earlier) > 1 else ''} of this machine ({folder})"
        rows = [row for run in earlier for row in observed(run.results)]
        chain = first_of(name, (expect_run(name, rows), *costs))
        return cls(test, name, chain, folder=folder if takes_another else None, renew=against.renew)

    def verdict(self, rounds: Rounds, seconds: float) -> CheckResult:
        """Return the verdict of what has been measured so far."""
        timed = [row for row in rounds.results if isinstance(row, Observed) and row.right and not row.case.step]
        curves = self._curves(timed)
        shared = shares_cores(rounds.results)
        if shared:
            curves = list(map(unsure, curves))
        return CheckResult(
            where=rounds.header.topology.name,
            compared=self.compared,
            remarks=self.remarks,
            collectives=tuple(dict.fromkeys(row.case.collective.name for row in rounds.results)),
            curves=tuple(curves),
            shared=shared,
            correctness=Correctness.of(one_of_each(rounds.results)),
            nodes=self.nodes or rounds.header.topology.nodes,
            disturbed=sum(row.disturbed for row in rounds.results),
            rows=len(rounds.results),
            rounds=rounds.count,
            seconds=seconds,
        )

    def _curves(self, rows: Sequence[Observed]) -> list[CheckedCurve]:
        if self.expectation:
            return judge_rounds(rows, self.expectation, self.test)
        every = [joined(same) for same in by_case(rows).values()]
        judged = []
        for curve in by_key(every, lambda row: row.curve).values():
            part = sized(self.system, curve[0].case.ranks, self.nodes) if self.system else None
            judged.append(judge_by_model(diagnose_curve(curve, part, self.facts)))
        return judged

    def sure(self, result: CheckResult) -> bool:
        """Return whether another round would change nothing."""
        if result.correctness.faults:
            return True
        if result.rounds < FEWEST:
            return False
        if not self.expectation:  # the model is less sure than three rounds
            return True
        if result.status is Status.FAIL:
            return result.rounds >= SURE
        if self.folder and result.rounds < OF_A_BASELINE:
            return False
        return all(size.decision is not Decision.UNDECIDED for size in result.sizes)

    def stored(self, rounds: Rounds, result: CheckResult) -> CheckResult:
        """Store a good run with the baseline, and return the verdict, which says so."""
        unknown = all(math.isnan(size.expected) for size in result.sizes)
        good = result.sizes and not result.correctness.faults and (unknown or result.status is Status.OK)
        if not self.folder or not good:
            return result
        if result.shared or DISTURBED * result.disturbed > result.rows:
            why = "other programs disturbed it; check again on a quiet machine"
            return replace(result, hint=f"not stored for the next check: {why}")
        try:
            path = baselines.add_to_baseline(self.folder, rounds.header, rounds.results, self.renew)
        except CollbenchError as error:
            return replace(result, hint=f"not stored for the next check: {error}")
        return replace(result, hint=f"stored for the next check: {path.parent}") if path else result


def read_reference(path: Path) -> Expectation:
    """Return floors, or a run that was right."""
    if path.suffix == ".toml":
        return read_floors(path)
    run = read(path)
    rows = [row for row in observed(run.cases if run.header.imported.tests else run.results) if row.right]
    if not rows:
        raise UsageError(
            f"--reference {path} has no right row with a time; give a run that was right, or floors in TOML"
        )
    scatter = scatter_in_words(rows)
    return expect_run(f"the run {path}{f' ({scatter})' if scatter else ''}", rows)
