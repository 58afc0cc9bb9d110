"""`python -m tools.gpu.bench`: the speed targets on one GPU, as shares of their bounds.

Ranks that share a GPU share its memory bandwidth B, measured by a copy (bytes read and written).  An all-reduce of S
bytes reads every rank's input and writes every rank's result, 2 n S bytes in all, so algbw is at most B / (2 n).  The
traffic of FIFOs stays in the L2 cache, which has a bandwidth of its own; so each implementation has a bound.  These are
benchmarks, not tests: a missed target is printed, and only wrong results and unjust refusals cause exit status 1
(said.py).
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace

from collbench.algorithms import implementations
from collbench.cases import PACK, Case, Sampling
from collbench.errors import CollbenchError
from collbench.measure.sampling import measure
from collbench.platforms.cost import Hardware
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.gpu import probe
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import Region
from collbench.results import Measurement, Result, Skipped
from collbench.units import format_rate, format_size
from tools.gpu import refusals, said
from tools.gpu.checks import case
from tools.gpu.places import ON_GPU, SCALE, Place, nccl_settings, opened

RANKS = 4
TARGETS = {"two-shot": 0.95, "ring-pipelined": 0.67}  # the least share of B / (2 n): 250 GB/s for the ring on an H100
LATENCIES = {"one-shot-ll": 2.3e-6}  # the most seconds of an operation in a graph, at the small size


def main() -> int:
    if not probe.available():
        return said.no_gpu("measured")
    large, small = SCALE.bench
    failures = 0
    try:
        with opened(Place(1, RANKS), largest=large) as platform:
            print(nccl_settings(platform), flush=True)
            for line in targets(platform, large, small, Sampling(budget=SCALE.budget, iters=SCALE.iters)):
                failures += line.startswith(said.WRONG)
                print(line if line.startswith(said.WRONG) else f"{said.KEY}{line}", flush=True)
    except CollbenchError as error:
        return said.wrong(str(error))
    return said.BAD if failures else said.GOOD


def targets(platform: gpu.GpuPlatform, large: int, small: int, sampling: Sampling) -> Iterator[str]:
    """Yield a line for each implementation at each size; all implementations of a size are sampled in turn."""
    bandwidth, cache = copy_bandwidth(platform, large), cache_bandwidth(platform)
    yield f"copy within the GPU, read and written: {format_rate(bandwidth)} GB/s; within its cache {format_rate(cache)}"
    here = refusals.here_of(platform)
    ranks = platform.ranks
    measured = replace(platform.hardware, memory=bandwidth / ranks, cache=cache / ranks)
    for result in sampled(platform, case(platform, nbytes=large), sampling):
        yield _line(result, here) or f"{_of(result)}: algbw {format_rate(result.algbw)} GB/s{_share(result, measured)}"
    for result in sampled(platform, case(platform, nbytes=small), sampling):
        yield _line(result, here) or f"{_of(result)}: {result.typical * 1e6:.2f} us{_latency(result)}"


def _line(result: Result, here: refusals.Here) -> str:
    """Return the text for a result without a time; empty for one with a time."""
    if isinstance(result, Measurement):
        return f"{said.WRONG}{_of(result)}: {result.mismatch}" if result.mismatch else ""
    if isinstance(result, Skipped) and not refusals.unjust(result.implementation, result.reason, here):
        return f"{_of(result)}: {said.SKIP}{result.reason}"
    return f"{said.WRONG}{_of(result)}: {getattr(result, 'reason', result)}"


def _of(result: Result) -> str:
    return f"{result.implementation} at {format_size(result.case.nbytes)}"


def _share(result: Measurement, hardware: Hardware) -> str:
    """Return the share of the memory's bound and of the implementation's bound, and whether the target is met."""
    bound, cost = hardware.memory / 2, implementations()[result.implementation].cost
    share, least = result.algbw / bound, TARGETS.get(result.implementation)
    own = f", {hardware.floor(cost(result.case), result.case.nbytes) / result.typical:.0%} of its own" if cost else ""
    verdict = f", at least {least:.0%}: {_met(share >= least)}" if least else ""
    return f", {share:.0%} of {format_rate(bound)} GB/s{own}{verdict}"


def _latency(result: Measurement) -> str:
    most = LATENCIES.get(result.implementation)
    return f", at most {most * 1e6:.1f} us: {_met(result.typical <= most)}" if most else ""


def _met(holds: bool) -> str:
    return "met" if holds else "MISSED"


def copy_bandwidth(platform: Platform, nbytes: int) -> float:
    """Return the bytes per second that a copy from a rank's send to its receive buffer reads and writes."""
    return 2 * nbytes / copied(platform, nbytes)


def cache_bandwidth(platform: gpu.GpuPlatform) -> float:
    """Return the same for copies in the last-level cache; two lengths cancel the time of the launch."""
    half = platform.cache * platform.launcher.places.most_sharing // 8 // PACK * PACK if platform.cache else 0
    more = copied(platform, 2 * half) - copied(platform, half) if half else 0.0
    return 2 * half / more if more > 0 else math.inf


def copied(platform: Platform, nbytes: int) -> float:
    """Return the smallest of several times of a copy, in seconds."""

    def launch(launches: int) -> None:
        for _ in range(launches):
            platform.launcher.copy(
                0, platform.memory.address(Region.RECEIVE, 0), platform.memory.address(Region.SEND, 0), nbytes
            )

    prepared = Prepared(launch)
    return min(platform.clock.time(prepared, 10) for _ in range(7))


def sampled(platform: Platform, one: Case, sampling: Sampling) -> Iterator[Result]:
    """Return the results of a case, with all implementations in turn, except for those that lack the collective."""
    yield from measure(one, [way for way in ON_GPU if one.collective.name in way.collectives], platform, sampling)


if __name__ == "__main__":
    sys.exit(main())
