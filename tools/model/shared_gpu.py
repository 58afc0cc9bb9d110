"""Costs of ranks that share one GPU, fitted to the committed runs of an H100; `python -m tools.model.shared_gpu`.

Prints what [shared.sm90] of collbench/platforms/gpu_costs.toml would be, how far off predictions by the table are, and
how much longer than the fastest measured implementation that one takes which `auto` picks, by size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from collbench.algorithms import implementations
from collbench.algorithms.auto import expected
from collbench.platforms.cost import Hardware, Wait, gpus
from collbench.results import Measurement
from collbench.topology.products import GIB
from collbench.units import format_size
from tools.remeasure import rungs_of

RUNS = ("nvidia-h100-1-gpu-4-ranks", "nvidia-h100-1-gpu-4-ranks-three")
BLOCKS = {"ring-flags": 1, "ring-ll": 8}  # of a rank, in the kernels that were measured
FEW = 128 * 2**10
"""Bytes up to which packets of 8 blocks are in the fit: beyond, blocks decide, and the model knows a rank's packets."""


def measured() -> list[Measurement]:
    """Return all rows of hand-written implementations with a cost."""
    return [row for run in RUNS for row in rungs_of(run)]


def predicted(row: Measurement, hardware: Hardware) -> float:
    """Return the seconds that the implementation's cost comes to."""
    cost = implementations()[row.implementation].cost
    assert cost
    counts = cost(row.case)
    return hardware.seconds(replace(counts, blocks=BLOCKS.get(row.implementation, counts.blocks)), row.case.nbytes)


def factors(rows: Sequence[Measurement], hardware: Hardware) -> np.ndarray:
    """Return how far off predictions are, as factors above 1."""
    logs = [np.log(predicted(row, hardware) / row.typical) for row in rows]
    return np.asarray(np.exp(np.abs(logs)))


def fitted(rows: Sequence[Measurement]) -> dict[str, float]:
    """Return the figures of the table by least squares of softened logarithms of ratios; memory is that of a copy."""
    from scipy.optimize import least_squares

    kept = [row for row in rows if row.implementation != "ring-ll" or row.case.nbytes <= FEW]
    base, ranks = gpus(4, 1), 4
    names = ["launch", *(wait.name.lower() for wait in Wait), "block", "packets"]
    start = np.array([2.0, 50, 2, 1.2, 0.5, 0.8, 60, 90])  # microseconds, GiB/s, GB/s

    def residuals(at: np.ndarray) -> list[float]:
        launch, *waits, block, packets = at
        hardware = replace(
            base,
            launch=1e-6 * (launch + 0.1 * (ranks - 2)),
            waits={wait: 1e-6 * seconds for wait, seconds in zip(Wait, waits, strict=True)},
            block=block * GIB,
            packets=1e9 * packets,
        )
        return [float(np.log(predicted(row, hardware) / row.typical)) for row in kept]

    best = least_squares(residuals, start, loss="soft_l1", f_scale=0.1, bounds=(0.05, 1000), x_scale=start).x
    return dict(zip(names, best.tolist(), strict=True))


class Choice(NamedTuple):
    """What `auto` picks of the implementations that a run has at a size."""

    run: str
    nbytes: int
    picked: str
    best: str
    regret: float  # measured time of the picked over that of the fastest


def choices(hardware: Hardware) -> Iterator[Choice]:
    """Yield the all-reduces of every run by size."""
    where = SimpleNamespace(hardware=hardware, name="gpu")
    for run in RUNS:
        rows = [row for row in rungs_of(run) if row.case.collective.name == "allreduce"]
        for nbytes in sorted({row.case.nbytes for row in rows}):
            times = {row.implementation: row.typical for row in rows if row.case.nbytes == nbytes}
            case = next(row.case for row in rows if row.case.nbytes == nbytes)
            picked = next(name for name in expected(case, where) if name in times)  # type: ignore[arg-type]
            best = min(times, key=lambda name: times[name])
            yield Choice(run, nbytes, picked, best, times[picked] / times[best])


def main() -> None:
    """Print figures, errors and choices."""
    rows, hardware = measured(), gpus(4, 1)
    print({name: float(f"{value:.3g}") for name, value in fitted(rows).items()})
    for name in dict.fromkeys(row.implementation for row in rows):
        off = factors([row for row in rows if row.implementation == name], hardware)
        print(f"{name:<17} median factor {np.median(off):.2f}, largest {off.max():.2f}")
    off = factors(rows, hardware)
    print(f"{len(rows)} rows: median factor {np.median(off):.2f}, nine of ten {np.quantile(off, 0.9):.2f}")
    for choice in choices(hardware):
        words = "" if choice.picked == choice.best else f", best {choice.best}"
        print(f"{format_size(choice.nbytes):>9} {choice.picked}{words}: {choice.regret:.3f}")


if __name__ == "__main__":
    main()
