"""`python -m tools.gpu.worlds`: what a launch pays for the bytes that tell a kernel of its ranks.

They are parameters, so every launch carries them.  The same kernel with room for 8 ranks and for 128, at 8 B, in turn;
were the difference large, they would have to lie in the device's memory where there are many ranks.
"""

import statistics
import sys
from unittest import mock

from collbench.algorithms import implementations
from collbench.cases import Sampling
from collbench.errors import CollbenchError
from collbench.measure.sampling import calibrate
from collbench.platforms.gpu import launch, probe
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.interface import Prepared
from collbench.platforms.layout import MAX_RANKS, world_type
from tools.gpu import said, scale
from tools.gpu.checks import case
from tools.gpu.places import Place, opened

ROUNDS = 51
ROOMS = (8, MAX_RANKS)


def main() -> int:
    if not probe.available():
        return said.no_gpu("measured")
    try:
        for graph in (True, False):
            with opened(Place(1, scale.chosen().ranks(4), graph)) as platform:
                short, long = times(platform, scale.chosen().iters or ROUNDS)
            sizes = [world_type(room).itemsize for room in ROOMS]
            how = "in a graph" if graph else "launched one by one"
            said.key(
                f"one-shot-ll at 8 B {how}: {short * 1e6:.2f} us with {sizes[0]} B of World, "
                f"{long * 1e6:.2f} us with {sizes[1]} B"
            )
    except CollbenchError as error:
        return said.wrong(str(error))
    return said.GOOD


def times(platform: gpu.GpuPlatform, rounds: int) -> list[float]:
    """Seconds of an operation with room for so many ranks as ROOMS says: medians over rounds."""
    ways = [prepared(platform, room) for room in ROOMS]
    platform.checker.fill(case(platform, nbytes=8), 1)
    launches = calibrate(ways[0], platform, Sampling())
    samples: list[list[float]] = [[] for _ in ROOMS]
    for _ in range(rounds):
        for way, own in zip(ways, samples, strict=True):
            own.append(platform.clock.time(way, launches))
    if mismatch := platform.checker.check(case(platform, nbytes=8), 1):
        raise CollbenchError(f"{mismatch}")
    return [statistics.median(own) for own in samples]


def prepared(platform: gpu.GpuPlatform, room: int) -> Prepared:
    """A case of one kernel, compiled and launched with a World of that length."""
    with mock.patch.object(launch, "FEWEST", room):
        return implementations()["one-shot-ll"].prepare(case(platform, nbytes=8), platform)


if __name__ == "__main__":
    sys.exit(main())
