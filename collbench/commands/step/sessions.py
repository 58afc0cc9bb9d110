"""From a request of `collbench step` to a session that measures its steps, or predicts them on a described system."""

import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any

from collbench.algorithms import choose, needs
from collbench.cases import Case, Sweep
from collbench.commands.step import strategies
from collbench.commands.step.calibration import calibrated
from collbench.commands.step.measured import LONGEST
from collbench.commands.step.predicted import PredictedSteps
from collbench.commands.step.schedules import overlapping
from collbench.commands.step.work import BUCKET_UNIT, COMMUNICATE, COMPUTE, MODES, SEQUENTIAL, WEAK, SgdJob, Step
from collbench.errors import UsageError
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
MOST_MOMENTS = 500_000  # of ranks and steps of a row, which is one line of the run file
SERIES = 16  # of each implementation in a straggler test, which take turns
TRIAL = f"a matrix product is timed; {RANKS}"
_NODES = 512  # of a described system, at most by default
_MOST_COUNTS = 64  # numbers of ranks in one scaling
_MOST_BUCKETS = 1024  # of a step
_COMPUTE = "10ms, for scale on one number 1ms, predicted 100ms"
_GRADIENTS, _BUDGET = "4M, for scale on one number 64K, for overlap 8M, predicted 1G", "2s, of one number 20s"
SLOW_FACTOR, SLOW_TRAINER = 2.0, 4.0  # of a slow rank in steps and in training, if none is given
_RANKS = "Numbers of ranks; FIRST..LAST doubles. Of one number, measured: who waits for whom?"
_SLOW = (
    f"A rank that computes FACTOR times as much, {SLOW_FACTOR:g} if not given, in strategies {SLOW_TRAINER:g}; "
    "several times for several ranks."
)


@dataclass(frozen=True)
class StepRequest(SweepRequest):
    """The request of the commands of `collbench step`: each has options for some of these words."""

    strategy: Annotated[str, Opt("--strategy", "Strategies to compare.", metavar="NAME[,NAME]|all")] = "all"
    counts: Annotated[str | None, Opt("-g --ranks", _RANKS, "1,2; on a system from 1 to all GPUs", "N|N,N|N..N")] = None
    mode: Annotated[
        str, Opt("--mode", "Work that stays the same: each rank's (weak) or all (strong).", choices=(*MODES, "both"))
    ] = WEAK
    impl: Annotated[str, Opt("--impl", "Implementations.", "the library and auto", "NAME[,NAME]")] = ""
    compute: Annotated[Time | None, Opt("--compute", "How long a rank computes.", _COMPUTE, unit=TIME, most=1e4)] = None
    gradients: Annotated[
        Size | None, Opt("-b --gradients", "Bytes to communicate.", _GRADIENTS, unit=SIZE, least=1)
    ] = None
    budget: Annotated[
        Time, Opt("--budget", "Time for a case, all implementations together.", _BUDGET, unit=TIME, most=LONGEST_TIME)
    ] = "500ms"
    buckets: Annotated[str | None, Opt("--buckets", "Sizes of a bucket.", "a 16th, a 4th, all", "SIZE[,SIZE]")] = None
    steps: Annotated[int | None, Opt("--steps", "Of one number, measured: steps of a row.", f"{STEPS}", "N")] = None
    slow_rank: Annotated[Sequence[str], Opt("--slow-rank", _SLOW, metavar="R[:FACTOR]")] = ()
    seeds: Annotated[
        int, Opt("--seeds", "Runs of every strategy, each from other first weights.", "", "N", least=1, most=1000)
    ] = 8
    updates: Annotated[int, Opt("--steps", "Steps of each rank, on average.", "", "N", least=1, most=10_000)] = 120
    staleness: Annotated[
        int,
        Opt("--staleness", "asynchronous: steps ahead of the slowest; 0: synchronous.", "", "S", least=0, most=10_000),
    ] = 256
    target: Annotated[float | None, Opt("--target", "Loss to reach.", "the lowest that all get to", above=0)] = None


# One step on several numbers of ranks.


