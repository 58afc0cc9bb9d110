"""Sessions of `collbench step`, which measure steps or predict them."""

import math
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from collbench.algorithms import choose, needs
from collbench.cases import Case, Sweep
from collbench.commands.step import strategies
from collbench.commands.step.calibration import calibrated
from collbench.commands.step.measured import LONGEST
from collbench.commands.step.predicted import PredictedSteps
from collbench.commands.step.schedules import overlapping
from collbench.commands.step.work import BUCKET_UNIT, COMMUNICATE, COMPUTE, MODES, SEQUENTIAL, WEAK, SgdJob, Step
from collbench.errors import UsageError, notify
from collbench.measure.interleave import Arm, Interleaving
from collbench.measure.session import Session
from collbench.measure.supervisor import Supervisor
from collbench.platforms import find_platform, platforms
from collbench.platforms.layout import MemoryLayout
from collbench.present.notices import RANKS, announced_if_slow
from collbench.requests.declared import SIZE, TIME, Opt
from collbench.requests.sweeps import SweepRequest, default_folder, find_system, folder_name, measured_sweep, new_folder
from collbench.requests.words import LONGEST as LONGEST_TIME
from collbench.requests.words import MOST_RANKS, Size, Time, parse_slow
from collbench.topology.system import System
from collbench.units import counted, format_size, parse_duration, parse_numbers, parse_size

STEPS = 4000  # of a straggler test
MOST_MOMENTS = 500_000  # ranks times steps of a row, which is one line of the run file
SERIES = 16  # interleaved series of each implementation in a straggler test
TRIAL = f"a matrix product is timed; {RANKS}"
_NODES = 512  # of a described system, at most by default
_MOST_COUNTS = 64  # numbers of ranks in one scaling
_MOST_BUCKETS = 1024  # of a step
_COMPUTE = "10ms; scale on one number of ranks 1ms; predicted 100ms"
_GRADIENTS = "4M; scale on one number of ranks 64K; overlap 8M; predicted 1G"
Usual = Callable[..., Path | None]  # returns the default folder of a sweep's run, or None to store nothing
SLOW_FACTOR, SLOW_TRAINER = 2.0, 4.0  # default factors of a slow rank in steps and in training
_RANKS = "Numbers of ranks; FIRST..LAST doubles. One measured number: find late ranks."
_SLOW = (
    f"Rank R computes FACTOR times as much (default {SLOW_FACTOR:g}, in strategies {SLOW_TRAINER:g}); "
    "may be given several times."
)


@dataclass(frozen=True)
class StepRequest(SweepRequest):
    """The request of every `collbench step` command; each command has options for some fields."""

    strategy: Annotated[str, Opt("--strategy", "Strategies to compare.", metavar="NAME[,NAME]|all")] = "all"
    counts: Annotated[
        int | str | None, Opt("-g --ranks", _RANKS, "1,2; on a described system 1 to all GPUs", "N|N,N|N..N")
    ] = None
    mode: Annotated[
        str, Opt("--mode", "Keep the work per rank constant (weak) or the total (strong).", choices=(*MODES, "both"))
    ] = WEAK
    impl: Annotated[str, Opt("--impl", "Implementations.", "the library and auto", "NAME[,NAME]")] = ""
    compute: Annotated[Time | None, Opt("--compute", "Computing time of a step.", _COMPUTE, unit=TIME, most=1e4)] = None
    gradients: Annotated[
        Size | None, Opt("-b --gradients", "Bytes to all-reduce per step.", _GRADIENTS, unit=SIZE, least=1)
    ] = None
    budget: Annotated[
        Time | None,
        Opt(
            "--budget",
            "Time for a case, all implementations together.",
            "2s, scale on one number of ranks 20s",
            unit=TIME,
            most=LONGEST_TIME,
        ),
    ] = None  # type: ignore[assignment]  # each session has its own default
    buckets: Annotated[str | None, Opt("--buckets", "Bucket sizes.", "1/16, 1/4 and all", "SIZE[,SIZE]")] = None
    steps: Annotated[int | None, Opt("--steps", "Steps of a row on one number of ranks.", f"{STEPS}", "N")] = None
    slow_rank: Annotated[Sequence[str], Opt("--slow-rank", _SLOW, metavar="R[:FACTOR]")] = ()
    seeds: Annotated[
        int, Opt("--seeds", "Runs per strategy, each with other initial weights.", "", "N", least=1, most=1000)
    ] = 8
    updates: Annotated[int, Opt("--steps", "Mean number of steps per rank.", "", "N", least=1, most=10_000)] = 120
    staleness: Annotated[
        int,
        Opt("--staleness", "Steps a rank may lead the slowest (asynchronous only).", "", "S", least=0, most=10_000),
    ] = 256
    target: Annotated[float | None, Opt("--target", "Loss to reach.", "the lowest that all reach", above=0)] = None


