"""From the options of `collbench step` to a session that measures or predicts steps; a wrong word is a UsageError."""

import math
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from collbench.algorithms import choose, implementations, libraries, needs
from collbench.api.notices import RANKS, announced_if_slow, is_leader, say
from collbench.api.requests import (
    SweepRequest,
    default_folder,
    find_system,
    measured_sweep,
    new_folder,
    passed_over,
)
from collbench.cases import BUCKET_UNIT, Job, Sampling, Step, Sweep
from collbench.cli.options import sweep_request
from collbench.errors import PlatformError, UsageError
from collbench.host.launcher import launched
from collbench.measure import strategies
from collbench.measure.calibration import Work, calibrated
from collbench.measure.predicted import PredictedSteps
from collbench.measure.session import Session
from collbench.measure.step_runs import MODES, Scaling, overlap_run, overlap_steps, scaling_run
from collbench.measure.steps import LONGEST
from collbench.platforms import find_platform, on_auto, platforms
from collbench.platforms.gpu.nccl import MOST_CTAS
from collbench.platforms.layout import Layout
from collbench.topology.system import System
from collbench.units import format_size, parse_size

STEPS = 4000  # of a straggler test: enough for an interval of p99.9
MOST_MOMENTS = 500_000  # of ranks and steps of a row, which is one line of the run file
SERIES = 16  # of each implementation in a straggler test, which take turns
_NODES = 512  # of a described system, at most by default
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_FLOPS = {"FLOP": 1.0, "KFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*", re.IGNORECASE)
_LONGEST_WORK, _MOST_FLOPS = 1e4, 1e21  # of computing in a step
_SLOWEST = 1000.0
_MOST_COUNTS, _MOST_RANKS = 64, 2**30  # numbers of ranks in one scaling, and the largest
_MOST_BUCKETS = 1024  # of a step
_WEIGHT_COPIES = 4  # of all updates on every rank: its own, all ranks', and those on their way
SLOW_FACTOR, SLOW_TRAINER = 2.0, 4.0  # of a slow rank in steps and in training, if none is given


@dataclass(frozen=True)
class StepOptions:
    """The options that scale, overlap and stragglers have in common, as they were given."""

    on: str
    impl: str | None
    compute: str | None
    gradients: str | None
    slow_rank: tuple[str, ...]
    datatype: str
    timeout: float
    spin: str
    bind: str
    budget: float
    formats: tuple[str, ...]
    out: Path | None
    op: str = "allreduce"
    matrix: int | None = None
    noise: float = 0.0  # per cent

    def for_sweep(self, gradients: str, **more: Any) -> SweepRequest:
        """Return the request of a sweep of one size, which is *gradients* if none is given."""
        size = self.gradients or gradients
        names = ("op", "datatype", "timeout", "spin", "bind", "budget")
        given = {name: getattr(self, name) for name in names}
        return sweep_request(given, minbytes=size, maxbytes=size, starts=1, **more)


# Scaling.


def scale_session(options: StepOptions, ranks: str | None, mode: str) -> Session:
    """Return the session of `collbench step scale`."""
    refuse_launcher("step scale", ", on several numbers of them")
    modes = tuple(MODES) if mode == "both" else (mode,)
    if system := described(options.on):
        return _predicted_scaling(options, system, ranks, modes)
    platform = platform_of(options.on)
    counts = parse_ranks(ranks or "1,2")
    slow = parse_slow(options.slow_rank, counts[-1])
    work = parse_work(options.compute or "10ms")
    size = options.matrix or find_platform(platform).matrix
    request = options.for_sweep("4M", on=platform, ranks=counts[-1], impl=options.impl or usual(platform))
    _, sweep = measured_sweep(request)
    _refuse_too_large(replace(sweep, steps=(Step(1, size),)), counts, platform)
    step = Step(work.products(platform, size), size, slow=slow)
    scaling = Scaling(replace(sweep, steps=(step,)), counts, modes)
    folder = options.out or default_folder(sweep, "scale")
    return Session(scaling_run(platform, scaling), scaling.sweep, None, folder)


def _refuse_too_large(sweep: Sweep, ranks: tuple[int, ...], platform: str) -> None:
    """Raise PlatformError if the memory of all ranks that are there at once does not fit."""
    layout = Layout.of(sweep, needs(sweep.implementations, sweep.ranks, platform))
    find_platform(platform).refuse_too_large(layout.nbytes, sum(ranks))


