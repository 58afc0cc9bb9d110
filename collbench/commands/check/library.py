"""`collbench.check` and `collbench.diagnose`: measure in rounds, or judge runs and logs."""

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

SURE = 6  # rounds before anything is called slow; short disturbances are over by then
GOOD_RUNS = 3
"""Runs of a baseline.  The first good ones count: with a newer baseline a machine could grow a little slower every day,
and no check would see it."""
OF_A_BASELINE = 15  # rounds of a run of the baseline
MOST_DISTURBED = 4  # at most one row in this many may be disturbed in a run of the baseline
CASE = 0.1  # seconds of a round for a case
LARGER = (128 << 20, 256 << 20, 512 << 20, 1 << 30)  # additional sizes on GPUs, in bytes
LONGEST = 0.1  # seconds that an operation of an additional size may take
ON_CACHES = 2 * 2**20  # bytes of the largest message on a CPU; larger ones leave time for only a few rounds
SYSTEM = "SYSTEM|FILE.toml"
OF_A_RUN = ("run", "reference", "on", "nodes", "slower", "op", "ranks", "out")  # fields that apply to runs and logs


@dataclass(frozen=True)
class CheckRequest(Request):
    """The machine, run or logs to check, and the reference to compare with."""

    op: Annotated[
        Names,
        Opt("--op", "Collectives.", "allreduce; all of a log", unit=NAMES, complete="collectives.COLLECTIVES"),
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
        Opt("--reference", "A good run, a folder of good runs, or a file of floors.", metavar="RUN|FOLDER|FILE.toml"),
    ] = None
    on: Annotated[
        str | None,
        Opt("--on", "The system to compare with.", "what the topology matches", metavar=SYSTEM, complete=files.names),
    ] = None
    nodes: Annotated[
        int | None, Opt("--nodes", "Number of nodes.", "the fewest that hold the ranks", metavar="N", least=1)
    ] = None
    slower: Annotated[
        float | str | None,
        Opt("--slower", "Tolerated slowdown over the expected time.", "10%, on a CPU 20%", unit=SHARE, above=0),
    ] = None
    budget: Annotated[
        Time,
        Opt("--budget", "Time for rounds; at least one is measured, and another if it fits.", unit=TIME, above=0),
    ] = "60s"
    out: Out = None

    def __post_init__(self) -> None:
        super().__post_init__()
        words = [word for word in declared(CheckRequest).values() if word.name not in OF_A_RUN]
        unused = [word.opt.name for word in words if not word.usual(getattr(self, word.name))]
        if self.run is not None and unused:
            raise UsageError(f"a run is judged as it was measured; leave out {format_list(unused)}")
        if self.run is None:
            _ = self.measured_ranks  # raises for patterns of names
        if self.on:
            files.load(self.on)  # raises before anything is measured if the system does not exist

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return parse_duration(self.budget, "--budget")

    @property
    def share(self) -> float | None:
        """Tolerated slowdown as a share of the expected time; None for the default."""
        return None if self.slower is None else parse_share(self.slower, "--slower")

    @property
    def measured_ranks(self) -> int | None:
        """Ranks to start; None for the default."""
        if isinstance(self.ranks, str) and not self.ranks.isdecimal():
            raise UsageError(f"--ranks {self.ranks} is for logs; give a number of ranks")
        return None if self.ranks is None else int(self.ranks)

    @property
    def imported(self) -> ImportRequest:
        """The request to import the logs."""
        op = "" if self.op == "all" else ",".join(split_names(self.op))
        return ImportRequest([], ranks=self.ranks, op=op, out=self.out)

    def sweep(self, also: Sequence[int] = ()) -> SweepRequest:
        """Return the sweep of a round, with additional sizes in bytes."""
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
    """Measure correctness and speed in short rounds, and judge whether they are as expected.

    Times are compared with the reference.  Without one, they are compared with the model of the system that the
    topology matches.  Without a model, they are compared with the machine's baseline, its earlier good runs.  A CPU
    without a baseline is compared with its own latency and copy speed.

    Returns:
        The judgement: `word`, `line`, and `curves` with all sizes; None on all but the first process of a launcher.

    Raises:
        UsageError: An argument is not valid, or a file does not exist.
        PlatformError: The hardware cannot run the request.

    >>> import collbench
    >>> result = collbench.check(run="results/cpu-2-ranks", reference="results/cpu-2-ranks", slower=0.3)
    >>> result.word.value
    'OK'

    """
    if request.run is None:
        return measure(request)
    return judge_run(request, only_run(request.run, request.imported), _expected(request))