def scale_session(request: StepRequest) -> Session:
    """Return the session of `collbench step scale` on several numbers of ranks."""
    system = _described(request.on)
    if request.steps is not None:
        several = "one number of ranks, such as --ranks 2; with several, give a --budget"
        raise UsageError(f"--steps goes with {'ranks that are measured; leave it out' if system else several}")
    modes = tuple(MODES) if request.mode == "both" else (request.mode,)
    if system:
        most = system.gpus
        if system.nics:
            most *= 2 ** int(math.log2(max(system.nodes, _NODES)))
        # One rank alone costs nothing here, and is what all others are compared with.
        counts = parse_ranks(request.counts or f"1..{most}", 1)
        sweep = _described_sweep(request, system, counts[-1])
        cases = chain.from_iterable(scaled_cases(sweep, counts, modes))
        folder = request.folder or default_folder(sweep, f"scale-{folder_name(system, counts[-1])}")
        return Session(PredictedSteps(system, sweep, cases), sweep, None, folder, modelled=True)
    counts = parse_ranks(request.counts or "1,2")
    platform, sweep = _measured_sweep(request, "4M", counts[-1])
    largest = Step(1, find_platform(platform).matrix)
    layout = MemoryLayout.of(replace(sweep, works=(largest,)), needs(sweep.implementations, sweep.ranks, platform))
    find_platform(platform).refuse_too_large(layout.nbytes, sum(counts))  # all ranks are there at once
    sweep = replace(sweep, works=(_measured_step(request, platform, sweep),))
    folder = request.folder or default_folder(sweep, "scale")
    # All sets of ranks take turns, so that drift of the machine cancels in the ratios of their times.
    arms = []
    for count in counts:
        part = sweep_on(sweep, count, modes)
        arms.append(Arm((Supervisor(platform, part, folder=folder),), part, counted(count, "rank")))
    run = Interleaving(platform, arms, scaled_cases(sweep, counts, modes), first=-1)  # the topology of all
    return Session(run, sweep, None, folder)


def scaled_cases(sweep: Sweep, counts: Sequence[int], modes: Sequence[str]) -> list[tuple[Case, ...]]:
    """Return the cases that are compared: for every mode and size, one for each number of ranks, ascending."""
    every = (zip(*(sweep_on(sweep, count, [mode]).cases() for count in counts), strict=True) for mode in modes)
    return list(chain.from_iterable(every))


def sweep_on(sweep: Sweep, ranks: int, modes: Sequence[str]) -> Sweep:
    """Return the sweep of `ranks` ranks, derived from a sweep with the step of one rank alone."""
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
    # The parts alone, one after the other, and by every schedule that overlaps at every size of bucket.
    steps = [replace(step, schedule=name, bucket=0) for name in (COMPUTE, COMMUNICATE, SEQUENTIAL)]
    for name in overlapping(platform):
        steps += [replace(step, schedule=name, bucket=size) for size in sizes]
    sweep = replace(sweep, works=tuple(steps))
    where = f"-{folder_name(system, sweep.ranks)}" if system else ""
    folder = request.folder or default_folder(sweep, f"overlap{where}")
    if system:
        return Session(PredictedSteps(system, sweep), sweep, None, folder, modelled=True)
    # One set of ranks measures all steps, so each way to carry a step out is an arm of its own.
    supervisor = Supervisor(platform, sweep, folder=folder)
    share = replace(sweep.sampling, budget=sweep.sampling.budget / len(sweep.works))
    arms = []
    for way in steps:
        part = replace(sweep, works=(way,), implementations=way.communicators(sweep.implementations), sampling=share)
        arms.append(Arm((supervisor,), part))
    return Session(Interleaving(platform, arms), sweep, None, folder)


# One step on one number of ranks: who waits for whom.


def at_one_number(request: StepRequest, joined: tuple[int, int] | None) -> StepRequest | None:
    """Return a request of `collbench step scale` as one of who waits for whom; None where there is something to scale.

    Under a launcher there is one number of ranks, that of its processes.
    """
    numbers = parse_numbers(request.counts or "")
    if joined is None and (len(numbers) != 1 or _described(request.on)):
        return None
    if joined and _described(request.on):
        raise UsageError(f"--on {request.on} is predicted by one process; leave the launcher out")
    if joined and request.counts and len(numbers) != 1:
        raise UsageError(f"--ranks {request.counts} although the launcher started {joined[1]}; leave --ranks out")
    if request.mode != WEAK:
        raise UsageError(f"--mode {request.mode} goes with several numbers of ranks, such as --ranks 1,2; leave it out")
    return replace(request, ranks=numbers[0] if numbers else None, budget=_budget(request, "20s"))