# One step on several numbers of ranks.


def scale_session(
    request: StepRequest, joined: tuple[int, int] | None = None, usual: Usual = default_folder
) -> Session:
    """Return the session of `collbench step scale`: on one number of ranks a straggler test."""
    if waiting := _at_one_number(request, joined):
        return waiting_session(waiting, joined, usual)
    system = _described(request.on)
    if request.steps is not None:
        several = "one number of ranks, such as --ranks 2; with several, give a --budget"
        raise UsageError(f"--steps needs {'measured ranks; leave it out' if system else several}")
    modes = tuple(MODES) if request.mode == "both" else (request.mode,)
    if system:
        most = system.gpus
        if system.nics:
            most *= 2 ** int(math.log2(max(system.nodes, _NODES)))
        # A prediction for one rank costs nothing, and is the base of all ratios.
        text = str(request.counts or "")
        counts = _in_whole_nodes(parse_ranks(text or f"1..{most}", 1), text, system)
        sweep = _described_sweep(request, system, counts[-1])
        cases = chain.from_iterable(scaled_cases(sweep, counts, modes))
        folder = request.folder or usual(sweep, f"scale-{folder_name(system, counts[-1])}")
        return Session(PredictedSteps(system, sweep, cases), sweep, None, folder, modelled=True)
    counts = parse_ranks(str(request.counts or "1,2"))
    platform, sweep = _measured_sweep(request, "4M", counts[-1])
    largest = Step(1, find_platform(platform).matrix)
    layout = MemoryLayout.of(replace(sweep, works=(largest,)), needs(sweep.implementations, sweep.ranks, platform))
    find_platform(platform).refuse_too_large(layout.nbytes, sum(counts))  # all ranks exist at once
    sweep = replace(sweep, works=(_measured_step(request, platform, sweep),))
    folder = request.folder or usual(sweep, "scale")
    # All sets of ranks take turns, so that machine drift cancels in the ratios of their times.
    parts = [sweep_on(sweep, count, modes) for count in counts]
    arms = [Arm((Supervisor(platform, part, folder=folder),), part, counted(part.ranks, "rank")) for part in parts]
    run = Interleaving(platform, arms, scaled_cases(sweep, counts, modes), first=-1)  # the topology of all
    return Session(run, sweep, None, folder)


def scaled_cases(sweep: Sweep, counts: Sequence[int], modes: Sequence[str]) -> list[tuple[Case, ...]]:
    """Return the groups of cases to compare: for each mode and size, one case per number of ranks, ascending."""
    every = (zip(*(sweep_on(sweep, count, [mode]).cases() for count in counts), strict=True) for mode in modes)
    return list(chain.from_iterable(every))


def sweep_on(sweep: Sweep, ranks: int, modes: Sequence[str]) -> Sweep:
    """Return the sweep on `ranks` ranks, derived from a sweep with the step of one rank alone."""
    alone = sweep.works[0]
    assert isinstance(alone, Step)
    steps = tuple(dict.fromkeys(alone.on(ranks, mode) for mode in modes))
    names = steps[0].communicators(sweep.implementations)
    return replace(sweep, ranks=ranks, implementations=names, works=steps)