def _predicted_scaling(options: StepOptions, system: System, ranks: str | None, modes: tuple[str, ...]) -> Session:
    # One rank alone costs nothing here, and is what all others are compared with.
    counts = tuple(dict.fromkeys((1, *parse_ranks(ranks or _doubling_to_all(system)))))
    sweep = _described_sweep(options, system, counts[-1])
    scaling = Scaling(replace(sweep, steps=(_described_step(options),)), counts, modes)
    run = PredictedSteps(system, scaling.sweep, options.noise / 100, scaling)
    folder = options.out or default_folder(sweep, f"scale-{_place(system, counts[-1])}")
    return Session(run, scaling.sweep, None, folder, modelled=True)


def _doubling_to_all(system: System) -> str:
    """Return one GPU to all, of as many nodes as the system may have, but not of too many."""
    most = system.gpus * (2 ** int(math.log2(max(system.nodes, _NODES))) if system.nics else 1)
    return f"1..{most}"


# Overlap.


def overlap_session(
    options: StepOptions, ranks: int | None, buckets: str | None = None, ctas: str | None = None
) -> Session:
    """Return the session of `collbench step overlap`."""
    refuse_launcher("step overlap")
    if system := described(options.on):
        return _predicted_overlap(options, system, system.ranks if ranks is None else ranks, buckets, ctas)
    platform = platform_of(options.on)
    request = options.for_sweep("8M", on=platform, ranks=ranks, impl=options.impl or usual(platform))
    _, sweep = measured_sweep(request)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has nothing to communicate; give at least 2")
    slow = parse_slow(options.slow_rank, sweep.ranks)
    sizes = parse_buckets(buckets, sweep.sizes[0])
    size = options.matrix or find_platform(platform).matrix
    work = parse_work(options.compute or "10ms")
    step = Step(work.products(platform, size), size, slow=slow)
    sweep = replace(sweep, steps=overlap_steps(step, platform, sizes, parse_ctas(ctas, sweep.implementations)))
    return Session(overlap_run(platform, sweep), sweep, None, options.out or default_folder(sweep, "overlap"))


def _predicted_overlap(
    options: StepOptions, system: System, ranks: int, buckets: str | None, ctas: str | None
) -> Session:
    step = _described_step(options)
    if ranks < 2:
        raise UsageError(f"--ranks {ranks} has nothing to communicate; give at least 2")
    sweep = _described_sweep(options, system, ranks)
    sizes = parse_buckets(buckets, sweep.sizes[0])
    parse_ctas(ctas, ())
    sweep = replace(sweep, steps=overlap_steps(step, system.platform, sizes))
    run = PredictedSteps(system, sweep, options.noise / 100)
    folder = options.out or default_folder(sweep, f"overlap-{_place(system, ranks)}")
    return Session(run, sweep, None, folder, modelled=True)


# Stragglers.


def stragglers_session(
    options: StepOptions, ranks: int | None, steps: int | None, joined: tuple[int, int] | None
) -> Session:
    """Return the session of `collbench step stragglers`; ranks are started once before, to time a matrix product.

    *joined* is the rank and the number of processes of an outside launcher.
    """
    work = parse_work(options.compute or "1ms")
    request = options.for_sweep("64K", on=options.on, ranks=ranks, impl=options.impl or "library,auto")
    platform, sweep = measured_sweep(request, joined)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has nobody to be late for; give at least 2")
    most = MOST_MOMENTS // sweep.ranks
    if steps is not None and not SERIES <= steps <= most:
        raise UsageError(f"--steps {steps} is not possible with {sweep.ranks} ranks; choose from {SERIES} to {most}")
    slow = parse_slow(options.slow_rank, sweep.ranks)
    if not options.impl:  # a library once, not by every method of calling it
        names = tuple(name for name in sweep.implementations if not implementations()[name].calls)
        sweep = replace(sweep, implementations=names)
    with announced_if_slow(RANKS):
        step = replace(calibrated(work, platform, sweep, joined), slow=slow)
    sampling = _straggler_sampling(sweep, step, work, steps or min(STEPS, most))
    sweep = replace(sweep, steps=(step,), sampling=sampling)
    return Session(platform, sweep, joined, options.out or default_folder(sweep))


def _straggler_sampling(sweep: Sweep, step: Step, work: Work, steps: int) -> Sampling:
    """Return so many steps in a few long series, none so long that the ranks seem to hang."""
    slowest = max([1.0, *(factor for _, factor in step.slow)])
    most = int(LONGEST / (work.seconds * slowest)) if work.seconds else steps
    each = max(1, min(math.ceil(steps / SERIES), most))
    return replace(sweep.sampling, steps=each, iters=math.ceil(steps / each))


# Strategies.


