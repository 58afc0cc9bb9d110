"""`collbench.check`: measure briefly, in rounds, until it is sure whether all is right and as fast as expected."""

import hashlib
import math
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain
from pathlib import Path
from socket import gethostname
from typing import Annotated

from collbench.algorithms import implementations, libraries
from collbench.analysis.curve_fit import MOST_CURVES
from collbench.analysis.diagnose import judge_by_candidates
from collbench.analysis.judgement import Correctness, Word
from collbench.analysis.machine import RunFacts, assumptions, candidates, models_in_words
from collbench.analysis.reasons import settings
from collbench.analysis.sequential import FEWEST, SequentialTest, usual_slower
from collbench.collectives import find_collective
from collbench.commands.check import judge
from collbench.commands.check.expectations import CALIBRATED, Expectation, expect_run, first_of, read_floors
from collbench.commands.check.inputs import read_inputs
from collbench.commands.check.judge import CheckResult
from collbench.commands.formats.importing import ImportRequest
from collbench.errors import CollbenchError, UsageError
from collbench.host.cache import private_folder, state_folder
from collbench.host.launcher import launched
from collbench.platforms import on_auto
from collbench.present.notices import is_leader, started
from collbench.requests.declared import NAMES, SHARE, SIZE, TIME, Opt, Request, declared, takes
from collbench.requests.sessions import everyone, measuring_session
from collbench.requests.sweeps import SweepRequest, split_names
from collbench.requests.words import Factor, Names, Out, RunOrPath, RunsMachine, RunsNodes, Size, Smallest, Time
from collbench.results import by_key, observed
from collbench.results.base import Observed
from collbench.runfile.listing import list_runs
from collbench.runfile.schema import ONE_RANK, Header
from collbench.runfile.store import NAME, Run, joined, read, scatter_in_words, why_none, write
from collbench.topology import files
from collbench.units import counted, format_list, parse_duration, parse_share, printable

SURE = 6  # rounds before which nothing is called slow: what disturbs a machine for a moment is over by then
GOOD_RUNS = 3
"""Runs of a baseline.  The first good ones count: were each good run the measure of the next, a machine could grow
slower by a little every day, and no check would see it."""
OF_A_BASELINE = 15  # rounds of a run that later checks are compared with
MOST_DISTURBED = 4  # of a run of a baseline at most one row in so many was disturbed
CASE = 0.1  # seconds of a round for a case
LARGER = (128 << 20, 256 << 20, 512 << 20, 1 << 30)
LONGEST = 0.1  # seconds of an operation up to which these bytes are measured besides on GPUs
ON_CACHES = 2 * 2**20  # bytes of the largest message on a CPU: larger ones leave time for a few rounds only
SYSTEM = "SYSTEM|FILE.toml"
OF_A_RUN = ("run", "reference", "on", "nodes", "slower", "op", "ranks", "out")  # words where nothing is measured


