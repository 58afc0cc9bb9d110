"""`make bench`: the project's speed targets as ratios, each measured in one interleaved run.

These are benchmarks, not tests: machines are noisy, so they print and never fail.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from collbench.platforms.compiler import compiler
from collbench.platforms.cpu.mpi_libraries import own
from collbench.results import Measurement
from collbench.runfile.store import read

C_LOOP = Path(__file__).with_name("c_loop.cpp")
OPENED = """
import ctypes, statistics, sys, time
from dataclasses import replace
import numpy as np
from collbench.algorithms import implementations
from collbench.cases import Sweep
from collbench.collectives import COLLECTIVES
from collbench.commands.step.measured import take_series
from collbench.commands.step.rows import Series
from collbench.commands.step.schedules import SCHEDULES, Parts
from collbench.commands.step.work import Step
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.measure.clocks import Clocks
from collbench.platforms import open_platform
from collbench.platforms.interface import Chain
from collbench.platforms.layout import Needs, buffers
from collbench.platforms.mpi_processes import MpiProcesses
world = MpiProcesses.of_world()
def opened(nbytes, **works):
    types = (DATATYPES["float"],), (REDUCTIONS["sum"],)
    sweep = Sweep((COLLECTIVES["allreduce"],), (nbytes,), *types, world.size, ("mpi",), **works)
    platform, (case,) = open_platform(sweep, Needs(), "cpu", world), sweep.cases()
    return platform, case, implementations()["mpi"].prepare(replace(case, work=None), platform)
"""
IN_TURNS = """
times = {name: [] for name in ways}
for turn in range(201):
    for name in list(ways)[:: 1 if turn % 2 else -1]:
        times[name].append(ways[name]())
if world.leader:
    print(*(statistics.median(times[name]) * 1e6 for name in ways))
platform.close()
"""
BESIDE = f"""{OPENED}
platform, case, operation = opened(8)
loop = ctypes.CDLL(sys.argv[1]).loop
loop.restype, loop.argtypes = ctypes.c_double, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
places = buffers(platform.memory, case, world.rank)
ways = {{"mpi": lambda: platform.clock.time(operation, 500), "C": lambda: loop(*places, 2, 500)}}
{IN_TURNS}"""
STEPS = f"""{OPENED}
products, size = int(sys.argv[1]), int(sys.argv[2])
steps = 50 if products < 10 else 5
platform, case, operation = opened(4096, works=(Step(products, size),))
parts = Parts(case, platform, platform.compute.products(size), [operation])
harness = SCHEDULES["sequential"].prepare(parts)
chain = Chain(size, world.rank)
factor, (last, result) = chain.factor, (chain.start, np.empty_like(chain.start))

def bare():
    global last, result
    platform.launcher.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        for _ in range(products):
            np.matmul(factor, last, out=result)
            last, result = result, last
        operation.launch(1)
    return max(world.exchange((time.perf_counter() - start) / steps))

clocks = Clocks(world)
clocks.read()
measured = lambda: Series(*clocks.moments(take_series(parts, harness, range(steps)).taken)).seconds
ways = {{"bare": bare, "steps": measured}}
{IN_TURNS}"""


def main() -> None:
    """Print every target with its measured value."""
    _startup()
    _harness()
    _steps()
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
    """Compare the library's row with a C program's loop over the same buffers in the same ranks, in turns."""
    library, include = own(), Path(sys.prefix, "include")
    if not (include / "mpi.h").exists():
        _line("mpi at 8 B against a C loop", "not compared: this Python has no mpi.h", "0.95 to 1.05")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "c_loop.so")
        file = Path(sys.prefix, "lib", library.kind.files[0])
        built = [*compiler(), "-O3", "-shared", "-fPIC", f"-I{include}", str(C_LOOP), "-o", str(program), str(file)]
        subprocess.run(built, check=True)
        command = [*library.command(2), sys.executable, "-c", BESIDE, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    row, loop = map(float, done.stdout.split()[-2:])
    _line("mpi at 8 B over a C loop", f"{row / loop:.3f} ({row:.3f} us, {loop:.3f} us)", "0.95 to 1.05")


def _steps() -> None:
    """Compare measured steps with a bare loop in the same ranks, in turns."""
    for products, size in ((2, 64), (20, 256)):
        script = [sys.executable, "-c", STEPS, str(products), str(size)]
        done = subprocess.run([*own().command(2), *script], capture_output=True, text=True, check=True)
        bare, steps = map(float, done.stdout.split())
        value = f"{bare:.1f} us bare, {steps - bare:+.2f} us, {steps / bare - 1:+.2%}"
        _line(f"a step of {products} products of {size} x {size}", value, "1 us or 1 %")


def _rings() -> None:
    """Compare the library with each rung, in one interleaved sweep."""
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
    print(f"{what:<52} {value:<36} {bound}", flush=True)


if __name__ == "__main__":
    main()