@dataclass(frozen=True)
class StrategyOptions:
    """The options of `collbench step strategies`, as they were given."""

    strategy: str
    on: str
    ranks: int | None
    slow_rank: tuple[str, ...]
    seeds: int
    steps: int
    every: int
    staleness: int
    group: int
    rate: float
    target: float | None
    timeout: float
    spin: str
    bind: str
    formats: tuple[str, ...]
    out: Path | None


def strategies_session(options: StrategyOptions, joined: tuple[int, int] | None) -> Session:
    """Return the session of `collbench step strategies`: a case for each seed, which all strategies carry out.

    *joined* is the rank and the number of processes of an outside launcher.
    """
    names = strategies.choose(options.strategy)
    for name, number in (("rate", options.rate), ("target", options.target)):
        if number is not None and not 0 < number < math.inf:
            raise UsageError(f"--{name} {number} is not possible; give a number above 0")
    job = Job(
        steps=options.steps,
        every=options.every,
        staleness=options.staleness,
        group=options.group,
        rate=options.rate,
        target=options.target or 0.0,
    )
    request = SweepRequest.parse(
        "allreduce",
        impl="ladder",
        on=_trained_on(options.on, names, joined),
        ranks=options.ranks,
        minbytes=job.nbytes,
        maxbytes=job.nbytes,
        timeout=options.timeout,
        spin=options.spin,
        bind=options.bind,
        starts=1,
    )
    platform, sweep = measured_sweep(request, joined)
    job = replace(job, slow=parse_slow(options.slow_rank, sweep.ranks, SLOW_TRAINER))
    _refuse_too_long(job, platform, sweep.ranks)
    jobs = tuple(replace(job, seed=seed) for seed in range(1, options.seeds + 1))
    sweep = replace(sweep, implementations=names, jobs=jobs)
    folder = options.out or new_folder(["strategies"], socket.gethostname())
    return Session(platform, sweep, joined, folder)


def _trained_on(on: str, names: Sequence[str], joined: tuple[int, int] | None) -> str:
    """Return where to train: `auto` is the first platform on which a strategy runs, and stderr says what is left aside.

    Raises:
        UsageError: No strategy runs on the platform that was given.

    """
    trains = {platform for name in names for platform in strategies.strategies()[name].platforms}
    first = next(name for name in platforms() if name in trains)
    if on != "auto":
        if on in platforms() and on not in trains:
            raise UsageError(f"--on {on}: the job is computed by NumPy, on {first} alone; use --on {first}")
        return on
    before = takewhile(lambda name: name != first, platforms())
    passed = [name for name in before if find_platform(name).installed()] if is_leader(joined) else []
    if passed:
        say(f"collbench: the job is computed by NumPy, so this is the {first}, and no {' or '.join(passed)} is used")
    return first


def _refuse_too_long(job: Job, platform: str, ranks: int) -> None:
    """Raise UsageError if the weights of all updates, which stay in memory until they are checked, do not fit."""
    try:
        find_platform(platform).refuse_too_large(_WEIGHT_COPIES * job.nbytes * job.steps * ranks, ranks)
    except PlatformError as error:
        raise UsageError(f"--steps {job.steps}: all weights stay in memory; {error}; lower --steps") from None


# What several of them share.


def refuse_launcher(command: str, more: str = "") -> None:
    """Raise UsageError under an outside launcher, where the command starts its ranks itself."""
    if launched():
        raise UsageError(f"collbench {command} starts its ranks itself{more}; leave the launcher out")


def described(on: str) -> System | None:
    """Return the described system that `--on` names, on which nothing runs; None for a platform."""
    return find_system(on, ("auto", *platforms())) if on not in ("auto", *platforms()) else None


def platform_of(on: str) -> str:
    """Return the platform that `--on` names; stderr says where another one is there but cannot be used."""
    platform = on_auto() if on == "auto" else find_platform(on).name
    if remark := passed_over(on, platform):
        click.echo(f"collbench: {remark}", err=True)
    return platform


def usual(platform: str) -> str:
    """Return the libraries, and the hand-written implementation that is expected to be fastest."""
    return ",".join([*(name for name in libraries() if name in choose("library", platform)), "auto"])


def _place(system: System, ranks: int) -> str:
    """Return the system and so many ranks, as a part of a folder's name."""
    return re.sub(r"[^a-z0-9]+", "-", f"{system.name} {ranks}".lower()).strip("-")


def _described_step(options: StepOptions) -> Step:
    """Return the step of a rank on a described system; UsageError for what cannot be predicted there."""
    work = parse_work(options.compute or "100ms")
    if work.flops:
        raise UsageError(
            f"--compute {options.compute} says nothing on a described system, whose FLOP/s nobody wrote down; "
            "give a time, such as 100ms"
        )
    if options.slow_rank:
        raise UsageError("--slow-rank goes with ranks that are measured; on a described system leave it out")
    return Step(0, 0, seconds=work.seconds)