@dataclass(frozen=True)
class CheckRequest(Request):
    """The machine, run or logs to check, and the reference to compare with."""

    op: Annotated[
        Names,
        Opt("--op", "Collectives.", "allreduce; of logs, their own", unit=NAMES, complete="collectives.COLLECTIVES"),
    ] = ""
    _: KW_ONLY
    impl: Annotated[Names, Opt("--impl", "Implementations.", "the library on GPUs, auto on a CPU", unit=NAMES)] = ""
    ranks: Annotated[
        int | str | None, Opt("-g --ranks --ngpus", "Number of ranks.", "every GPU, and 2 on a CPU", "N|NAME*=N")
    ] = None
    minbytes: Smallest = 8
    maxbytes: Annotated[
        Size | None, Opt("-e --maxbytes", "Largest message.", "2M on a CPU, else 1G or what memory allows", unit=SIZE)
    ] = None
    stepfactor: Factor = 8.0
    run: Annotated[
        RunOrPath | None, Opt("--run", "A run, a log or a folder to judge instead of measuring.", metavar="RUN")
    ] = None
    reference: Annotated[
        Path | str | None,
        Opt("--reference", "A run that was right, a folder of such, or floors.", metavar="RUN|FOLDER|FILE.toml"),
    ] = None
    on: Annotated[
        str | None,
        Opt("--on", "The system to compare with.", "what the topology matches", metavar=SYSTEM, complete=files.names),
    ] = None
    nodes: Annotated[int | None, Opt("--nodes", "Nodes of the ranks.", "as few as they fill", metavar="N", least=1)] = (
        None
    )
    slower: Annotated[
        float | str | None,
        Opt("--slower", "How much slower than expected is too slow.", "10%, on a CPU 20%", unit=SHARE, above=0),
    ] = None
    budget: Annotated[
        Time,
        Opt("--budget", "No new round begins that would end after this time; three always do.", unit=TIME, above=0),
    ] = "60s"
    out: Out = None

    def __post_init__(self) -> None:
        super().__post_init__()
        words = [word for word in declared(CheckRequest).values() if word.name not in OF_A_RUN]
        unused = [word.opt.name for word in words if not word.usual(getattr(self, word.name))]
        if self.run is not None and unused:
            raise UsageError(f"a run is judged as it is; leave {format_list(unused)} out")
        if self.run is None:
            _ = self.measured_ranks  # raises for patterns of names
        if self.on:
            files.load(self.on)  # raises for a system that there is not, before anything is measured

    @property
    def seconds(self) -> float:
        """Seconds within which further rounds should end."""
        return parse_duration(self.budget, "--budget")

    @property
    def share(self) -> float | None:
        """Share of the expected time that is too much; None for the usual one."""
        return None if self.slower is None else parse_share(self.slower, "--slower")

    @property
    def measured_ranks(self) -> int | None:
        """Ranks to start; None for the usual number."""
        if isinstance(self.ranks, str) and not self.ranks.isdecimal():
            raise UsageError(f"--ranks {self.ranks} is for logs; give a number of ranks")
        return None if self.ranks is None else int(self.ranks)

    @property
    def imported(self) -> ImportRequest:
        """How the logs are read that are judged."""
        op = "" if self.op == "all" else ",".join(split_names(self.op))
        return ImportRequest([], ranks=self.ranks, op=op, out=self.out)

    def sweep(self, also: Sequence[int] = ()) -> SweepRequest:
        """Return what a round measures, with more sizes in bytes."""
        return SweepRequest(
            self.op or "allreduce",
            impl=self.impl or default_implementations(self.op or "allreduce"),
            ranks=self.measured_ranks,
            minbytes=self.minbytes,
            maxbytes=self.maxbytes or (ON_CACHES if on_auto() == "cpu" else None),
            stepfactor=self.stepfactor,
            also=also,
            budget=CASE,
            starts=1,
        )


@takes(CheckRequest)
def check(request: CheckRequest) -> CheckResult | None:
    """Measure briefly, first for correctness, then for speed, and say whether it is as expected.

    Times are compared with the reference; without any, with the model of the system that the topology matches; without
    that, with this machine's earlier good runs, its baseline; and on a CPU without those, with its own latency and copy
    speed.

    Returns:
        The judgement: `word`, `line`, and `curves` with all sizes; None on all but the first process of a launcher.

    Raises:
        UsageError: Something does not exist or cannot be.
        PlatformError: The hardware cannot do it.

    >>> import collbench
    >>> result = collbench.check(run="results/cpu-2-ranks", reference="results/cpu-2-ranks", slower=0.3)
    >>> result.word.value
    'OK'

    """
    if request.run is None:
        return measure(request)
    return judge_run(request, only_run(request.run, request.imported), _expected(request))


def _expected(request: CheckRequest) -> Expectation | None:
    """Return what the reference expects; the first process of a launcher reads it."""
    return read_reference(Path(request.reference)) if request.reference and is_leader(launched()) else None


@dataclass(frozen=True)
class JudgedInput:
    """The judgement of an input, by the name of its file; empty for this machine."""

    name: str
    result: CheckResult
    refused: bool = False  # whether it could not be read, and `no_verdict` says why


def judge_inputs(names: Sequence[str], request: CheckRequest, said: list[str]) -> list[JudgedInput]:
    """Judge runs and tables of logs, the worst first and refused ones last; `said` gets what the user must know.

    CollbenchError if a name is none, or the only input is refused.
    """
    expected = read_reference(Path(request.reference)) if request.reference else None
    judged: list[JudgedInput] = []
    for name, run in read_inputs(names, request.imported, said):
        try:
            if isinstance(run, CollbenchError):
                raise run
            judged.append(JudgedInput(printable(name), judge_run(request, run, expected)))
        except CollbenchError as error:
            refused = CheckResult(printable(name), "", (), (), host=gethostname(), no_verdict=str(error))
            judged.append(JudgedInput(printable(name), refused, refused=True))
            last = error
    if len(judged) == 1 and judged[0].refused:
        raise last
    if not judged:
        raise UsageError(f"no results in {format_list(names)}; give a run, a log or a folder of them")
    return sorted(judged, key=_how_bad)