def _expected(request: CheckRequest) -> Expectation | None:
    """Return the expectation of the reference, if any; only the first process of a launcher reads it."""
    return read_reference(Path(request.reference)) if request.reference and is_leader(launched()) else None


@dataclass(frozen=True)
class JudgedInput:
    """The judgement of an input, with its name."""

    name: str  # of the file; empty for this machine
    result: CheckResult
    refused: bool = False  # whether it could not be read; `no_verdict` says why


def judge_inputs(names: Sequence[str], request: CheckRequest, said: list[str]) -> list[JudgedInput]:
    """Judge runs and tables of logs; return the worst first and refused ones last.

    Messages for the user are appended to `said`.  Raises CollbenchError if a name does not exist, or if the only input
    is refused.
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
    """Return the sort key of inputs: refused ones last, the worst word first, then the slowest."""
    slower = judged.result.judgement.ratio.value
    return judged.refused, list(Word).index(judged.result.word), -slower if math.isfinite(slower) else math.inf


def only_run(run: RunOrPath, request: ImportRequest) -> Run:
    """Return a run, or the only table of a log; UsageError unless the path holds exactly one."""
    if isinstance(run, Run):
        return run
    inputs = [each.run for each in read_inputs([str(run)], request, [])]
    if len(inputs) != 1:
        what = f"{run} holds {len(inputs)} tables and runs, not one"
        raise UsageError(f"{what}; `collbench check {run}` judges each, collbench.import_ and read return them")
    if isinstance(inputs[0], CollbenchError):
        raise inputs[0]
    return inputs[0]


def default_implementations(op: Names) -> str:
    """Return the default: the library on GPUs, on a CPU `auto`, with the library if `auto` lacks a collective."""
    library = ",".join(name for name in libraries() if on_auto() in implementations()[name].platforms)
    if on_auto() != "cpu":
        return library
    supported = implementations()["auto"].collectives
    names = ["all"] if op == "all" else [find_collective(name).name for name in split_names(op)]
    return "auto" if set(names) <= set(supported) else f"{library},auto"


def read_reference(path: Path) -> Expectation:
    """Return the expectation of a file of floors, a good run, or all runs in a folder."""
    if path.suffix == ".toml":
        return read_floors(path)
    folder = path.is_dir() and not (path / NAME).exists()
    runs = [read(entry.path) for entry in list_runs(path) if entry.whole] if folder else [read(path)]
    rows: list[Observed] = []
    for run in runs:
        rows += (row for row in observed(run.cases if run.header.imported.tests else run.results) if row.right)
    if not rows:
        raise UsageError(f"--reference {path} has no correct row with a time; give a good run, or floors in TOML")
    scatter = scatter_in_words(rows)
    what = f"{counted(len(runs), 'run')} in" if folder else "the run"
    return expect_run(f"{what} {path}{f' ({scatter})' if scatter else ''}", rows, runs)


def judge_run(request: CheckRequest, run: Run, expected: Expectation | None) -> CheckResult:
    """Judge a stored run as `measure` would; a log counts by the slowest round of each size."""
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
    """Return whether no model knows the machine well enough for a verdict."""
    return not result.compared or all(curve.blind for curve in result.curves)


def measure(request: CheckRequest) -> CheckResult | None:
    """Measure rounds, each with newly started ranks, until the verdict is sure or the budget is spent."""
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

        # Another round begins if one of average length would end within the budget.
        rounds += 1
        spent = time.monotonic() - begun
        more = spent * (1 + 1 / rounds) < request.seconds
        if session.leader:
            result = _verdict(request, run, expected, rounds, spent)
            if rounds == 1 and not (expected or request.on) and _is_left_open(result):
                expected, baseline = _of_this_machine(run)
                result = _verdict(request, run, expected, rounds, spent) if expected else result
            more = more and not _sure(result, expected, baseline)
            also = _larger(request, run)
        more, also = everyone(launched()).broadcast((more, also))
    if not run or not result:  # only the first process of the launcher has a result
        return None
    if rounds < FEWEST and not result.correctness.faults:
        result = _of_few_rounds(result, expected)
    elif baseline:
        result = _stored(run, result, baseline)
    if request.out:
        try:
            path = write(Path(request.out), run.header, run.results, int(bool(result.correctness.faults)))
        except CollbenchError as error:  # the verdict stands even if the run cannot be written
            return replace(result, hint=f"not stored: {error}")
        result = replace(result, hint="\n".join(filter(None, (f"run file: {path}", result.hint))))
    return result


def _of_few_rounds(result: CheckResult, expected: Expectation | None) -> CheckResult:
    """Return the result of a budget that ended early; only the model judges a machine by so few rounds."""
    enough = math.ceil(FEWEST * result.seconds / result.rounds)
    why = f"--budget ended after {counted(result.rounds, 'round')}; {FEWEST} need --budget {enough}s"
    curves = []
    for curve in result.curves:
        decided = expected and curve.word is not Word.UNKNOWN
        curves.append(replace(judge.unsure(curve, why), word=Word.UNKNOWN, remark=why) if decided else curve)
    return replace(result, curves=tuple(curves), remarks=(*result.remarks, why))


def _larger(request: CheckRequest, run: Run) -> list[int]:
    """Return the additional sizes on GPUs that are fast enough; none if the user chose sizes."""
    words = declared(CheckRequest)
    named = any(not words[name].usual(getattr(request, name)) for name in ("minbytes", "maxbytes", "stepfactor"))
    rows = [row for row in observed(run.results) if row.platform == "gpu" and row.case.nbytes <= LARGER[0]]
    if named or not rows:
        return []
    slowest = max(rows, key=lambda row: (row.case.nbytes, row.typical))
    return [size for size in LARGER if size / slowest.case.nbytes * slowest.typical < LONGEST]


def baseline_folder(header: Header) -> Path:
    """Return the folder of a machine's baseline: by host, topology, collectives, element types and implementations.

    Versions of libraries and drivers are left out, so that a check finds slowdowns by upgrades.
    """
    host, sweep = header.environment.host, header.sweep
    collectives, dtypes = (tuple(each.name for each in named) for named in (sweep.collectives, sweep.dtypes))
    marks = (host, header.topology.name, collectives, dtypes, sweep.implementations)
    digest = hashlib.sha256(repr(marks).encode()).hexdigest()[:12]
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{host}-{'-'.join(collectives[:2])}")
    return state_folder(UsageError) / "checks" / f"{words[:60]}-{digest}"


def _held(baseline: Path) -> Path:
    """Return a baseline's path in the private folder of all; UsageError if that belongs to another user."""
    return private_folder(baseline.parent, "good runs", "COLLBENCH_STATE", UsageError) / baseline.name


