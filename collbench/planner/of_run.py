"""A setting whose curves are those of a run, with what its ranks can compute: by data sheets, or measured here."""

import os
import socket
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from collbench.analysis.machine import machine
from collbench.cases import flops_of
from collbench.errors import CollbenchError, UsageError
from collbench.measure.calibration import seconds_of_a_product
from collbench.planner.constants import Constants
from collbench.planner.job import Job
from collbench.planner.machine import Machine, machine_of, said
from collbench.planner.measured import Box, Measured
from collbench.planner.setting import Setting
from collbench.runfile.store import Run
from collbench.topology.products import GIB, Product

MATRIX = 512
PROCESS = 2.0**27  # bytes of a process without a GPU, roughly
REACHED = Constants(
    products=1.0, fused=1.0, half=0.0, fp8=1.0, grouped=1.0, unfused=1.0, memory=1.0, spread=0.2, spread_experts=0.3
)
"""Of rates that were measured, and so are what is reached."""


def setting_of(run: Run, job: Callable[[str], Job], options: Mapping[str, Any], loader: float) -> Setting:
    """Curves of the run, measured or fitted; UsageError where it does not say what computes, and no option does."""
    try:
        system = machine(run, options["machine"])
    except CollbenchError as error:
        return _of_ranks(run, job, options, loader, str(error))
    there = machine_of(system)
    curves = Measured(run, system, str(run.path), options["fitted"])
    return Setting(job(there.stack), curves, said(there, options["tflops"], options["memory"]), loader)


def _of_ranks(run: Run, job: Callable[[str], Job], options: Mapping[str, Any], loader: float, why_not: str) -> Setting:
    told = run.header.topology
    if told.platform != "cpu" or not told.ranks:
        raise UsageError(why_not)
    box = Box(told.name, told.ranks)
    product = _product(run, options, told.ranks)
    source = "as said" if options["tflops"] else "measured here"
    there = Machine(
        told.name, told.ranks, product, REACHED, pcie_rate=1e10, process=PROCESS, unit="ranks",
        note=f"a rank computes {product.flops / 1e9:.3g} GFLOP/s, {source}",
    )  # fmt: skip
    return Setting(job("modern"), Measured(run, box, str(run.path), options["fitted"]), there, loader)


def _product(run: Run, options: Mapping[str, Any], ranks: int) -> Product:
    """What a rank of a CPU can do: as it is said, or measured here if the run was measured here."""
    here = run.header.environment.host in ("", socket.gethostname())
    if not here and not (options["tflops"] and options["memory"]):
        raise UsageError(
            f"{run.path} was measured on another machine ({run.header.environment.host}), whose ranks' computing is "
            "not known; give --tflops and --memory of a rank"
        )
    flops = options["tflops"] * 1e12 if options["tflops"] else flops_of(1, MATRIX) / seconds_of_a_product("cpu", MATRIX)
    memory = options["memory"] * GIB if options["memory"] else _memory() / ranks
    return Product(flops, flops, memory, _copied())


def _memory() -> float:
    """Bytes of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _copied() -> float:
    """Bytes/s that a core reads and writes when it copies far more than its caches hold: the best of a few."""
    source = np.ones(2**23)
    target = np.empty_like(source)
    times = []
    for _ in range(4):
        start = perf_counter()
        np.copyto(target, source)
        times.append(perf_counter() - start)
    return 2 * source.nbytes / min(times)