def _how_bad(judged: JudgedInput) -> tuple[bool, int, float]:
    """Return what inputs are sorted by: refused ones last, the worst word first, then the slowest."""
    slower = judged.result.judgement.ratio.value
    return judged.refused, list(Word).index(judged.result.word), -slower if math.isfinite(slower) else math.inf


def only_run(run: RunOrPath, request: ImportRequest) -> Run:
    """Return a run, which may be the only table of a log; UsageError where a path holds several."""
    if isinstance(run, Run):
        return run
    inputs = [found for _, found in read_inputs([str(run)], request, [])]
    if len(inputs) != 1:
        what = f"{run} holds {len(inputs)} tables and runs"
        raise UsageError(f"{what}; `collbench check {run}` judges each, collbench.import_ and read return them")
    if isinstance(inputs[0], CollbenchError):
        raise inputs[0]
    return inputs[0]


def default_implementations(op: Names) -> str:
    """Return what is measured by default: on GPUs the library, on a CPU `auto` if it supports the collectives.

    The expected time of `auto` is known there.  If it lacks one of them, the library is measured too.
    """
    library = ",".join(name for name in libraries() if on_auto() in implementations()[name].platforms)
    if on_auto() != "cpu":
        return library
    able = implementations()["auto"].collectives
    names = ["all"] if op == "all" else [find_collective(name).name for name in split_names(op)]
    return "auto" if set(names) <= set(able) else f"{library},auto"


def read_reference(path: Path) -> Expectation:
    """Return floors, or what a run that was right has, or all runs in a folder."""
    if path.suffix == ".toml":
        return read_floors(path)
    folder = path.is_dir() and not (path / NAME).exists()
    runs = [read(entry.path) for entry in list_runs(path) if entry.whole] if folder else [read(path)]
    rows: list[Observed] = []
    for run in runs:
        rows += (row for row in observed(run.cases if run.header.imported.tests else run.results) if row.right)
    if not rows:
        raise UsageError(
            f"--reference {path} has no right row with a time; give a run that was right, or floors in TOML"
        )
    scatter = scatter_in_words(rows)
    what = f"{counted(len(runs), 'run')} in" if folder else "the run"
    return expect_run(f"{what} {path}{f' ({scatter})' if scatter else ''}", rows, runs)


def judge_run(request: CheckRequest, run: Run, expected: Expectation | None) -> CheckResult:
    """Judge a run that was measured before: as its measurement was, or of a log each size by its slowest round."""
    rows = run.cases if run.header.imported.tests else run.results
    slowest = tuple(row.worst if isinstance(row, Observed) else row for row in rows)
    run = replace(run, results=slowest)
    result = _verdict(request, run, expected)
    if not (expected or request.on or run.header.imported.tests) and _is_left_open(result):
        expected, _ = _of_this_machine(run)
        other = _verdict(request, run, expected) if expected else result
        result = other if not math.isnan(other.sight.single) or other.word.bad else result
    return result if result.curves or result.correctness.faults else replace(result, no_verdict=why_none([run]))


def _is_left_open(result: CheckResult) -> bool:
    """Return whether no model knows the machine, or none well enough to see much."""
    return not result.compared or all(curve.blind for curve in result.curves)


def measure(request: CheckRequest) -> CheckResult | None:
    """Measure rounds, each with ranks that are started anew, until the verdict is sure or the budget is spent."""
    expected = _expected(request)
    begun = time.monotonic()
    run: Run | None = None
    baseline: Path | None = None
    result: CheckResult | None = None
    rounds, more = 0, True
    also: list[int] = []
    while more:
        session = measuring_session(request.sweep(also)).session
        with started(session):
            header = run.header if run else session.header
            earlier = run.results if run else ()
            run = Run(Path("this check"), header, (*earlier, *session.run()), complete=True)

        # Another round begins while there is time for one that takes as long as the others did.
        rounds += 1
        spent = time.monotonic() - begun
        more = rounds < FEWEST or spent * (1 + 1 / rounds) < request.seconds
        if session.leader:
            result = _verdict(request, run, expected, rounds, spent)
            if rounds == 1 and not (expected or request.on) and _is_left_open(result):
                expected, baseline = _of_this_machine(run)
                result = _verdict(request, run, expected, rounds, spent) if expected else result
            more = more and not _sure(result, expected, baseline)
            also = _larger(request, run)
        more, also = everyone(launched()).broadcast((more, also))
    if not run or not result:  # the first process of the launcher has them
        return None
    if baseline:
        result = _stored(run, result, baseline)
    if request.out:
        try:
            write(Path(request.out), run.header, run.results, int(bool(result.correctness.faults)))
        except CollbenchError as error:  # the verdict is not lost with it
            return replace(result, hint=f"not stored: {error}")
    return result


