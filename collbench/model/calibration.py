"""Calibration: a few measured times move the equation's factors, and so bring the model to one machine.

Every factor starts at 1 and is held there by how much it was seen to differ between machines; a measurement counts
by how well the model can be expected to match it.  So three small sizes move latency and leave bandwidth alone, and
one large size moves bandwidth only.  Residuals are logarithms of ratios, large ones count less (soft L1): one row that
a warm-up spoiled does not decide.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from collbench.errors import UsageError
from collbench.host.sanitize import read_toml
from collbench.model.equation import Calibration, Floats, Terms
from collbench.topology import files
from collbench.topology.system import System

SPREAD = {"launch": 0.4, "latency": 0.6, "network": 1.0, "filling": 0.6, "rate": 0.3}
"""Standard deviation of a factor's logarithm between machines, in the order of Calibration's fields."""
NOISE = 0.05
"""Standard deviation of a measured time's logarithm against the calibrated equation."""


def calibrate(curves: Sequence[tuple[Terms, Sequence[tuple[float, float]]]]) -> Calibration:
    """Return the factors that fit all curves of a machine, each with its measured (bytes, seconds).

    Without a measurement all factors are 1.
    """
    known = [(terms, np.array(rows, np.float64).reshape(-1, 2)) for terms, rows in curves]
    spread = np.array(list(SPREAD.values()))

    def residuals(logs: Floats) -> Floats:
        factors = Calibration(*np.exp(logs))
        parts = []
        for terms, rows in known:
            if len(rows):
                parts.append(soft(np.log(rows[:, 1] / terms.at(rows[:, 0], factors)) / NOISE))
        return np.concatenate([*parts, logs / spread])

    return Calibration(*np.exp(least_squares(residuals, np.zeros(len(spread)))).tolist())


def soft(residuals: Floats) -> Floats:
    """Return residuals that grow as before while small, and like the square root where large (soft L1)."""
    return np.asarray(np.sign(residuals) * np.sqrt(2 * (np.sqrt(1 + residuals**2) - 1)), np.float64)


def least_squares(residuals: Callable[[Floats], Floats], start: Floats, rounds: int = 60) -> Floats:
    """Minimise the sum of the residuals' squares in so many trials at most (Levenberg and Marquardt)."""
    from scipy import optimize  # takes 0.3 s to import, which no prediction should wait for

    def slopes(here: Floats) -> Floats:
        # Differences to both sides: a limit that is just reached has a kink there.
        steps = 1e-4 * np.eye(len(here))
        return np.stack([(residuals(here + step) - residuals(here - step)) / 2e-4 for step in steps], axis=1)

    best = optimize.least_squares(residuals, start, slopes, method="lm", ftol=1e-7, xtol=1e-6, max_nfev=rounds)
    return np.asarray(best.x, np.float64)


def calibration_of(system: System) -> Calibration | None:
    """Return the calibration that a system's file names or holds; None without one, UsageError if unreadable."""
    if not system.calibration:
        return None
    path = Path(system.calibration)
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise UsageError(f"calibration {path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=16)
def _read(path: Path, _changed: int) -> Calibration:
    files.load(str(path))  # which says what is wrong with it, if anything is
    factors = read_toml(path, UsageError).get("calibration", {})
    if not factors or "file" in factors:
        raise UsageError(f"{path} has no factors in [calibration]; write them with `collbench fit RUN -o {path}`")
    return Calibration(**{name: float(value) for name, value in factors.items()})