def _of_this_machine(run: Run) -> tuple[Expectation | None, Path | None]:
    """Return the expectation of a machine without a model, and the folder for this run if the baseline needs more runs.

    The expectation is the machine's baseline.  A CPU falls back to its own speed, other machines to None.
    """
    header = run.header
    folder = baseline_folder(header)
    entries = list_runs(_held(folder)) if os.path.lexists(folder.parent) else ()
    stored = [read(entry.path) for entry in entries if entry.whole]
    earlier = [other for other in stored if other.results != run.results]

    # GPU rows have no timed barrier, which the expected time of a CPU is calculated from.
    expected = CALIBRATED if header.topology.platform == "cpu" else None
    if earlier:
        name = f"{counted(len(earlier), 'earlier good run')} of this machine ({folder})"
        rows = [row for other in earlier for row in observed(other.results)]
        baseline = expect_run(name, rows, earlier)
        expected = first_of(name, (baseline, expected)) if expected else baseline
    return expected, folder if len(stored) < GOOD_RUNS else None


def _verdict(
    request: CheckRequest, run: Run, expected: Expectation | None, rounds: int = 1, seconds: float = math.nan
) -> CheckResult:
    """Return the judgement of all rows so far: by the expectation if any, else by the model of their system."""
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
    """Return the result with curves judged by the models of all candidate systems."""
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
    """Return the result with UNKNOWN curves and the reason where no data crossed a link between ranks."""
    alone = [header.topology.copied or ONE_RANK * (curve.sizes[0].row.case.ranks == 1) for curve in result.curves]
    if not any(alone):
        return result
    pairs = zip(result.curves, alone, strict=True)
    curves = tuple(judge.unjudged(curve, why) if why else curve for curve, why in pairs)
    notes = tuple(note for note in result.notes if note not in alone)
    return replace(result, curves=curves, notes=notes, compared="" if all(alone) else result.compared)