def _larger(request: CheckRequest, run: Run) -> list[int]:
    """Return sizes to measure besides on GPUs, where none was named, unless that takes too long."""
    words = declared(CheckRequest)
    named = any(not words[name].usual(getattr(request, name)) for name in ("minbytes", "maxbytes", "stepfactor"))
    rows = [row for row in observed(run.results) if row.platform == "gpu" and row.case.nbytes <= LARGER[0]]
    if named or not rows:
        return []
    slowest = max(rows, key=lambda row: (row.case.nbytes, row.typical))
    return [size for size in LARGER if size / slowest.case.nbytes * slowest.typical < LONGEST]


def baseline_folder(header: Header) -> Path:
    """Return the folder of a machine's baseline: by host, topology, collectives, element types and implementations.

    Versions of libraries and drivers are no part of it: what an upgrade made slower must be found.
    """
    host, sweep = header.environment.host, header.sweep
    collectives, dtypes = (tuple(each.name for each in named) for named in (sweep.collectives, sweep.dtypes))
    marks = (host, header.topology.name, collectives, dtypes, sweep.implementations)
    digest = hashlib.sha256(repr(marks).encode()).hexdigest()[:12]
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{host}-{'-'.join(collectives[:2])}")
    return state_folder(UsageError) / "checks" / f"{words[:60]}-{digest}"


def _held(baseline: Path) -> Path:
    """Return the path of a baseline by the folder of all, which is made if need be; UsageError if it is foreign."""
    return private_folder(baseline.parent, "good runs", "COLLBENCH_STATE", UsageError) / baseline.name


def _of_this_machine(run: Run) -> tuple[Expectation | None, Path | None]:
    """Return what is expected where no system is like the machine, and where this run is stored if it is a good one.

    The baseline of this machine is expected, or on a CPU without one its own speed; None where nothing is known.  Only
    the first good runs are stored.
    """
    header = run.header
    folder = baseline_folder(header)
    found = list_runs(_held(folder)) if os.path.lexists(folder.parent) else ()
    stored = [read(entry.path) for entry in found if entry.whole]
    earlier = [other for other in stored if other.results != run.results]

    # On a GPU no barrier is timed with the rows that would tell what they should take.
    expected = CALIBRATED if header.topology.platform == "cpu" else None
    if earlier:
        name = f"{counted(len(earlier), 'earlier good run')} of this machine ({folder})"
        rows = [row for other in earlier for row in observed(other.results)]
        known = expect_run(name, rows, earlier)
        expected = first_of(name, (known, expected)) if expected else known
    return expected, folder if len(stored) < GOOD_RUNS else None


def _verdict(
    request: CheckRequest, run: Run, expected: Expectation | None, rounds: int = 1, seconds: float = math.nan
) -> CheckResult:
    """Return the judgement of all rows so far: against what is expected, or else against the model of their system."""
    header = run.header
    rows = [row for row in run.results if isinstance(row, Observed) and row.right and not row.case.work]
    said = chain.from_iterable(test.remarks for test in header.imported.tests)
    result = CheckResult(
        where=header.topology.name,
        compared="",
        notes=tuple(printable(remark) for remark in dict.fromkeys(said)),
        collectives=tuple(dict.fromkeys(row.case.collective.name for row in run.results)),
        curves=(),
        correctness=Correctness.of(run.cases),
        host=header.environment.host,
        nodes=request.nodes or header.topology.nodes,
        disturbed=sum(row.disturbed for row in run.results),
        rows=len(run.results),
        rounds=rounds,
        seconds=seconds,
        first=bool(expected and expected.first),
    )
    if expected:
        test = SequentialTest(request.share or usual_slower(header.topology.platform))
        curves, remarks = judge.judge_rounds(rows, expected, test, result.nodes), [*other_release(expected, header)]
        result = replace(result, compared=expected.name, curves=tuple(curves), remarks=(*remarks, *assumptions(run)))
    else:
        result = _by_model(request, run, rows, result)
    if judge.shares_cores(run.results):
        result = replace(result, curves=tuple(map(judge.unsure, result.curves)))
    return _without_lone_ranks(result, header)


