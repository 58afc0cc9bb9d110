"""Curves of a run instead of a model: measured points, or the fit to them, brought to other groups by closed forms.

What a run did not measure follows from what it did: a ring's all-reduce is a reduce-scatter and an all-gather, which
take half of it each; on another number of ranks the bytes of each rank scale as nccl-tests counts them (bus bandwidth
stays), and what waits scales with the number of steps.  Such curves say so, and their band is wider.
"""

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

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
from collbench.results import Observed, by_key
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


class Points(NamedTuple):
    """A measured curve: median seconds and band at sizes in bytes."""

    collective: str
    ranks: int
    curve: TabulatedCurve


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
        points, share = _nearest(self._curves, collective, group.ranks)
        meaning = find_collective(points.collective)
        bytes_of = meaning.bus_factor(group.ranks) / meaning.bus_factor(points.ranks)
        least = min(points.curve.points[TYPICAL])
        waits = least * max(0, (group.ranks - 1) / (points.ranks - 1) - bytes_of)
        further = 1.0 if (points.collective, points.ranks) == (collective, group.ranks) else FURTHER
        wider = {TYPICAL: 1.0, LOW: 1 / further, HIGH: further}
        times = {
            edge: share * wider[edge] * np.maximum.accumulate(seconds * bytes_of + waits)
            for edge, seconds in points.curve.points.items()
        }
        return TabulatedCurve(points.curve.sizes, times)


def _nearest(known: Sequence[Points], collective: str, ranks: int) -> tuple[Points, float]:
    """Return the measured curve to take, and the share of its time."""
    for name, share in ((collective, 1.0), *SUBSTITUTES.get(collective, ())):
        there = [points for points in known if points.collective == name]
        if there:
            return min(there, key=lambda points: abs(np.log(points.ranks / ranks))), share
    names = ", ".join(dict.fromkeys(points.collective for points in known))
    raise UsageError(f"the run has {names} only, from which no {collective} follows; measure it, or allreduce")


def _points(rows: Sequence[Observed], fitted: bool) -> Iterator[Points]:
    """Yield every curve of LEAST sizes or more: at each the fastest library, or implementation where there is none."""
    collectives = [row for row in rows if row.case.ranks > 1 and not row.case.step and not row.case.job]
    for (name, ranks), own in by_key(collectives, lambda row: (row.case.collective.name, row.case.ranks)).items():
        libraries = [row for row in own if (way := find(row.implementation)) and way.library]
        by_size = by_key(libraries or own, lambda row: row.case.nbytes)
        best = [min(by_size[size], key=lambda row: row.typical) for size in sorted(by_size)]
        if len(best) >= LEAST:
            sizes, *columns = _fitted(best) if fitted else _measured(best)
            rising = map(np.maximum.accumulate, columns)
            yield Points(name, ranks, TabulatedCurve(sizes, dict(zip((TYPICAL, LOW, HIGH), rising, strict=True))))


def _measured(rows: Sequence[Observed]) -> tuple[Array, ...]:
    """Return sizes, times and their band as they were measured."""
    low, high = (np.array([stats.percentile(row.times, share) for row in rows]) for share in (5, 95))
    sizes, typical = np.array([(float(row.case.nbytes), row.typical) for row in rows]).T
    return sizes, typical, low, high


def _fitted(rows: Sequence[Observed]) -> tuple[Array, ...]:
    """Return the same by the fit, also at powers of two between the smallest and the largest size."""
    case, sizes = rows[0].case, [row.case.nbytes for row in rows]
    try:
        known = fit(sizes, [row.times for row in rows])
    except Unfit as error:
        what = f"{case.collective.name} of {case.ranks} ranks cannot be fitted: {error}"
        raise UsageError(f"{what}; take the measured curve") from None
    there: Array = np.unique([*sizes, *(2.0**power for power in range(45) if sizes[0] < 2**power < sizes[-1])])
    return there, *np.array([known.estimate(float(size)) for size in there]).T


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
        raise UsageError(re.sub(r"--on (\S+)( --nodes \d+)?", r"--machine \1", why_not))
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