def other_release(expected: Expectation, header: Header) -> Iterator[str]:
    """Yield a remark if the expectation was measured with another NCCL release, whose choices may differ."""
    release = header.environment.versions.get("nccl", "")
    others = [other for other in expected.releases if other != release]
    if release and others:
        yield f"the baseline was measured with NCCL {format_list(others)}, this with {release}"


def _sure(result: CheckResult, expected: Expectation | None, baseline: Path | None) -> bool:
    """Return whether the verdict is sure without another round."""
    if result.correctness.faults:
        return True
    if result.rounds < FEWEST:
        return False
    if not (expected or baseline):  # the model's error exceeds that of three rounds
        return True
    if result.word is Word.SLOW:
        return result.rounds >= SURE
    if baseline and result.rounds < OF_A_BASELINE:
        return False
    return all(size.judgement.reason not in (judge.UNDECIDED, judge.DISTURBED) for size in result.sizes)


def _stored(run: Run, result: CheckResult, baseline: Path) -> CheckResult:
    """Store a good run with the baseline; return the result with a hint that says so."""
    unjudged = all(curve.blind or math.isnan(curve.sight.single) for curve in result.curves)
    if not result.sizes or result.correctness.faults or not (unjudged or result.word in (Word.FAST, Word.OK)):
        return result
    if judge.shares_cores(run.results) or MOST_DISTURBED * result.disturbed > result.rows:
        hint = "not stored for the next check: other programs disturbed it; check again on a quiet machine"
        return replace(result, hint=hint)
    try:
        _held(baseline)  # raises a clearer error than `write`
        write(baseline / uuid.uuid4().hex, run.header, run.results)
    except CollbenchError as error:
        fix = "" if "COLLBENCH_STATE" in str(error) else "; or set COLLBENCH_STATE to a folder that can be written to"
        return replace(result, hint=f"not stored for the next check: {error}{fix}")
    return replace(result, hint=f"stored for the next check: {baseline}")


@dataclass(frozen=True)
class DiagnoseRequest(Request):
    """The run to diagnose, and its machine."""

    run: Annotated[RunOrPath, Opt("", "A run, or the path of a run or a log.")]
    on: RunsMachine = None
    _: KW_ONLY
    nodes: RunsNodes = None


@takes(DiagnoseRequest)
def diagnose(request: DiagnoseRequest) -> CheckResult:
    """Compare each curve of a run with the model, and find likely reasons of slow curves.

    Returns:
        The judgement as `check` returns it: `word`, `line`, and `curves` with all sizes.  The `reasons` of a curve are
        pairs of reason and fix, the best fit first.

    Raises:
        UsageError: The run has no measurements, or the system does not exist.

    """
    check_request = CheckRequest(on=request.on, nodes=request.nodes)
    result = judge_run(check_request, only_run(request.run, check_request.imported), None)
    if result.no_verdict:
        raise UsageError(f"nothing to diagnose: {result.no_verdict}")
    return result