def _by_model(request: CheckRequest, run: Run, rows: Sequence[Observed], result: CheckResult) -> CheckResult:
    """Return the result with the curves as the models of all candidates judge them."""
    facts, ranks, nodes = RunFacts.of(run, ""), run.header.topology.ranks, result.nodes
    found, why = candidates(run, request.on, request.nodes, facts)
    facts = replace(facts, unplaced=why if found else "", no_system=why)
    by_curve = by_key(map(joined, judge.by_case(rows).values()), lambda row: row.curve)
    diagnoses, found = judge_by_candidates([*by_curve.values()], found, facts)
    remarks = list(assumptions(run))
    if found:
        counts = [*dict.fromkeys(candidate.nodes for candidate in found)]
        where = found[0].where(ranks).partition(", ")[2]
        where = f"any of {format_list(counts)} nodes" if len(counts) > 1 else where
        remarks = list(assumptions(run, found[0].system, where, request.nodes))
        nodes = request.nodes or (len(counts) == 1 and counts[0]) or nodes
    remarks += dict.fromkeys(diagnosis.assumed for diagnosis in diagnoses if diagnosis.assumed)
    notes = (*result.notes, *facts.caveats, *(f"{setting} was set" for setting in settings(facts)))
    curves = tuple(judge.judge_by_model(each, number < MOST_CURVES) for number, each in enumerate(diagnoses))
    return replace(
        result, compared=models_in_words(found, ranks), curves=curves, remarks=tuple(remarks), notes=notes, nodes=nodes
    )


def _without_lone_ranks(result: CheckResult, header: Header) -> CheckResult:
    """Return the result without a word on curves of ranks between which nothing crossed a link, and why."""
    alone = [header.topology.copied or ONE_RANK * (curve.sizes[0].row.case.ranks == 1) for curve in result.curves]
    if not any(alone):
        return result
    pairs = zip(result.curves, alone, strict=True)
    curves = tuple(judge.unjudged(curve, why) if why else curve for curve, why in pairs)
    notes = tuple(note for note in result.notes if note not in alone)
    return replace(result, curves=curves, notes=notes, compared="" if all(alone) else result.compared)


def other_release(expected: Expectation, header: Header) -> Iterator[str]:
    """Yield a sentence if what is expected was measured with another release of NCCL: its choices may differ."""
    release = header.environment.versions.get("nccl", "")
    others = [other for other in expected.releases if other != release]
    if release and others:
        yield f"the baseline was measured with NCCL {format_list(others)}, this with {release}"


def _sure(result: CheckResult, expected: Expectation | None, baseline: Path | None) -> bool:
    """Return whether another round would change nothing."""
    if result.correctness.faults:
        return True
    if result.rounds < FEWEST:
        return False
    if not (expected or baseline):  # the model is less sure than three rounds
        return True
    if result.word is Word.SLOW:
        return result.rounds >= SURE
    if baseline and result.rounds < OF_A_BASELINE:
        return False
    return all(size.judgement.reason not in (judge.UNDECIDED, judge.DISTURBED) for size in result.sizes)


def _stored(run: Run, result: CheckResult, baseline: Path) -> CheckResult:
    """Store a good run with the baseline, and return the verdict, which says so."""
    unjudged = all(curve.blind or math.isnan(curve.sight.single) for curve in result.curves)
    if not result.sizes or result.correctness.faults or not (unjudged or result.word in (Word.FAST, Word.OK)):
        return result
    if judge.shares_cores(run.results) or MOST_DISTURBED * result.disturbed > result.rows:
        hint = "not stored for the next check: other programs disturbed it; check again on a quiet machine"
        return replace(result, hint=hint)
    try:
        _held(baseline)  # by its name errors tell it better
        write(baseline / uuid.uuid4().hex, run.header, run.results)
    except CollbenchError as error:
        fix = "" if "COLLBENCH_STATE" in str(error) else "; or set COLLBENCH_STATE to a folder that can be written to"
        return replace(result, hint=f"not stored for the next check: {error}{fix}")
    return replace(result, hint=f"stored for the next check: {baseline}")


@dataclass(frozen=True)
class DiagnoseRequest(Request):
    """A run, and what machine it is of."""

    run: Annotated[RunOrPath, Opt("", "A run, or the path of one or of a log.")]
    on: RunsMachine = None
    _: KW_ONLY
    nodes: RunsNodes = None


@takes(DiagnoseRequest)
def diagnose(request: DiagnoseRequest) -> CheckResult:
    """Hold every curve of a run against the model, and say what may be the reason where it is slow.

    Returns:
        The judgement, as of `check`: `word`, `line`, and `curves` with all sizes, each curve with its `reasons`, best
        explained first, and what to do.

    Raises:
        UsageError: The run has no measurements, or the system does not exist.

    """
    asked = CheckRequest(on=request.on, nodes=request.nodes)
    result = judge_run(asked, only_run(request.run, asked.imported), None)
    if result.no_verdict:
        raise UsageError(f"nothing to diagnose: {result.no_verdict}")
    return result
