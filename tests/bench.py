"""`make bench`: the project's speed targets as ratios, each measured side by side in one run.

These are benchmarks, not tests: machines are noisy, so they print and never fail.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from collbench.measure.start import mpiexec
from collbench.measurement import Measurement
from collbench.runs.file import read

BARE = """
import statistics, time
import numpy as np
from mpi4py import MPI
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.implementations import implementations
from collbench.platforms import open_platform
from collbench.platforms.layout import Needs
from collbench.platforms.processes import Processes
from collbench.cases import Sweep
comm = MPI.COMM_WORLD
chosen = (COLLECTIVES["allreduce"],), (8,), (DATATYPES["float"],), (REDUCTIONS["sum"],)
sweep = Sweep(*chosen, comm.Get_size(), ("mpi",))
platform = open_platform(sweep, Needs(), "cpu", Processes.of_world())
prepared = implementations()["mpi"].prepare(next(sweep.cases()), platform)
send, receive = np.ones(2, np.float32), np.empty(2, np.float32)
def bare(launches):
    for _ in range(launches):
        comm.Allreduce(send, receive)
harness, loops = [], []
for _ in range(201):
    harness.append(platform.time(prepared, 200))
    comm.Barrier()
    start = time.perf_counter()
    bare(200)
    loops.append(comm.allreduce(time.perf_counter() - start, MPI.MAX) / 200)
if comm.Get_rank() == 0:
    print(statistics.median(harness) * 1e6, statistics.median(loops) * 1e6)
platform.close()
"""


def main() -> None:
    """Print every target with what was measured."""
    _startup()
    _harness()
    _rings()
    _oversubscribed()


def _startup() -> None:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "collbench", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    _line("collbench --help", f"{sorted(seconds)[2]:.3f} s", "below 0.2 s")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-u", "-m", "collbench", "sweep", "--on", "cpu", "--out", f"{folder}/run"]
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout
            while " ok" not in process.stdout.readline():
                continue
            _line("first row of a warm sweep", f"{time.perf_counter() - start:.2f} s", "below 2 s")
            process.stdout.read()
        _line("default sweep, 2 ranks", f"{time.perf_counter() - start:.1f} s", "below 60 s")


def _harness() -> None:
    command = [mpiexec(), "-n", "2", sys.executable, "-c", BARE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    harness, bare = map(float, done.stdout.split()[-2:])
    _line("mpi at 8 B through the harness", f"{harness:.2f} us, bare loop {bare:.2f} us", "at most 1 us more")


def _rings() -> None:
    """The library's time over each rung's, all in one interleaved sweep."""
    times = _sweep("--ranks", "2", "-b", "4", "-f", "4", "-e", "64M", "--budget", "2")
    rungs = sorted({name for _, name in times} - {"mpi"})
    for size in sorted({size for size, _ in times}):
        speedups = {name: times[size, "mpi"] / times[size, name] for name in rungs if (size, name) in times}
        if size <= 4096 or size >= 2**20:
            _line(f"mpi over ring-flags at {size} B, 2 ranks", f"{speedups['ring-flags']:.2f}x", "at least 1")
        if size >= 2**20:
            for name in ("two-shot", "ring-pipelined"):
                _line(f"mpi over {name} at {size} B, 2 ranks", f"{speedups[name]:.2f}x", "at least 1.5")
        best = max(speedups, key=lambda name: speedups[name])
        bound = "at least 4" if size == 64 else ""
        _line(f"mpi over the fastest rung at {size} B, 2 ranks", f"{speedups[best]:.2f}x, {best}", bound)


def _oversubscribed() -> None:
    for spin, bound in (("auto", "at most 5"), ("busy", "the first lesson")):
        times = _sweep("--ranks", "4", "-e", "8", "--spin", spin)
        ratio = times[8, "ring-flags"] / times[8, "mpi"]
        _line(f"ring-flags over mpi at 8 B, 4 ranks, --spin {spin}", f"{ratio:.2f}x", bound)


def _sweep(*options: str) -> dict[tuple[int, str], float]:
    """Medians by size and implementation."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "run")
        command = ["sweep", "--on", "cpu", "--no-plot", "--out", str(place), *options]
        subprocess.run([sys.executable, "-m", "collbench", *command], capture_output=True, check=True)
        results = read(place).results
    return {
        (result.case.nbytes, result.implementation): result.typical
        for result in results
        if isinstance(result, Measurement)
    }


def _line(what: str, value: str, bound: str) -> None:
    sys.stdout.write(f"{what:<52} {value:<36} {bound}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
