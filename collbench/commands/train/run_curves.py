"""Curves of a run instead of a model: measured points, brought to other groups by closed forms.

What a run did not measure follows from what it did: a ring's all-reduce is a reduce-scatter and an all-gather, which
take half of it each; on another number of ranks the bytes of each rank scale as nccl-tests counts them (bus bandwidth
stays), and what waits scales with the number of steps.  Such curves say so, and their band is wider.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from collbench import stats
from collbench.algorithms import find
from collbench.analysis.fit import measured
from collbench.analysis.machine import machine
from collbench.collectives import find_collective
from collbench.commands.train.curves import HIGH, LOW, TYPICAL, Curve, GpuGroup, TabulatedCurve
from collbench.errors import CollbenchError, UsageError
from collbench.results import Observed, by_key
from collbench.runfile.store import Run
from collbench.topology.system import System

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

    def __init__(self, run: Run, system: System) -> None:
        self.system = system
        self.origin = f"measured in {run.path}"
        self._curves = tuple(_points(measured([run])))
        if not self._curves:
            raise UsageError(
                f"{run.path} has no curve of {LEAST} sizes or more; measure one with `collbench sweep --op allreduce`"
            )

    def curve(self, collective: str, group: GpuGroup) -> Curve:
        """Return the curve of the measured number of ranks that is nearest, scaled to the group."""
        points, share = _nearest(self._curves, collective, group.ranks)
        meaning = find_collective(points.collective)
        bytes_of = meaning.bus_factor(group.ranks) / meaning.bus_factor(points.ranks)
        least = min(points.curve.points[TYPICAL])
        # The shortest time is all waiting: it grows with the steps of a ring, the rest with the bytes.
        waits = least * max(0, (group.ranks - 1) / (points.ranks - 1) - bytes_of)
        further = 1.0 if (points.collective, points.ranks) == (collective, group.ranks) else FURTHER
        wider = {TYPICAL: 1.0, LOW: 1 / further, HIGH: further}
        times = {}
        for edge, seconds in points.curve.points.items():
            times[edge] = share * wider[edge] * np.maximum.accumulate(seconds * bytes_of + waits)
        return TabulatedCurve(points.curve.sizes, times)


def _nearest(curves: Sequence[Points], collective: str, ranks: int) -> tuple[Points, float]:
    """Return the measured curve to take, and the share of its time."""
    for name, share in ((collective, 1.0), *SUBSTITUTES.get(collective, ())):
        alike = [points for points in curves if points.collective == name]
        if alike:
            return min(alike, key=lambda points: abs(np.log(points.ranks / ranks))), share
    names = ", ".join(dict.fromkeys(points.collective for points in curves))
    raise UsageError(f"the run has {names} only, from which no {collective} follows; measure it, or allreduce")


def _points(rows: Sequence[Observed]) -> Iterator[Points]:
    """Yield every curve of LEAST sizes or more: at each the fastest library, or implementation where there is none."""
    collectives = [row for row in rows if row.case.ranks > 1 and not row.case.work]
    kinds = by_key(collectives, lambda row: (row.case.collective.name, row.case.ranks))
    for (name, ranks), rows_of_kind in kinds.items():
        libraries = []
        for row in rows_of_kind:
            implementation = find(row.implementation)
            if implementation and implementation.library:
                libraries.append(row)
        by_size = by_key(libraries or rows_of_kind, lambda row: row.case.nbytes)
        best = [min(by_size[size], key=lambda row: row.typical) for size in sorted(by_size)]
        if len(best) < LEAST:
            continue
        columns = {
            TYPICAL: [row.typical for row in best],
            LOW: [stats.percentile(row.times, 5) for row in best],
            HIGH: [stats.percentile(row.times, 95) for row in best],
        }
        rising = {edge: np.maximum.accumulate(np.array(seconds)) for edge, seconds in columns.items()}
        yield Points(name, ranks, TabulatedCurve(np.array([float(row.case.nbytes) for row in best]), rising))


def machine_of_run(run: Run, name: str | None) -> System:
    """Return the system that a run was measured on, or the one of that name; UsageError if neither is known."""
    if run.header.topology.platform == "cpu" and not name:
        raise UsageError(f"{run.path} is of ranks on a CPU, which train no model here; give --machine SYSTEM with GPUs")
    try:
        return machine(run, name)
    except CollbenchError as error:
        raise UsageError(re.sub(r"--on (\S+)( --nodes \d+)?", r"--machine \1", str(error))) from None
