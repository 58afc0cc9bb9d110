"""Errors of the model on published sweeps, with constants fitted to all machines or without some."""

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from collbench.model.constants import Constants
from collbench.model.equation import DEFAULT, Calibration, Floats, calibrate, soft
from collbench.model.nccl_terms import terms_by
from collbench.model.predict import kind_of, regime, smoothed
from collbench.topology.products import is_amd
from tools.model.systems import Published, published

PROBES = (8, 32 << 10, 1 << 20, 16 << 20, 1 << 30)
"""Sizes of a user's calibration, which takes 10 seconds."""
Rows = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Errors:
    """The rows of a sweep with their predicted times, without the rows of the calibration."""

    sweep: Published
    nbytes: Floats
    measured: Floats
    predicted: Floats

    @cached_property
    def logs(self) -> Floats:
        """Logarithms of measured over predicted time."""
        return np.asarray(np.log(self.measured / self.predicted))

    @cached_property
    def smoothed(self) -> Floats:
        """The same, averaged with neighbouring sizes."""
        return smoothed(self.logs)

    @cached_property
    def regimes(self) -> Floats:
        """The index of each row's range of sizes in the tables."""
        return np.array([regime(nbytes) for nbytes in self.nbytes])

    @cached_property
    def kind(self) -> str:
        return kind_of(self.sweep.system, self.sweep.collective)

    def up_to(self, most: int) -> "Errors":
        there = self.nbytes <= most
        return Errors(self.sweep, self.nbytes[there], self.measured[there], self.predicted[there])

    @property
    def relative(self) -> Floats:
        """|predicted - measured| / measured."""
        return np.abs(self.predicted / self.measured - 1)


def healthy() -> list[Published]:
    """Return the sweeps of machines that perform as their hardware should."""
    return [sweep for sweep in published() if sweep.quality == "healthy"]


PRIOR: dict[str, tuple[float, float]] = {
    name: (value, spread)
    for name, (value, spread) in tomllib.loads(Path(__file__).with_name("prior.toml").read_text()).items()
}
"""The start of the fit, and the spread around it as a logarithm."""


class _Recorded(dict[str, float]):
    """Constants that record which of them are read."""

    def __init__(self, values: Constants) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.read.add(name)
        return super().__getitem__(name)


def fitted(sweeps: Sequence[Published], start: Constants | None = None, rounds: int = 30) -> Constants:
    """Return constants that fit the sweeps; those without evidence stay near the prior.

    AMD's are fitted after NVIDIA's, and have no influence on these.
    """
    known = {name: (start or {}).get(name, value) for name, (value, _) in PRIOR.items()}
    for amd in (False, True):
        names = [name for name in PRIOR if name.endswith("_xgmi") == amd]
        known |= _fitted([sweep for sweep in sweeps if is_amd(sweep.system.arch) == amd], known, names, rounds)
    return known


