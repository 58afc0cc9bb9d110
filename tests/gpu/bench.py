# ruff: noqa: T201 - a program of its own, which prints
"""`python -m tests.gpu.bench` from a checkout with a GPU: the speed targets on one GPU, as shares of their bounds.

Ranks that share a GPU share its memory's bandwidth B, which a copy measures (bytes read and written).  An all-reduce
must at least read every rank's input and write every rank's result, 2 n S bytes; a ring whose FIFOs go through memory
moves 2 (3 n - 2) S.  Benchmarks, not tests: they print and never fail.
"""

import sys
from collections.abc import Iterator

from collbench.errors import CollbenchError
from collbench.implementations import implementations
from collbench.measurement import Measurement
from collbench.platforms import Platform, Prepared, Region
from collbench.runner import measure
from collbench.sweep import Case, Sampling
from collbench.units import format_rate, format_size
from tests.gpu.checks import Place, case, opened

RANKS = 4
LARGE, SMALL = 256 * 2**20, 4096  # bytes
TRAFFIC = {"two-shot": lambda ranks: 2 * ranks, "ring-pipelined": lambda ranks: 2 * (3 * ranks - 2)}  # of memory, per S
TARGETS = {"two-shot": 0.8, "ring-pipelined": 0.7}
LATENCY = 8e-6  # seconds, of one-shot-ll at SMALL in a graph


def main() -> int:
    try:
        with opened(Place(1, RANKS), largest=LARGE) as platform:
            for line in targets(platform, LARGE, SMALL, Sampling(budget=5.0)):
                print(line, flush=True)
    except CollbenchError as error:
        print(f"collbench: error: {error}", file=sys.stderr)
        return 2
    return 0


def targets(platform: Platform, large: int, small: int, sampling: Sampling) -> Iterator[str]:
    """A line for each target; all implementations of a size are sampled in turn."""
    bandwidth = copy_bandwidth(platform, large)
    yield f"copy within the GPU, read and written: {format_rate(bandwidth)} GB/s"
    for result in sampled(platform, case(platform, nbytes=large), sampling):
        value = f"algbw {format_rate(result.algbw)} GB/s"
        yield f"{result.implementation} at {format_size(large)}: {value}{_share(result, bandwidth)}"
    for result in sampled(platform, case(platform, nbytes=small), sampling):
        bound = f", at most {LATENCY * 1e6:.0f} us" if result.implementation == "one-shot-ll" else ""
        yield f"{result.implementation} at {format_size(small)}: {result.typical * 1e6:.2f} us{bound}"


def _share(result: Measurement, bandwidth: float) -> str:
    """Of what the memory allows, where there is a target."""
    name = result.implementation
    if name not in TRAFFIC:
        return ""
    bound = bandwidth / TRAFFIC[name](result.case.ranks)
    return f", {result.algbw / bound:.0%} of {format_rate(bound)} GB/s, at least {TARGETS[name]:.0%}"


def copy_bandwidth(platform: Platform, nbytes: int) -> float:
    """Bytes per second that a copy from a rank's send to its receive buffer reads and writes."""

    def launch(launches: int) -> None:
        for _ in range(launches):
            platform.copy(0, platform.address(Region.RECEIVE, 0), platform.address(Region.SEND, 0), nbytes)

    prepared = Prepared(launch)
    return 2 * nbytes / min(platform.time(prepared, 10) for _ in range(7))


def sampled(platform: Platform, each: Case, sampling: Sampling) -> Iterator[Measurement]:
    """What was measured of a case, all that can carry it out taking turns."""
    chosen = [way for way in implementations().values() if "gpu" in way.platforms]
    for result in measure(each, chosen, platform, sampling):
        if isinstance(result, Measurement) and result.mismatch is None:
            yield result
        elif isinstance(result, Measurement):
            print(f"{result.implementation}: WRONG: {result.mismatch}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
