"""Curves of a run instead of a model: measured points, or the fit to them, brought to other groups by closed forms.

What a run did not measure follows from what it did: a ring's all-reduce is a reduce-scatter and an all-gather, which
take half of it each; on another number of ranks the bytes of each rank scale as nccl-tests counts them (bus bandwidth
stays), and what waits scales with the number of steps.  Such curves say so, and their band is wider.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

import numpy as np

from collbench import stats
from collbench.algorithms import find
from collbench.analysis.curve_fit import Unfit, fit
from collbench.analysis.fit import measured
from collbench.analysis.machine import machine
from collbench.cases import flops_of
from collbench.collectives import find_collective
from collbench.errors import CollbenchError, UsageError
from collbench.measure.calibration import seconds_of_a_product
from collbench.planner.curves import HIGH, LOW, TYPICAL, Array, Curve, Group, Place, TabulatedCurve
from collbench.planner.job import Job
from collbench.planner.setting import Constants, Machine, Setting, machine_of, with_user_rates
from collbench.results import Observed
from collbench.runfile.store import Run
from collbench.topology.products import GIB, Product

SUBSTITUTES: Mapping[str, tuple[tuple[str, float], ...]] = {
    "reducescatter": (("allgather", 1.0), ("allreduce", 0.5)),
    "allgather": (("reducescatter", 1.0), ("allreduce", 0.5)),
    "allreduce": (("reducescatter", 2.0), ("allgather", 2.0)),
    "alltoall": (("allgather", 1.0), ("reducescatter", 1.0), ("allreduce", 0.5)),
    "sendrecv": (("allgather", 1.0), ("reducescatter", 1.0), ("allreduce", 0.5)),
}
"""What stands for a collective that was not measured, and the share of its time that it stands for, best first."""
FURTHER = 1.25
"""By how much a band widens, either way, where a curve stands for another one or for another number of ranks."""
LEAST = 4  # sizes of a curve


@dataclass(frozen=True)
class Points:
    """A measured curve: median seconds and band at sizes in bytes."""

    collective: str
    ranks: int
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class RunCurves:
    """Curves of a run, by the fastest library in it, or the fastest implementation where there is no library."""

    def __init__(self, run: Run, system: Place, fitted: bool = False) -> None:
        self.system = system
        self.origin = f"{'fitted to' if fitted else 'measured in'} {run.path}"
        self._curves = tuple(_points(measured([run]), fitted))
        if not self._curves:
            raise UsageError(
                f"{run.path} has no curve of {LEAST} sizes or more; measure one with `collbench sweep --op allreduce`"
            )

    def curve(self, collective: str, group: Group) -> Curve:
        """Return the curve of the measured number of ranks that is nearest, scaled to the group."""
        return _scaled(self._curves, collective, group.ranks)


@lru_cache(maxsize=1024)
def _scaled(known: tuple[Points, ...], collective: str, ranks: int) -> Curve:
    points, share = _nearest(known, collective, ranks)
    meaning = find_collective(points.collective)
    bytes_of = meaning.bus_factor(ranks) / meaning.bus_factor(points.ranks)
    waits = min(points.seconds) * max(0, (ranks - 1) / (points.ranks - 1) - bytes_of)
    same = points.collective == collective and points.ranks == ranks
    further = 1.0 if same else FURTHER
    edges = ((TYPICAL, points.seconds, 1.0), (LOW, points.low, 1 / further), (HIGH, points.high, further))
    times = {
        edge: share * wider * np.maximum.accumulate(np.array(values) * bytes_of + waits)
        for edge, values, wider in edges
    }
    return TabulatedCurve(np.array(points.sizes), times)


def _nearest(known: Sequence[Points], collective: str, ranks: int) -> tuple[Points, float]:
    """Return the measured curve to take, and the share of its time."""
    for name, share in ((collective, 1.0), *SUBSTITUTES.get(collective, ())):
        there = [points for points in known if points.collective == name]
        if there:
            return min(there, key=lambda points: abs(np.log(points.ranks / ranks))), share
    names = ", ".join(dict.fromkeys(points.collective for points in known))
    raise UsageError(f"the run has {names} only, from which no {collective} follows; measure it, or allreduce")


def _points(rows: Sequence[Observed], fitted: bool) -> list[Points]:
    """Return every curve, of the implementation that is chosen for its collective."""
    kinds: dict[tuple[str, int], list[Observed]] = {}
    for row in rows:
        if row.case.ranks > 1 and not row.case.step and not row.case.job:
            kinds.setdefault((row.case.collective.name, row.case.ranks), []).append(row)
    curves = [_chosen(collective, ranks, own, fitted) for (collective, ranks), own in kinds.items()]
    return [curve for curve in curves if curve]


def _chosen(collective: str, ranks: int, rows: Sequence[Observed], fitted: bool) -> Points | None:
    libraries = [row for row in rows if (way := find(row.implementation)) and way.library]
    best: dict[int, Observed] = {}
    for row in libraries or rows:
        known = best.get(row.case.nbytes)
        if not known or row.typical < known.typical:
            best[row.case.nbytes] = row
    if len(best) < LEAST:
        return None
    sizes = sorted(best)
    if fitted:
        return _fitted(collective, ranks, sizes, [best[size].times for size in sizes])
    rows = [best[size] for size in sizes]
    typical = [row.typical for row in rows]
    low, high = ([stats.percentile(row.times, share) for row in rows] for share in (5, 95))
    columns = (tuple(np.maximum.accumulate(column).tolist()) for column in (typical, low, high))
    return Points(collective, ranks, tuple(map(float, sizes)), *columns)


def _fitted(collective: str, ranks: int, sizes: Sequence[int], samples: Sequence[Sequence[float]]) -> Points:
    """Return the fit at the measured sizes, and at powers of two between the smallest and the largest."""
    try:
        fitted_curve = fit(sizes, samples)
    except Unfit as error:
        raise UsageError(f"{collective} of {ranks} ranks cannot be fitted: {error}; take the measured curve") from None
    there: Array = np.unique([*sizes, *(2.0**power for power in range(45) if sizes[0] < 2**power < sizes[-1])])
    typical = np.maximum.accumulate(fitted_curve.predict(there))
    bands = np.array([fitted_curve.prediction_interval(float(size)) for size in there]).T
    low, high = (np.maximum.accumulate(edge) for edge in bands)
    return Points(collective, ranks, *(tuple(column.tolist()) for column in (there, typical, low, high)))


MATRIX = 512
PROCESS = 2.0**27  # bytes of a process without a GPU, roughly
REACHED = Constants(spread=0.2, spread_experts=0.3)
"""Of rates that were measured, and so are what is reached."""


@dataclass(frozen=True)
class Given:
    """What a user says of the ranks of a run; None where nothing is said."""

    machine: str | None = None  # name or file of the system that the run was measured on
    tflops: float | None = None  # of a rank
    memory: float | None = None  # GiB of a rank
    fitted: bool = False  # whether to take the fit instead of the points


def setting_of(run: Run, job: Callable[[str], Job], options: Given, loader: float) -> Setting:
    """Return a setting with curves of the run, measured or fitted.

    UsageError where neither the run nor an option says what its ranks can compute.
    """
    try:
        system = machine(run, options.machine)
    except CollbenchError as error:
        return _of_ranks(run, job, options, loader, str(error))
    there = machine_of(system)
    curves = RunCurves(run, system, options.fitted)
    return Setting(job(there.stack), curves, with_user_rates(there, options.tflops, options.memory), loader)


def _of_ranks(run: Run, job: Callable[[str], Job], options: Given, loader: float, why_not: str) -> Setting:
    """Return the setting of ranks on a CPU: they compute as the options say, or as measured here if the run was."""
    topology, host = run.header.topology, run.header.environment.host
    if topology.platform != "cpu" or not topology.ranks:
        raise UsageError(why_not)
    if host not in ("", socket.gethostname()) and not (options.tflops and options.memory):
        raise UsageError(
            f"{run.path} was measured on another machine ({host}), whose ranks' computing is not known; give --tflops "
            "and --memory of a rank"
        )
    flops = options.tflops * 1e12 if options.tflops else flops_of(1, MATRIX) / seconds_of_a_product("cpu", MATRIX)
    whole = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    memory = options.memory * GIB if options.memory else whole / topology.ranks
    source = "as given" if options.tflops else "measured here"
    there = Machine(
        topology.name, topology.ranks, Product(flops, flops, memory, _copied()), REACHED, pcie_rate=1e10,
        process=PROCESS, unit="rank", note=f"a rank computes {flops / 1e9:.3g} GFLOP/s, {source}",
    )  # fmt: skip
    return Setting(job("modern"), RunCurves(run, there, options.fitted), there, loader)


def _copied() -> float:
    """Return the bytes/s that a core reads and writes when it copies more than its caches hold: best of a few."""
    source = np.ones(2**23)
    target = np.empty_like(source)
    times = []
    for _ in range(4):
        start = perf_counter()
        np.copyto(target, source)
        times.append(perf_counter() - start)
    return 2 * source.nbytes / min(times)
