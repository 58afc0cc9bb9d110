"""How far the model is from published sweeps: constants fitted without a machine, then held against that machine."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from collbench.model.constants import Constants
from collbench.model.equation import DEFAULT, Calibration, Floats, calibrate, least_squares, soft
from collbench.model.error_bands import kind_of, regime, smoothed
from collbench.model.nccl_terms import terms
from tools.model.prior import PRIOR, SPREAD
from tools.model.systems import Published, published

PROBES = (8, 32 << 10, 1 << 20, 16 << 20, 1 << 30)
"""Sizes that a user would measure to calibrate: 10 seconds in all."""
Rows = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Errors:
    """A sweep's rows with the times predicted for them, those that were used to calibrate left out."""

    sweep: Published
    nbytes: Floats
    measured: Floats
    predicted: Floats

    @cached_property
    def logs(self) -> Floats:
        """Of measured over predicted."""
        return np.asarray(np.log(self.measured / self.predicted))

    @cached_property
    def smoothed(self) -> Floats:
        """The same with every size among its neighbours."""
        return smoothed(self.logs)

    @cached_property
    def regimes(self) -> Floats:
        """Which of the three sizes of a row of the tables."""
        return np.array([regime(nbytes) for nbytes in self.nbytes])

    @cached_property
    def kind(self) -> str:
        """Row of the tables."""
        return kind_of(self.sweep.system, self.sweep.collective)

    @property
    def relative(self) -> Floats:
        """|predicted - measured| / measured."""
        return np.abs(self.predicted / self.measured - 1)


def healthy() -> list[Published]:
    """Sweeps of machines that behave as their hardware should."""
    return [sweep for sweep in published() if sweep.quality == "healthy"]


def fitted(sweeps: Sequence[Published], start: Constants | None = None, rounds: int = 30) -> Constants:
    """Constants that fit the sweeps, every machine with the same weight; what none speaks for stays near `start`."""
    machines: dict[str, int] = {}
    for sweep in sweeps:
        machines[sweep.machine] = machines.get(sweep.machine, 0) + len(sweep.rows)
    names = [field.name for field in fields(Constants)]
    centre = np.array([math.log(getattr(PRIOR, name)) for name in names])
    spread = np.array([SPREAD.get(name, SPREAD.get(name.split("_")[0], 0.5)) for name in names])

    def residuals(logs: Floats) -> Floats:
        known = Constants(*np.exp(logs))
        parts = [(logs - centre) / spread]
        for sweep in sweeps:
            ratio = logs_of(sweep, known) / NOISE
            parts.append(soft(ratio) * math.sqrt(ROWS / machines[sweep.machine]))
        return np.concatenate(parts)

    first = np.array([math.log(getattr(start or PRIOR, name)) for name in names])
    return Constants(*(float(value) for value in np.exp(least_squares(residuals, first, rounds))))


NOISE = 0.1  # of a published time against the model, as its logarithm
ROWS = 3.0  # that a machine counts as, however many it has


def logs_of(sweep: Published, known: Constants, how: Calibration = DEFAULT) -> Floats:
    """Logarithms of measured over predicted."""
    rows = np.array(sweep.rows, np.float64)
    predicted = terms.__wrapped__(sweep.system, sweep.collective, known).at(rows[:, 0], how)
    return np.asarray(np.log(rows[:, 1] / predicted), np.float64)


def errors(sweep: Published, known: Constants, chosen: Iterable[int] = ()) -> Errors:
    """Of all rows, or of those that are not among the chosen, on which the model is calibrated."""
    rows = np.array(sweep.rows, np.float64)
    parts = terms.__wrapped__(sweep.system, sweep.collective, known)
    used = sorted(set(chosen))
    how = calibrate([(parts, [_probe(sweep, index) for index in used])]) if used else DEFAULT
    left = [index for index in range(len(rows)) if index not in used]
    return Errors(sweep, rows[left, 0], rows[left, 1], parts.at(rows[left, 0], how))


def _probe(sweep: Published, index: int) -> tuple[float, float]:
    """A row as one would calibrate with it: in place or not, whichever is less, since a warm-up only adds."""
    nbytes, seconds = sweep.rows[index]
    return nbytes, min([seconds, *(other for size, other in sweep.in_place if size == nbytes)])


def smallest(sweep: Published) -> list[int]:
    """The three smallest sizes."""
    return list(range(3))


def probes(sweep: Published) -> list[int]:
    """The rows nearest to PROBES; where these fall together, rows spread evenly over the sweep."""
    sizes = np.log([nbytes for nbytes, _ in sweep.rows])
    found = {int(np.abs(sizes - math.log(probe)).argmin()) for probe in PROBES}
    if len(found) < 5:
        found = {round(place) for place in np.linspace(0, len(sizes) - 1, 5)}
    return sorted(found)


def left_out(sweeps: Sequence[Published], every: Constants, rounds: int = 8) -> dict[str, Constants]:
    """For every machine the constants that the others give, looked for from those that all give."""
    return {machine: without(sweeps, machine, every, rounds) for machine in sorted({sweep.machine for sweep in sweeps})}


def without(sweeps: Sequence[Published], machine: str, start: Constants, rounds: int = 8) -> Constants:
    """Constants fitted to all other machines."""
    return fitted([sweep for sweep in sweeps if sweep.machine != machine], start, rounds)
