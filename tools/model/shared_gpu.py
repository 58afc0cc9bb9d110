"""Costs of ranks that share one GPU, fitted to the committed run of an H100.

`python -m tools.model.shared_gpu` prints the best figures for [shared.sm90] of gpu_costs.toml.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from collbench.algorithms import implementations
from collbench.algorithms.auto import expected
from collbench.platforms.cost import COSTS, Hardware, Wait, gpus
from collbench.results import Measurement
from collbench.topology.products import GIB
from tools import ONE_H100
from tools.remeasure import rungs_of

ROWS = rungs_of(ONE_H100, changed="")
RANKS = 4


def off(row: Measurement, hardware: Hardware) -> float:
    """Return the logarithm of predicted over measured time."""
    cost = implementations()[row.implementation].cost(row.case)  # type: ignore[misc]
    return math.log(hardware.seconds(cost, row.case.nbytes) / row.typical)


def factors(rows: Sequence[Measurement], hardware: Hardware) -> np.ndarray:
    """Return the errors of predictions, as factors above 1."""
    return np.exp([abs(off(row, hardware)) for row in rows])


def fitted() -> dict[str, float]:
    """Return the figures of the table by least squares of softened logarithms of ratios; memory is that of a copy."""
    from scipy.optimize import least_squares

    names = ["launch", *(wait.name.lower() for wait in Wait), "room", "block", "mixed"]
    start = np.array([2e-6, 50e-6, 2e-6, 1.2e-6, 0.5e-6, 0.8e-6, 0.4e-6, 60, 0.5])  # seconds, GiB/s, a fraction

    def residuals(at: np.ndarray) -> list[float]:
        launch, *seconds, room, block, mixed = at * start
        waits, launch = dict(zip(Wait, seconds, strict=True)), launch + COSTS["any"]["peer"] * (RANKS - 2)
        with_these = replace(gpus(RANKS, 1), launch=launch, waits=waits, room=room, block=block * GIB, mixed=mixed)
        return [off(row, with_these) for row in ROWS]

    best = least_squares(residuals, np.ones(len(start)), loss="soft_l1", f_scale=0.1, bounds=(0.01, 100)).x
    return dict(zip(names, (best * start).tolist(), strict=True))


class Choice(NamedTuple):
    """The implementation that `auto` picks at a size, among those of the run."""

    nbytes: int
    picked: str
    best: str
    regret: float  # measured time of the picked over the fastest


def choices(hardware: Hardware) -> Iterator[Choice]:
    where = SimpleNamespace(hardware=hardware, name="gpu")
    for case in dict.fromkeys(row.case for row in ROWS):
        times = {row.implementation: row.typical for row in ROWS if row.case == case}
        picked = next(name for name in expected(case, where) if name in times)  # type: ignore[arg-type]
        best = min(times, key=lambda name: times[name])
        yield Choice(case.nbytes, picked, best, times[picked] / times[best])


if __name__ == "__main__":
    print({name: float(f"{value:.3g}") for name, value in fitted().items()})
