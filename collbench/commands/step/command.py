"""Measure or predict training steps: scaling, overlap, stragglers, and strategies of synchronisation.

For example:
  collbench step scale --ranks 1,2
  collbench step overlap --on dgx-h100 --compute 20ms --gradients 1G
  collbench step stragglers --slow-rank 1
  collbench step strategies --strategy ring,asynchronous
"""

import math
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any

import click

from collbench.algorithms import choose, needs
from collbench.cases import Sweep
from collbench.cli.options import ANYWHERE, HERE, RENDEZVOUS_FOLDER, given, made, options_of
from collbench.cli.progress import LiveTable, ResultTable
from collbench.cli.running import finish, refuse_launcher, run_session, say_where
from collbench.commands.step import overlap as overlaps
from collbench.commands.step import scaling
from collbench.commands.step import section as step_tables
from collbench.commands.step import stragglers as stragglers_of
from collbench.commands.step import strategies as synchronisation
from collbench.commands.step.calibration import Amount, calibrated
from collbench.commands.step.measured import LONGEST
from collbench.commands.step.rows import StepTimes
from collbench.commands.step.runs import MODES, PredictedSteps, Scaling, overlap_run, overlap_steps, scaling_run
from collbench.commands.step.section import PROBLEM, StepResult, StepTable
from collbench.commands.step.trained import verdicts
from collbench.commands.step.work import BUCKET_UNIT, WEAK, SgdJob, Step
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.interleave import LEAST
from collbench.measure.session import Session
from collbench.platforms import find_platform, platforms
from collbench.platforms.layout import MemoryLayout
from collbench.present.terminal import Table, lines
from collbench.requests.declared import SIZE, Opt
from collbench.requests.notices import RANKS, announced_if_slow
from collbench.requests.sweeps import SweepRequest, default_folder, find_system, folder_name, measured_sweep, new_folder
from collbench.requests.words import MOST_RANKS, Size, parse_slow
from collbench.results import Result, by_key
from collbench.results.disturbed import all_disturbed
from collbench.topology.system import System
from collbench.units import QUANTITY, counted, duration, format_size, parse_numbers, parse_size