def overlap_session(request: StepRequest) -> Session:
    """Return the session of `collbench step overlap`."""
    system = _described(request.on)
    if system:
        ranks = system.ranks if request.ranks is None else request.ranks
        platform, sweep = system.platform, _described_sweep(request, system, ranks)
    else:
        platform, sweep = _measured_sweep(request, "8M", request.ranks)
    if sweep.ranks < 2:
        raise UsageError(f"--ranks {sweep.ranks} has nothing to communicate; give at least 2")
    sizes = parse_buckets(request.buckets, sweep.sizes[0])
    step = sweep.works[0]
    if not isinstance(step, Step):
        step = _measured_step(request, platform, sweep)
    # Each part alone, the sequential step, and every overlapping schedule at every bucket size.
    steps = [replace(step, schedule=name, bucket=0) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL)]
    for name in overlapping(platform):
        steps += [replace(step, schedule=name, bucket=size) for size in sizes]
    sweep = replace(sweep, works=tuple(steps))
    where = f"-{folder_name(system, sweep.ranks)}" if system else ""
    folder = request.folder or default_folder(sweep, f"overlap{where}")
    if system:
        return Session(PredictedSteps(system, sweep), sweep, None, folder, modelled=True)
    # One set of ranks measures all steps, so each form of the step is its own arm.
    supervisor = Supervisor(platform, sweep, folder=folder)
    share = replace(sweep.sampling, budget=sweep.sampling.budget / len(sweep.works))
    names = sweep.implementations
    parts = (replace(sweep, works=(way,), implementations=way.communicators(names), sampling=share) for way in steps)
    return Session(Interleaving(platform, [Arm((supervisor,), part) for part in parts]), sweep, None, folder)


# One step on one number of ranks: late ranks.


def _at_one_number(request: StepRequest, joined: tuple[int, int] | None) -> StepRequest | None:
    """Return a request of `collbench step scale` as a straggler test; None for several numbers of ranks.

    Under a launcher the only number of ranks is that of its processes.
    """
    numbers = parse_numbers(str(request.counts or ""))
    if joined is None and (len(numbers) != 1 or _described(request.on)):
        return None
    if joined and _described(request.on):
        raise UsageError(f"--on {request.on} is predicted by one process; leave the launcher out")
    if joined and request.counts and len(numbers) != 1:
        raise UsageError(f"--ranks {request.counts} although the launcher started {joined[1]}; leave --ranks out")
    if request.mode != WEAK:
        raise UsageError(f"--mode {request.mode} needs several numbers of ranks, such as --ranks 1,2; leave it out")
    return replace(request, ranks=numbers[0] if numbers else None, budget=_budget(request, "20s"))


def waiting_session(request: StepRequest, joined: tuple[int, int] | None, usual: Usual = default_folder) -> Session:
    """Return the session of a straggler test, after starting ranks once to time a matrix product."""
    computing = parse_duration(request.compute or "1ms", "--compute")
    platform, sweep = _measured_sweep(request, "64K", request.ranks, joined)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has no other rank to delay; give at least 2")
    most, steps = MOST_MOMENTS // sweep.ranks, request.steps
    if steps is not None and not SERIES <= steps <= most:
        raise UsageError(f"--steps {steps} is not possible with {sweep.ranks} ranks; choose from {SERIES} to {most}")
    slow = parse_slow(request.slow_rank, sweep.ranks, SLOW_FACTOR)
    with announced_if_slow(TRIAL):
        step = replace(calibrated(computing, platform, sweep, joined), slow=slow)

    # A few long series, but short enough that ranks do not seem to hang.
    count = steps or min(STEPS, most)
    slowest = max([1.0, *(factor for _, factor in slow)])
    longest = int(LONGEST / (computing * slowest))
    each = max(1, min(math.ceil(count / SERIES), longest))
    sampling = replace(sweep.sampling, steps=each, iters=math.ceil(count / each))
    sweep = replace(sweep, works=(step,), sampling=sampling)
    return Session(platform, sweep, joined, request.folder or usual(sweep))


