"""`python -m tools.gpu.launches_per_graph`: the time of one operation by how many of them are in a graph.

One thread launches the graph of each rank in turn, and a launch blocks once the driver's queue is full, although the
kernels in it wait for a rank whose graph is not launched yet: times grow first, then nothing comes back.  The platform
has a limit for that, and makes several replays of more: measured first with it, then without.  NCCL records
an event node for each operation that it captures unless NCCL_GRAPH_MIXING_SUPPORT=0, so `nccl` is measured with 0, with
1 and without the variable, beside `ring-events` (one graph on several streams) and `one-shot-ll` (one stream).

Every setting is a child of its own: NCCL reads its environment once, and a child that hangs is ended.  What it measured
before is a number for the page, and where it hung too.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

from collbench.algorithms import implementations
from collbench.errors import CollbenchError
from collbench.platforms.gpu import probe, timing
from tools.gpu import bounded, said, scale
from tools.gpu.checks import case
from tools.gpu.places import ON_GPU, Place, opened

VARIABLE = "NCCL_GRAPH_MIXING_SUPPORT"
UNSET = "unset"
SETTINGS = {"nccl": ("0", "1", UNSET), "ring-events": (UNSET,), "one-shot-ll": (UNSET,)}
RANKS = (2, 4)
PATIENCE = 25.0  # seconds of a child, which starts in 5
SAMPLES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.launches_per_graph", description="Operations in a graph.")
    parser.add_argument("--inside", nargs=3, metavar=("NAME", "RANKS", "SETTING"), help="what a child measures")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("measured")
    if chosen.inside:
        name, ranks, setting = chosen.inside
        try:
            return inside(name, int(ranks), setting)
        except CollbenchError as error:
            return said.wrong(f"{name}, {ranks} ranks: {error}")
    return max(map(child, works()))


def works() -> Iterator[tuple[str, str, str]]:
    """What the children measure: implementation, ranks, setting."""
    here = [way.name for way in ON_GPU]
    for ranks in dict.fromkeys(map(scale.chosen().ranks, RANKS)):
        for name, settings in SETTINGS.items():
            if name in here:
                yield from ((name, str(ranks), setting) for setting in settings)


def child(work: tuple[str, str, str]) -> int:
    """Start a child, and end it in time; a hang is a result."""
    command = [sys.executable, "-m", "tools.gpu.launches_per_graph", "--inside", *work]
    left = bounded.seconds_left()
    patience = PATIENCE if left is None else min(PATIENCE, left)
    try:
        return subprocess.run(command, timeout=max(0.0, patience), check=False).returncode
    except subprocess.TimeoutExpired:
        said.key(f"{titled(*work)}: nothing came back within {patience:.0f} s after the line above")
        return said.GOOD


def inside(name: str, ranks: int, setting: str) -> int:
    """Print a number for each count of operations in a graph, as soon as it is measured."""
    with opened(Place(1, ranks)) as platform:
        if setting == UNSET:
            os.environ.pop(VARIABLE, None)  # which opening the platform may have set
        else:
            os.environ[VARIABLE] = setting
        wanted = case(platform, nbytes=8)
        prepared = implementations()[name].prepare(wanted, platform)
        platform.checker.fill(wanted, 1)
        for where, queue in (("a sample", timing.LAUNCH_QUEUE), ("a graph", 2**30)):
            timing.LAUNCH_QUEUE = queue
            for launches in scale.chosen().launches_in_graphs:
                samples = [platform.clock.of_graph(prepared, launches) for _ in range(SAMPLES)]
                seconds = statistics.median(samples) / launches
                said.key(f"{titled(name, str(ranks), setting)}: {launches} in {where}, {seconds * 1e6:.2f} us each")
        if mismatch := platform.checker.check(wanted, 1):
            return said.wrong(f"{titled(name, str(ranks), setting)}: {mismatch}")
    return said.GOOD


def titled(name: str, ranks: str, setting: str) -> str:
    """Return `nccl, 2 ranks, NCCL_GRAPH_MIXING_SUPPORT=0`."""
    variable = f", {VARIABLE} {setting if setting == UNSET else f'= {setting}'}" if name == "nccl" else ""
    return f"{name}, {ranks} ranks{variable}"


if __name__ == "__main__":
    sys.exit(main())
