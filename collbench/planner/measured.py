"""Curves of a run instead of a model: measured points, or the fit to them, brought to other groups by closed forms.

What a run did not measure follows from what it did: a ring's all-reduce is a reduce-scatter and an all-gather, which
take half of it each; on another number of ranks the bytes of each rank scale as nccl-tests counts them (bus bandwidth
stays), and what waits scales with the number of steps.  Such curves say so, and their band is wider.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collbench import stats
from collbench.algorithms import find
from collbench.analysis.curve_fit import Unfit, fit
from collbench.analysis.fit import measured
from collbench.collectives import find_collective
from collbench.errors import UsageError
from collbench.observed import Observed
from collbench.planner.curves import HIGH, LOW, TYPICAL, Array, Curve, Group, Tabled, Where
from collbench.runfile.file import Run

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
class Box:
    """What the run was measured on, as far as groups need it."""

    name: str
    gpus: int


@dataclass(frozen=True)
class Points:
    """A measured curve: typical seconds and band at sizes in bytes."""

    collective: str
    ranks: int
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class Measured:
    """Curves of a run, by the fastest library in it, or the fastest implementation where there is none."""

    def __init__(self, run: Run, system: Where, name: str, fitted: bool = False) -> None:
        self.system = system
        self.origin = f"{'fitted to' if fitted else 'measured in'} {name}"
        self._curves = tuple(_points(measured([run]), fitted))
        if not self._curves:
            raise UsageError(
                f"{run.path} has no curve of {LEAST} sizes or more; measure one with `collbench sweep --op allreduce`"
            )

    def curve(self, collective: str, group: Group) -> Curve:
        """Of the measured number of ranks that is nearest."""
        return _scaled(self._curves, collective, group.ranks, self.origin)


@lru_cache(maxsize=1024)
def _scaled(known: tuple[Points, ...], collective: str, ranks: int, origin: str) -> Curve:
    points, share = _nearest(known, collective, ranks)
    sizes = np.array(points.sizes)
    meaning = find_collective(points.collective)
    bytes_of = meaning.bus_factor(ranks) / meaning.bus_factor(points.ranks)
    waits = (ranks - 1) / (points.ranks - 1)
    least = min(points.seconds)
    same = points.collective == collective and points.ranks == ranks
    further = 1.0 if same else FURTHER
    edges = {TYPICAL: points.seconds, LOW: points.low, HIGH: points.high}
    wider = {TYPICAL: 1.0, LOW: 1 / further, HIGH: further}
    times = {
        edge: share
        * wider[edge]
        * np.maximum.accumulate(np.array(values) * bytes_of + least * max(0, waits - bytes_of))
        for edge, values in edges.items()
    }
    from_what = "" if same else f", from its {points.collective} of {points.ranks} ranks"
    return Tabled(f"{origin}{from_what}", sizes, times)


def _nearest(known: Sequence[Points], collective: str, ranks: int) -> tuple[Points, float]:
    """The curve to take, and the share of its time."""
    for name, share in ((collective, 1.0), *SUBSTITUTES.get(collective, ())):
        there = [points for points in known if points.collective == name]
        if there:
            return min(there, key=lambda points: abs(np.log(points.ranks / ranks))), share
    names = ", ".join(dict.fromkeys(points.collective for points in known))
    raise UsageError(f"the run has {names} only, from which no {collective} follows; measure it, or allreduce")


def _points(rows: Sequence[Observed], fitted: bool) -> list[Points]:
    """Every curve, of the implementation that is chosen for its collective."""
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
    bands = [_band(best[size]) for size in sizes]
    columns = zip(*((best[size].typical, *band) for size, band in zip(sizes, bands, strict=True)), strict=True)
    typical, low, high = (tuple(np.maximum.accumulate(column).tolist()) for column in columns)
    return Points(collective, ranks, tuple(map(float, sizes)), typical, low, high)


def _band(row: Observed) -> tuple[float, float]:
    """Where nine of ten samples lie; the one figure where there is no more."""
    return stats.percentile(row.times, 5), stats.percentile(row.times, 95)


def _fitted(collective: str, ranks: int, sizes: Sequence[int], samples: Sequence[Sequence[float]]) -> Points:
    """The fit at the measured sizes, and at those between the smallest and the largest by powers of two."""
    try:
        fitted_curve = fit(sizes, samples)
    except Unfit as error:
        raise UsageError(f"{collective} of {ranks} ranks cannot be fitted: {error}; take the measured curve") from None
    there: Array = np.unique([*sizes, *(2.0**power for power in range(45) if sizes[0] < 2**power < sizes[-1])])
    typical = np.maximum.accumulate(fitted_curve.predict(there))
    bands = np.array([fitted_curve.prediction_interval(float(size)) for size in there]).T
    low, high = (np.maximum.accumulate(edge) for edge in bands)
    return Points(collective, ranks, *(tuple(column.tolist()) for column in (there, typical, low, high)))