def strategies_session(request: StepRequest, joined: tuple[int, int] | None) -> Session:
    """Return the session of `collbench step strategies`: a case for each seed, run by all strategies."""
    names = strategies.choose(request.strategy)
    job = SgdJob(steps=request.updates, staleness=request.staleness, target=request.target or 0.0)
    platform, sweep = measured_sweep(_request(request, job.nbytes, on=strategies.PLATFORM, impl="ladder"), joined)
    job = replace(job, slow=parse_slow(request.slow_rank, sweep.ranks, SLOW_TRAINER))
    # All strategies run the same seeds, so they are compared seed by seed.
    jobs = tuple(replace(job, seed=seed) for seed in range(1, request.seeds + 1))
    sweep = replace(sweep, implementations=names, works=jobs)
    return Session(platform, sweep, joined, request.folder or new_folder(["strategies"], socket.gethostname()))


# Shared by several sessions.


def _request(request: StepRequest, gradients: Size, **more: Any) -> SweepRequest:
    """Return the request for a sweep of one size, by default *gradients*."""
    size = request.gradients or gradients
    return replace(request, minbytes=size, maxbytes=size, starts=1, budget=_budget(request, "2s"), **more)


def _budget(request: StepRequest, usual: str) -> Time:
    """Return the requested budget, or *usual*: the default of `step scale` depends on the ranks."""
    return usual if request.budget is None else request.budget


def _measured_sweep(
    request: StepRequest, gradients: str, ranks: int | None, joined: tuple[int, int] | None = None
) -> tuple[str, Sweep]:
    """Return a platform and its sweep, by default of its library and the presumably fastest other implementation."""
    requested = _request(request, gradients, on=request.on, ranks=ranks, impl=request.impl or "library,auto")
    return measured_sweep(requested, joined)


def _measured_step(request: StepRequest, platform: str, sweep: Sweep) -> Step:
    """Return the step of a sweep's ranks, after starting one rank to time matrix products."""
    computing = parse_duration(request.compute or "10ms", "--compute")
    slow = parse_slow(request.slow_rank, sweep.ranks, SLOW_FACTOR)
    with announced_if_slow(TRIAL):
        return replace(calibrated(computing, platform, replace(sweep, ranks=1)), slow=slow)


def _described(on: str) -> System | None:
    """Return the described system of `--on`, on which nothing runs; None for a platform."""
    measured = "auto", *platforms()
    return None if on in measured else find_system(on, measured)


def _described_sweep(request: StepRequest, system: System, ranks: int) -> Sweep:
    """Return the sweep of a step on a described system; UsageError for options that need measured ranks."""
    computing = parse_duration(request.compute or "100ms", "--compute")
    if request.slow_rank:
        raise UsageError("--slow-rank needs measured ranks; leave it out on a described system")
    sweep = _request(request, "1G").on_ranks(ranks, choose(request.impl or "nccl", system.platform), 0)
    return replace(sweep, works=(Step(0, 0, seconds=computing),))


def parse_ranks(text: str, *also: int) -> tuple[int, ...]:
    """Return the numbers in `1,2,4` or `8..4096` (doubling), after the numbers in `also`, ascending."""
    given, least = sorted({*parse_numbers(text)}.difference(also)), 1 + len(also)
    if not 3 - least <= len(given) <= _MOST_COUNTS or given[0] < least or given[-1] > MOST_RANKS:
        raise UsageError(
            f"--ranks {text} is not possible; give {3 - least} to {_MOST_COUNTS} numbers from {least} to {MOST_RANKS}, "
            "such as 1,2,4 or 8..4096"
        )
    return *also, *given


def _in_whole_nodes(counts: Sequence[int], given: str, system: System) -> Sequence[int]:
    """Return the counts of a range, rounded up to whole nodes of the system, which a notice names."""
    node = system.gpus
    rounded = {count: more for count in counts if count > node and count != (more := -(-count // node) * node)}
    if not rounded or (given and ".." not in given):
        return counts
    pairs = ", ".join(f"{more} instead of {count}" for count, more in rounded.items())
    notify(f"{system.name} has 1 to {node} ranks or whole {'racks' if system.is_rack else 'nodes'}: {pairs}", 3)
    return sorted({rounded.get(count, count) for count in counts})


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
        raise UsageError(f"--buckets {format_size(sizes[0])} is too small; give at least {format_size(least)}")
    return sizes
