"""`python -m tools.gpu.compile_all`: fill CuPy's kernel cache for the checks and sweeps, on all cores.

The key is a hash of architecture, options, source and version of NVRTC, and a cubin gets its name when it is complete
(cupy/cuda/compiler.py and _compiler_cache.py of 14.2).  So several processes can fill one cache, and a later process
with the same case on the same kind of GPU finds the kernel there.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path

from collbench.algorithms import implementations
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import CollbenchError, Unsupported
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.gpu import probe
from tools.gpu import refusals, said
from tools.gpu.checks import KINDS, ODD, case
from tools.gpu.places import ON_GPU, SCALE, Place, opened


@dataclass(frozen=True)
class Work:
    """The kernels of one implementation for one kind of element."""

    implementation: str
    collective: str = "allreduce"
    dtype: str = "float"
    redop: str = "sum"
    traced: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.compile_all", description="Compile every kernel, on all cores.")
    parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("compiled")
    works, start = list(wanted()), time.monotonic()
    processes = min(len(works), os.cpu_count() or 1, SCALE.compilers)
    failures: list[str] = []
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for number, done in enumerate(as_completed([pool.submit(carry_out, work) for work in works]), 1):
            failures += filter(None, [done.result()])
            if number % 25 == 0:
                print(f"  {number} of {len(works)} after {time.monotonic() - start:.0f} s", flush=True)
    said.key(f"{len(works)} sets of kernels by {processes} processes in {time.monotonic() - start:.0f} s{_kept()}")
    return said.wrong(failures[0]) if failures else said.GOOD


def wanted() -> Iterator[Work]:
    """Yield the works by kind, so that the first of a kind compiles the kernels that all share."""
    ladder = [way for way in ON_GPU if not way.library]
    for rung in ladder:
        yield from (Work(rung.name, dtype=dtype.name, redop=redop.name) for dtype, redop in KINDS)
    for rung in ladder:
        yield from (Work(rung.name, collective) for collective in rung.collectives if collective != "allreduce")
        yield Work(rung.name, traced=True)
    yield from (Work("", collective) for collective in COLLECTIVES)  # inputs and checks of libraries


def carry_out(work: Work) -> str:
    """Compile a work; return an error or an unjust refusal, or an empty string."""
    try:
        platform = _platform()
        wanted = case(platform, work.collective, dtype=DATATYPES[work.dtype], redop=REDUCTIONS[work.redop])
        try:
            _prepare(platform, work, wanted)
        except Unsupported as refusal:
            return refusals.unjust(work.implementation, str(refusal), refusals.here_of(platform))
    except CollbenchError as error:
        return f"{work}: {error}"
    return ""


def _prepare(platform: gpu.GpuPlatform, work: Work, wanted: Case) -> None:
    """Prepare inputs and checks, the operation of the case, and the operation of the stress check."""
    way = implementations().get(work.implementation)
    if way:
        way.refuse(wanted)
    wire = way.wire if way else None
    platform.checker.fill(wanted, 1, wire)
    platform.checker.check(wanted, 1, wire)  # compiles only: nothing was computed
    if way:
        prepared = way.prepare(wanted, platform.traced() if work.traced else platform)
        if not (work.traced or prepared.host_driven):
            way.prepare(wanted, platform.with_delays(1.0))


_open = ExitStack()
Finalize(None, _open.close, exitpriority=1)  # a process of a pool skips the functions of `atexit`


@cache
def _platform() -> gpu.GpuPlatform:
    """Return the platform of this process, with little memory; CuPy needs a context to compile."""
    return _open.enter_context(opened(Place(1, 2), largest=ODD, run=False))


def _kept() -> str:
    folder = os.environ.get("CUPY_CACHE_DIR")
    return f"; {len(list(Path(folder).glob('*.cubin')))} cubins in {folder}" if folder else ""


if __name__ == "__main__":
    sys.exit(main())