def waiting_session(request: StepRequest, joined: tuple[int, int] | None) -> Session:
    """Return the session of who waits for whom; ranks are started once before, to time a matrix product."""
    computing = parse_duration(request.compute or "1ms", "--compute")
    platform, sweep = _measured_sweep(request, "64K", request.ranks, joined)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has nobody to be late for; give at least 2")
    most, steps = MOST_MOMENTS // sweep.ranks, request.steps
    if steps is not None and not SERIES <= steps <= most:
        raise UsageError(f"--steps {steps} is not possible with {sweep.ranks} ranks; choose from {SERIES} to {most}")
    slow = parse_slow(request.slow_rank, sweep.ranks, SLOW_FACTOR)
    with announced_if_slow(TRIAL):
        step = replace(calibrated(computing, platform, sweep, joined), slow=slow)

    # A few long series, none so long that the ranks seem to hang.
    count = steps or min(STEPS, most)
    slowest = max([1.0, *(factor for _, factor in slow)])
    longest = int(LONGEST / (computing * slowest))
    each = max(1, min(math.ceil(count / SERIES), longest))
    sampling = replace(sweep.sampling, steps=each, iters=math.ceil(count / each))
    sweep = replace(sweep, works=(step,), sampling=sampling)
    return Session(platform, sweep, joined, request.folder or default_folder(sweep))


def strategies_session(request: StepRequest, joined: tuple[int, int] | None) -> Session:
    """Return the session of `collbench step strategies`: a case for each seed, which all strategies carry out."""
    names = strategies.choose(request.strategy)
    job = SgdJob(steps=request.updates, staleness=request.staleness, target=request.target or 0.0)
    platform, sweep = measured_sweep(_request(request, job.nbytes, on=strategies.PLATFORM, impl="ladder"), joined)
    job = replace(job, slow=parse_slow(request.slow_rank, sweep.ranks, SLOW_TRAINER))
    # All strategies carry out the same seeds, so they are compared seed by seed.
    jobs = tuple(replace(job, seed=seed) for seed in range(1, request.seeds + 1))
    sweep = replace(sweep, implementations=names, works=jobs)
    return Session(platform, sweep, joined, request.folder or new_folder(["strategies"], socket.gethostname()))


# Shared by several sessions.


def _request(request: StepRequest, gradients: Size, **more: Any) -> SweepRequest:
    """Return the request of a sweep of one size, which is *gradients* if none is given."""
    size = request.gradients or gradients
    return replace(request, minbytes=size, maxbytes=size, starts=1, budget=_budget(request, "2s"), **more)


def _budget(request: StepRequest, usual: str) -> Time:
    """Return the budget; `step scale`, where it depends on the ranks, has none if none is given."""
    return usual if request.budget is None else request.budget


def _measured_sweep(
    request: StepRequest, gradients: str, ranks: int | None, joined: tuple[int, int] | None = None
) -> tuple[str, Sweep]:
    """Return a platform and the sweep there, by default of its library and what should be the fastest of the others."""
    requested = _request(request, gradients, on=request.on, ranks=ranks, impl=request.impl or "library,auto")
    return measured_sweep(requested, joined)


def _measured_step(request: StepRequest, platform: str, sweep: Sweep) -> Step:
    """Return a step of a sweep's ranks; one is started to time products."""
    computing = parse_duration(request.compute or "10ms", "--compute")
    slow = parse_slow(request.slow_rank, sweep.ranks, SLOW_FACTOR)
    with announced_if_slow(TRIAL):
        return replace(calibrated(computing, platform, replace(sweep, ranks=1)), slow=slow)


def _described(on: str) -> System | None:
    """Return the described system that `--on` names, on which nothing runs; None for a platform."""
    measured = "auto", *platforms()
    return None if on in measured else find_system(on, measured)


def _described_sweep(request: StepRequest, system: System, ranks: int) -> Sweep:
    """Return the sweep of a step on a described system; UsageError for what cannot be predicted there."""
    computing = parse_duration(request.compute or "100ms", "--compute")
    if request.slow_rank:
        raise UsageError("--slow-rank goes with ranks that are measured; on a described system leave it out")
    sweep = _request(request, "1G").on_ranks(ranks, choose(request.impl or "nccl", system.platform), 0)
    return replace(sweep, works=(Step(0, 0, seconds=computing),))


def parse_ranks(text: str, *also: int) -> tuple[int, ...]:
    """Return the numbers of `1,2,4` or `8..4096`, which doubles, and `also`, the first ones, in ascending order."""
    given, least = sorted({*parse_numbers(text)}.difference(also)), 1 + len(also)
    if not 3 - least <= len(given) <= _MOST_COUNTS or given[0] < least or given[-1] > MOST_RANKS:
        raise UsageError(
            f"--ranks {text} is not possible; give {3 - least} to {_MOST_COUNTS} numbers from {least} to {MOST_RANKS}, "
            "such as 1,2,4 or 8..4096"
        )
    return *also, *given


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