STEPS = 4000  # of a straggler test
MOST_MOMENTS = 500_000  # of ranks and steps of a row, which is one line of the run file
SERIES = 16  # of each implementation in a straggler test, which take turns
TRIAL = f"a matrix product is timed; {RANKS}"
_NODES = 512  # of a described system, at most by default
_FLOPS = {"FLOP": 1.0, "KFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15}
_LONGEST_WORK, _MOST_FLOPS = 1e4, 1e21  # of computing in a step
_MOST_COUNTS = 64  # numbers of ranks in one scaling
_MOST_BUCKETS = 1024  # of a step
SLOW_FACTOR, SLOW_TRAINER = 2.0, 4.0  # of a slow rank in steps and in training, if none is given


@dataclass(frozen=True)
class StepRequest(SweepRequest):
    """The request of the commands of `collbench step`: each has options for some of these words."""

    strategy: Annotated[str, Opt("--strategy", "Strategies to compare.", metavar="NAME[,NAME]|all")] = "all"
    counts: Annotated[
        str | None,
        Opt("-g --ranks", "Numbers of ranks; FIRST..LAST doubles.", "1,2; on a system from 1 to all GPUs", "N,N|N..N"),
    ] = None
    mode: Annotated[
        str, Opt("--mode", "What stays the same: the work of a rank (weak), or of all.", choices=(*MODES, "both"))
    ] = WEAK
    impl: Annotated[str, Opt("--impl", "Implementations.", "the library and auto", "NAME[,NAME]")] = ""
    compute: Annotated[
        str | None,
        Opt("--compute", "What a rank computes, such as 10ms or 2GFLOP.", "10ms, predicted 100ms", "TIME|FLOP"),
    ] = None
    gradients: Annotated[
        Size | None,
        Opt("-b --gradients", "Bytes to communicate.", "4M, for overlap 8M, predicted 1G", unit=SIZE, least=1),
    ] = None
    matrix: Annotated[
        int | None, Opt("--matrix", "Rows of the matrices.", "256 on a CPU, 4096 on a GPU", "ROWS", least=1, most=2**15)
    ] = None
    buckets: Annotated[
        str | None, Opt("--buckets", "Sizes to hand over at once.", "a 16th, a 4th, all", "SIZE[,SIZE]")
    ] = None
    steps: Annotated[int | None, Opt("--steps", "Steps of each implementation.", f"{STEPS}", metavar="N")] = None
    slow_rank: Annotated[
        Sequence[str],
        Opt(
            "--slow-rank",
            f"A rank that computes FACTOR times as much, {SLOW_FACTOR:g} if not given, in strategies {SLOW_TRAINER:g}; "
            "several times for several ranks.",
            metavar="R[:FACTOR]",
        ),
    ] = ()
    seeds: Annotated[
        int, Opt("--seeds", "Runs of every strategy, each from other first weights.", "", "N", least=1, most=1000)
    ] = 8
    updates: Annotated[int, Opt("--steps", "Steps of each rank, on average.", "", "N", least=1, most=10_000)] = 120
    staleness: Annotated[
        int,
        Opt("--staleness", "asynchronous: steps ahead of the slowest; 0: synchronous.", "", "S", least=0, most=10_000),
    ] = 256
    target: Annotated[float | None, Opt("--target", "Loss to reach.", "the lowest that all get to", above=0)] = None


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure or predict training steps: scaling, overlap, stragglers, and strategies of synchronisation."""
    if not context.invoked_subcommand:
        click.echo(context.get_help())


_STEP = "impl compute gradients matrix slow_rank timeout out"
_SCALE = [ANYWHERE, *options_of(StepRequest, f"counts mode {_STEP}", budget="2s")]
_OVERLAP = [ANYWHERE, *options_of(StepRequest, f"ranks buckets {_STEP}", budget="10s")]
_STRAGGLERS = [
    HERE,
    *options_of(StepRequest, "op ranks impl steps slow_rank timeout out", compute="1ms", gradients="64K", budget="20s"),
    RENDEZVOUS_FOLDER,
]
_STRATEGIES = [
    *options_of(StepRequest, "strategy ranks slow_rank seeds updates staleness target timeout out"),
    RENDEZVOUS_FOLDER,
]


@command.command(params=_SCALE, short_help="How much faster are more ranks?")
def scale(**options: Any) -> int:
    """Measure how a step scales on 1, 2, 4, ... ranks: speed-up, efficiency, and what would help."""

    def answer(results: Sequence[Result]) -> list[str]:
        return scaling.answer(scaling.curves(results))

    def conclusion(results: Sequence[Result]) -> Iterable[str]:
        for curve in scaling.curves(results):
            if advice := scaling.verdict(curve)[1:]:
                yield from ("", f"{curve.name}, {curve.mode}:", *advice)

    return _run(scale_session(made(StepRequest, options)), step_tables.SCALING, answer, conclusion)


@command.command(params=_OVERLAP, short_help="What does communicating while computing hide?")
def overlap(**options: Any) -> int:
    """Measure what overlapping communication with computing hides: exposed communication, the best size of bucket."""
    session = overlap_session(made(StepRequest, options))
    return _run(session, step_tables.OVERLAP, overlaps.verdicts)


@command.command(params=_STRAGGLERS, short_help="Which rank is late, and what does it cost?")
def stragglers(**options: Any) -> int:
    """Find ranks that are late: how often, by how much, and what it costs the others.

    Ranks multiply matrices, then carry out a collective, and again.  Arrivals are noted on one clock: durations cannot
    tell a late rank from those that wait for it.
    """
    session = stragglers_session(made(StepRequest, options), launched())
    total, sections = len(session.sweep.implementations), step_tables.straggler_sections
    return _run(session, step_tables.STRAGGLERS, stragglers_of.verdicts, sections, total)


@command.command(params=_STRATEGIES, short_help="Which way of keeping weights in step is fastest?")
def strategies(**options: Any) -> int:
    """Compare strategies of synchronisation in training: ring, parameter server, groups, local SGD, asynchronous.

    A small network is trained on every rank; `--slow-rank 1` makes one compute four times as much.
    """
    session = strategies_session(made(StepRequest, options), launched())
    total = len(session.sweep.works) * len(session.sweep.implementations)
    return _run(session, step_tables.STRATEGIES, verdicts, step_tables.ranking_table, total)


def _answer(session: Session, lines: Sequence[str]) -> list[str]:
    """Return the lines that a run says, the first as its answer, with what makes it unsure or why there is none."""
    first, *others = lines or ["none"]
    unsure = all_disturbed(session.results) or ("" if lines else "nothing here can be compared")
    return ["; ".join(filter(None, (f"answer: {first}", unsure))), *others]


def _assumed(session: Session) -> list[str]:
    """Return how much a step computes and sends, as far as the user did not say it."""
    work = session.sweep.works[0]
    assert work
    amounts = {"compute": f"{work.words[0]} a step", "gradients": f"{format_size(session.sweep.sizes[0])} of gradients"}
    return [amounts[name] for name in amounts if isinstance(work, Step) and name not in given()]


def _run(
    session: Session,
    table: StepTable,
    findings: Callable[[Sequence[Result]], list[str]],
    conclusion: Callable[[Sequence[Result]], Iterable[str]] = lambda _: (),
    total: int = 0,
) -> int:
    """Measure or predict everything, show the answer, rows and conclusion, and where everything is.

    With a total, rows are shown as they arrive, and the answer stands last.
    """
    live = ResultTable(table.title, Table(table.columns, PROBLEM), StepResult, total) if total else LiveTable()
    interrupted = run_session(session, live, assumed=_assumed(session))
    results = session.results
    if session.leader and not total:
        click.echo("\n".join(_answer(session, findings(results))))
        for title, group in by_key(results, table.title).items():
            heading, *rows = lines(
                table.of(session.modelled), [StepResult(result, results) for result in group], PROBLEM
            )
            for result, row in zip(group, rows, strict=True):
                live.show(title, heading, [(result, row)])
    if interrupted:
        return interrupted
    if session.leader:
        for line in conclusion(results):
            click.echo(line)
        if total:
            click.echo("\n".join(["", *_answer(session, findings(results))]))
        series = [len(row.series) for row in results if isinstance(row, StepTimes) and row.right]
        if series and min(series) < LEAST and not session.sweep.sampling.steps:
            rounds, budget = counted(min(series), "round"), session.sweep.sampling.budget
            click.echo(f"no intervals: only {rounds} fit into the budget; give more, such as --budget {2 * budget:g}s")
        click.echo(f"\n{step_tables.PREDICTED if session.modelled else table.legend}", err=True)
        say_where(session)
    return finish([session])


# From a request to a session that measures or predicts steps.


def scale_session(request: StepRequest) -> Session:
    """Return the session of `collbench step scale`."""
    refuse_launcher("step scale", ", on several numbers of them")
    modes = tuple(MODES) if request.mode == "both" else (request.mode,)
    if system := _described(request.on):
        most = system.gpus
        if system.nics:
            most *= 2 ** int(math.log2(max(system.nodes, _NODES)))
        # One rank alone costs nothing here, and is what all others are compared with.
        counts = tuple(dict.fromkeys((1, *parse_ranks(request.counts or f"1..{most}"))))
        sweep = _described_sweep(request, system, counts[-1])
        scaling = Scaling(sweep, counts, modes)
        run = PredictedSteps(system, scaling.sweep, chain.from_iterable(scaling.cases()))
        folder = request.folder or default_folder(sweep, f"scale-{folder_name(system, counts[-1])}")
        return Session(run, scaling.sweep, None, folder, modelled=True)
    counts = parse_ranks(request.counts or "1,2")
    platform, sweep = _measured_sweep(request, "4M", counts[-1])
    product = Step(1, request.matrix or find_platform(platform).matrix)
    layout = MemoryLayout.of(replace(sweep, works=(product,)), needs(sweep.implementations, sweep.ranks, platform))
    find_platform(platform).refuse_too_large(layout.nbytes, sum(counts))  # all ranks are there at once
    scaling = Scaling(replace(sweep, works=(_measured_step(request, platform, sweep),)), counts, modes)
    folder = request.folder or default_folder(sweep, "scale")
    return Session(scaling_run(platform, scaling, folder), scaling.sweep, None, folder)


def overlap_session(request: StepRequest) -> Session:
    """Return the session of `collbench step overlap`."""
    refuse_launcher("step overlap")
    system = _described(request.on)
    if system:
        ranks = _two_or_more(system.ranks if request.ranks is None else request.ranks)
        platform, sweep = system.platform, _described_sweep(request, system, ranks)
    else:
        platform, sweep = _measured_sweep(request, "8M", request.ranks)
        _two_or_more(sweep.ranks)
    sizes = parse_buckets(request.buckets, sweep.sizes[0])
    step = sweep.works[0]
    if not isinstance(step, Step):
        step = _measured_step(request, platform, sweep)
    sweep = replace(sweep, works=overlap_steps(step, platform, sizes))
    where = f"-{folder_name(system, sweep.ranks)}" if system else ""
    folder = request.folder or default_folder(sweep, f"overlap{where}")
    run = PredictedSteps(system, sweep) if system else overlap_run(platform, sweep, folder)
    return Session(run, sweep, None, folder, modelled=system is not None)


def _two_or_more(ranks: int) -> int:
    if ranks < 2:
        raise UsageError(f"--ranks {ranks} has nothing to communicate; give at least 2")
    return ranks


def stragglers_session(request: StepRequest, joined: tuple[int, int] | None) -> Session:
    """Return the session of `collbench step stragglers`; ranks are started once before, to time a matrix product.

    *joined* is the rank and the number of processes of an outside launcher.
    """
    work = parse_work(request.compute or "1ms")
    platform, sweep = _measured_sweep(request, "64K", request.ranks, joined)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has nobody to be late for; give at least 2")
    most, steps = MOST_MOMENTS // sweep.ranks, request.steps
    if steps is not None and not SERIES <= steps <= most:
        raise UsageError(f"--steps {steps} is not possible with {sweep.ranks} ranks; choose from {SERIES} to {most}")
    slow = parse_slow(request.slow_rank, sweep.ranks, SLOW_FACTOR)
    with announced_if_slow(TRIAL):
        step = replace(calibrated(work, platform, sweep, joined), slow=slow)

    # A few long series, none so long that the ranks seem to hang.
    count = steps or min(STEPS, most)
    slowest = max([1.0, *(factor for _, factor in slow)])
    longest = int(LONGEST / (work.seconds * slowest)) if work.seconds else count
    each = max(1, min(math.ceil(count / SERIES), longest))
    sampling = replace(sweep.sampling, steps=each, iters=math.ceil(count / each))
    sweep = replace(sweep, works=(step,), sampling=sampling)
    return Session(platform, sweep, joined, request.folder or default_folder(sweep))


def strategies_session(request: StepRequest, joined: tuple[int, int] | None) -> Session:
    """Return the session of `collbench step strategies`: a case for each seed, which all strategies carry out.

    *joined* is the rank and the number of processes of an outside launcher.
    """
    names = synchronisation.choose(request.strategy)
    job = SgdJob(steps=request.updates, staleness=request.staleness, target=request.target or 0.0)
    requested = _request(request, job.nbytes, on=synchronisation.PLATFORM, impl="ladder")
    platform, sweep = measured_sweep(requested, joined)
    job = replace(job, slow=parse_slow(request.slow_rank, sweep.ranks, SLOW_TRAINER))
    # All strategies carry out the same seeds, so they are compared seed by seed.
    jobs = tuple(replace(job, seed=seed) for seed in range(1, request.seeds + 1))
    sweep = replace(sweep, implementations=names, works=jobs)
    return Session(platform, sweep, joined, request.folder or new_folder(["strategies"], socket.gethostname()))


# What several of them share.


def _request(request: StepRequest, gradients: Size, **more: Any) -> SweepRequest:
    """Return the request of a sweep of one size, which is *gradients* if none is given."""
    size = request.gradients or gradients
    return replace(request, minbytes=size, maxbytes=size, starts=1, **more)


def _measured_sweep(
    request: StepRequest, gradients: str, ranks: int | None, joined: tuple[int, int] | None = None
) -> tuple[str, Sweep]:
    """Return a platform and the sweep there, by default of its library and what should be the fastest of the others."""
    requested = _request(request, gradients, on=request.on, ranks=ranks, impl=request.impl or "library,auto")
    return measured_sweep(requested, joined)


def _measured_step(request: StepRequest, platform: str, sweep: Sweep) -> Step:
    """Return a step of a sweep's ranks; one is started to time a product."""
    work, slow = parse_work(request.compute or "10ms"), parse_slow(request.slow_rank, sweep.ranks, SLOW_FACTOR)
    size = request.matrix or find_platform(platform).matrix
    with announced_if_slow(TRIAL):
        return replace(calibrated(work, platform, replace(sweep, ranks=1), sizes=(size,)), slow=slow)


def _described(on: str) -> System | None:
    """Return the described system that `--on` names, on which nothing runs; None for a platform."""
    if on in ("auto", *platforms()):
        return None
    return find_system(on, ("auto", *platforms()))


def _described_sweep(request: StepRequest, system: System, ranks: int) -> Sweep:
    """Return the sweep of a step on a described system; UsageError for what cannot be predicted there."""
    work = parse_work(request.compute or "100ms")
    if work.flops:
        raise UsageError(
            f"--compute {request.compute} says nothing on a described system, whose FLOP/s nobody wrote down; "
            "give a time, such as 100ms"
        )
    if request.slow_rank:
        raise UsageError("--slow-rank goes with ranks that are measured; on a described system leave it out")
    sweep = _request(request, "1G").on_ranks(ranks, choose(request.impl or "nccl", system.platform), 0)
    return replace(sweep, works=(Step(0, 0, seconds=work.seconds),))


def parse_work(text: str) -> Amount:
    """Return the work of `10ms` or `2GFLOP`; UsageError with the choices otherwise."""
    seconds = duration(text.lower())
    if 0 < seconds <= _LONGEST_WORK:
        return Amount(seconds=seconds)
    match = QUANTITY.fullmatch(text)
    number, unit = (float(match[1]), match[2]) if match else (0.0, "")
    flops = number * _FLOPS.get(unit.upper().removesuffix("S"), 0.0)  # GFLOPS are taken for GFLOP
    if 0 < flops <= _MOST_FLOPS:
        return Amount(flops=flops)
    units = ", ".join(("us, ms, s", *_FLOPS))
    raise UsageError(
        f"--compute {text} is no amount of computing; give one above 0 with a unit ({units}), such as 10ms"
    )


def parse_ranks(text: str) -> tuple[int, ...]:
    """Return the numbers of `1,2,4` or `8..4096`, which doubles, in ascending order."""
    counts = parse_numbers(text)
    if not 2 <= len(counts) <= _MOST_COUNTS or counts[0] < 1 or counts[-1] > MOST_RANKS:
        raise UsageError(
            f"--ranks {text} is not possible; give 2 to {_MOST_COUNTS} numbers from 1 to {MOST_RANKS}, "
            "such as 1,2,4 or 8..4096"
        )
    return tuple(counts)


def parse_buckets(text: str | None, nbytes: int) -> tuple[int, ...]:
    """Return sizes of buckets in bytes, ascending; by default a 16th of all, a quarter, and all."""
    if text is None:
        return tuple(sorted({max(BUCKET_UNIT, nbytes // part) for part in (16, 4, 1)}))
    sizes = tuple(sorted({parse_size(word) for word in text.split(",")}))
    if sizes[-1] > nbytes:
        raise UsageError(
            f"--buckets {format_size(sizes[-1])} is more than the {format_size(nbytes)} of gradients; give at most that"
        )
    if sizes[0] < BUCKET_UNIT or nbytes // sizes[0] > _MOST_BUCKETS:
        least = max(BUCKET_UNIT, nbytes // _MOST_BUCKETS)
        raise UsageError(f"--buckets {format_size(sizes[0])} are too many; give at least {format_size(least)}")
    return sizes