def _fitted(sweeps: Sequence[Published], start: Constants, names: Sequence[str], rounds: int) -> Constants:
    """Return the constants of these names that fit the sweeps best, with all others fixed."""
    from scipy import optimize

    machines: dict[str, int] = {}
    kinds: dict[str, set[tuple[str, int]]] = {}
    for sweep in sweeps:
        machines[sweep.machine] = machines.get(sweep.machine, 0) + len(sweep.rows)
        kinds.setdefault(sweep.machine, set()).add((sweep.collective, sweep.system.ranks))
    centre, spread = np.array([(math.log(value), far) for value, far in map(PRIOR.__getitem__, names)]).T
    starts = np.cumsum([len(names), *(len(sweep.rows) for sweep in sweeps)])

    def of_sweep(sweep: Published, known: Constants) -> Floats:
        weight = math.sqrt(ROWS * math.sqrt(len(kinds[sweep.machine])) / machines[sweep.machine])
        return np.asarray(soft(logs_of(sweep, known) / NOISE) * weight)

    def residuals(logs: Floats) -> Floats:
        known = {**start, **dict(zip(names, np.exp(logs).tolist(), strict=True))}
        return np.concatenate([(logs - centre) / spread, *(of_sweep(sweep, known) for sweep in sweeps)])

    def slopes(logs: Floats) -> Floats:
        """Return the derivatives; a sweep depends only on the constants that its terms read."""
        known = {**start, **dict(zip(names, np.exp(logs).tolist(), strict=True))}
        found = np.zeros((starts[-1], len(names)))
        found[: len(names)] = np.diag(1 / spread)
        for sweep, begin, end in zip(sweeps, starts[:-1], starts[1:], strict=True):
            recorded = _Recorded(known)
            here = of_sweep(sweep, recorded)
            read = set(names) if is_amd(sweep.system.arch) else recorded.read.intersection(names)
            for name in sorted(read):
                moved = of_sweep(sweep, known | {name: known[name] * math.exp(STEP)})
                found[begin:end, names.index(name)] = (moved - here) / STEP
        return found

    first = np.array([math.log(start[name]) for name in names])
    best = optimize.least_squares(residuals, first, slopes, method="trf", ftol=1e-5, xtol=1e-5, max_nfev=rounds)
    return dict(zip(names, np.exp(best.x).tolist(), strict=True))


STEP = 1e-3
"""Step of a constant's logarithm for the derivatives."""
NOISE = 0.1  # standard deviation of a logarithm of published over predicted time
ROWS = 3.0  # weight of a machine, multiplied by the root of its number of collectives and numbers of ranks


def logs_of(sweep: Published, known: Constants, how: Calibration = DEFAULT) -> Floats:
    """Return logarithms of measured over predicted time."""
    rows = np.array(sweep.rows, np.float64)
    predicted = terms_by(known, sweep.system, sweep.collective).at(rows[:, 0], how)
    return np.asarray(np.log(rows[:, 1] / predicted), np.float64)


def errors(sweep: Published, known: Constants, chosen: Iterable[int] = ()) -> Errors:
    """Return the errors of all rows, or of those without the `chosen` ones, which calibrate the model."""
    rows = np.array(sweep.rows, np.float64)
    parts = terms_by(known, sweep.system, sweep.collective)
    used = sorted(set(chosen))
    how = calibrate([(parts, [_probe(sweep, index) for index in used])]) if used else DEFAULT
    left = [index for index in range(len(rows)) if index not in used]
    return Errors(sweep, rows[left, 0], rows[left, 1], parts.at(rows[left, 0], how))


def _probe(sweep: Published, index: int) -> tuple[float, float]:
    """Return a row for calibration, in place or not: the smaller time, because a warm-up only adds."""
    nbytes, seconds = sweep.rows[index]
    return nbytes, min([seconds, *(other for size, other in sweep.in_place if size == nbytes)])


def smallest(sweep: Published) -> list[int]:
    return list(range(3))


def probes(sweep: Published) -> list[int]:
    """Return the rows nearest to PROBES; if some coincide, rows spread evenly over the sweep."""
    sizes = np.log([nbytes for nbytes, _ in sweep.rows])
    found = {int(np.abs(sizes - math.log(probe)).argmin()) for probe in PROBES}
    if len(found) < 5:
        found = {round(place) for place in np.linspace(0, len(sizes) - 1, 5)}
    return sorted(found)


def left_out(
    sweeps: Sequence[Published], every: Constants, group: Callable[[Published], str], rounds: int = 8
) -> dict[str, Constants]:
    """Return, for each group of sweeps, the constants of the other groups, fitted from those of all groups."""
    groups = sorted({group(sweep) for sweep in sweeps})
    with ProcessPoolExecutor() as pool:
        tasks = {}
        for name in groups:
            others = [sweep for sweep in sweeps if group(sweep) != name]
            tasks[name] = pool.submit(fitted, others, every, rounds)
        return {name: task.result() for name, task in tasks.items()}