def _described_sweep(options: StepOptions, system: System, ranks: int) -> Sweep:
    return options.for_sweep("1G").on_ranks(ranks, choose(options.impl or "nccl", system.platform), 0)


def parse_work(text: str) -> Work:
    """Return the work of `10ms` or `2GFLOP`; UsageError with the choices otherwise."""
    match = _NUMBER.fullmatch(text)
    number, unit = (float(match[1]), match[2]) if match else (0.0, "")
    seconds = number * _TIMES.get(unit.lower(), 0.0)
    if 0 < seconds <= _LONGEST_WORK:
        return Work(seconds=seconds)
    flop_unit = unit.upper()
    if flop_unit.endswith("FLOPS"):
        flop_unit = flop_unit.removesuffix("S")
    flops = number * _FLOPS.get(flop_unit, 0.0)
    if 0 < flops <= _MOST_FLOPS:
        return Work(flops=flops)
    units = ", ".join((*_TIMES, *_FLOPS))
    raise UsageError(
        f"--compute {text} is no amount of computing; give one above 0 with a unit ({units}), such as 10ms"
    )


def parse_ranks(text: str) -> tuple[int, ...]:
    """Return the numbers of `1,2,4` or `8..4096`, which doubles, in ascending order."""
    counts: list[int] = []
    for word in text.split(","):
        first, dots, last = word.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or len(first + last) > 20:
            raise UsageError(f"--ranks {text} names no numbers of ranks; give some, such as 1,2,4 or 8..4096")
        counts += _doubling(int(first), int(last)) if dots else [int(first)]
    requested = tuple(sorted(set(counts)))
    if not requested or requested[0] < 1 or requested[-1] > _MOST_RANKS:
        raise UsageError(f"--ranks {text} goes beyond 1 to {_MOST_RANKS}; give numbers of ranks within, such as 1,2,4")
    if len(requested) < 2:
        raise UsageError(f"--ranks {text} is one number of ranks, and scaling compares several; give such as 1,{text}")
    if len(requested) > _MOST_COUNTS:
        raise UsageError(f"--ranks {text} are more than {_MOST_COUNTS} numbers; give fewer")
    return requested


def _doubling(first: int, last: int) -> list[int]:
    if not 0 < first <= last:
        raise UsageError(f"--ranks {first}..{last} goes down or starts at 0; give the fewest first, such as 1..8")
    counts = [first]
    while counts[-1] * 2 <= last and len(counts) <= _MOST_COUNTS:
        counts.append(counts[-1] * 2)
    return counts


def parse_slow(texts: Sequence[str], ranks: int, usual_factor: float = SLOW_FACTOR) -> tuple[tuple[int, float], ...]:
    """Return the rank and factor of `1` or `1:1.5`, a rank that computes so many times as much."""
    slow: dict[int, float] = {}
    for text in texts:
        word, colon, factor = text.strip().partition(":")
        if not word.isdecimal() or not int(word[:9]) < ranks:
            raise UsageError(f"--slow-rank {text} is no rank of {ranks}; choose from 0 to {ranks - 1}, such as 0:1.5")
        if int(word) in slow:
            raise UsageError(f"--slow-rank {int(word)} is given twice; give each rank once")
        slow[int(word)] = _slow_factor(text, factor) if colon else usual_factor
    return tuple(sorted(slow.items()))


def _slow_factor(text: str, factor: str) -> float:
    match = _NUMBER.fullmatch(factor)
    number = float(match[1]) if match and not match[2] else 0.0
    if not 1 <= number <= _SLOWEST:
        raise UsageError(f"--slow-rank {text} is slow by no factor; give one from 1 to {_SLOWEST:g}, such as 0:1.5")
    return number


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


def parse_ctas(text: str | None, names: Sequence[str]) -> tuple[int, ...]:
    """Return limits of CTAs for NCCL, ascending; UsageError where NCCL is not among the implementations."""
    if text is None:
        return ()
    if "nccl" not in names:
        raise UsageError(f"--ctas {text} limits NCCL, which is not measured here; leave it out, or add nccl on GPUs")
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isdecimal() and word.isascii() and 1 <= int(word) <= MOST_CTAS):
            raise UsageError(
                f"--ctas {word or text} is no number of CTAs; give some from 1 to {MOST_CTAS}, such as 4,16"
            )
    return tuple(sorted(set(map(int, words))))
