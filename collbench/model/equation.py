"""The model's equation: latency, hops between nodes, filling the pipeline, and bytes.

    T(S) = (issue^4 + working^4)^(1/4),    working = launch + latency + network + kappa * sqrt(F * S / B) + S / B

`issue` is the host's time to start an operation: a process that drives eight GPUs launches eight kernels, with the
work of every channel; small messages have few channels. It overlaps with the GPUs' work, so the longer of the two
decides; if they are equal, waiting for the last launch adds a fifth. F is the time until the pipeline's last rank has
its first bytes. A message cut into chunks that fill d hops takes (sqrt(d alpha) + sqrt(S / B))^2 at best (`pipelined`
in tools/model/closed_forms.py). So kappa is 2 for the best chunks, and smaller if the pipeline is not filled at full
size.

Calibration: a few measured times move the equation's factors to one machine.  Every factor starts at 1 and is held
there by its spread between machines; a measurement weighs by the model's expected error.  So three small sizes move
latency only, and one large size bandwidth only.  Residuals are logarithms of ratios with a soft L1 loss, so one row
that a warm-up spoiled does not decide.  The rest stays as measured, and sizes between follow (`ratios`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collbench.errors import UsageError
from collbench.host.sanitize import read_toml
from collbench.topology import files
from collbench.topology.system import System

Floats = NDArray[np.float64]

TINY = 1e-30  # seconds that replace zero in a denominator
ENDLESS = 1e9  # stands for no limit of filling
PER_OCTAVE = 8
SIZES: Floats = 2.0 ** (np.arange(44 * PER_OCTAVE + 1) / PER_OCTAVE)
"""Bytes at which a curve is evaluated: 1 B to 16 TiB; between them it is linear in logarithms."""
OCTAVES = 6.0  # of sizes, over which the correlation of a machine's errors falls by e


@dataclass(frozen=True)
class Calibration:
    """Factors on the terms of the equation that bring the model to one machine."""

    launch: float = 1.0  # on issue and launch
    latency: float = 1.0  # on latency inside a node, by NCCL's table and the fabric
    network: float = 1.0  # on additional latency between nodes
    filling: float = 1.0  # on kappa
    rate: float = 1.0  # on bytes per second; what the hardware can carry stays the limit
    ratios: tuple[tuple[float, float], ...] = ()  # (bytes, measured time over the time with the factors)

    def remaining(self) -> Floats:
        """Return the ratios at each of SIZES: straight in logarithms between, fading beyond the ends."""
        (nbytes, ratios), sizes = np.log2(self.ratios).T, np.log2(SIZES)
        beyond = np.maximum(0.0, np.maximum(nbytes[0] - sizes, sizes - nbytes[-1]))
        return np.asarray(2.0 ** (np.interp(sizes, nbytes, ratios) * np.exp(-beyond / OCTAVES)), np.float64)


DEFAULT = Calibration()


@dataclass(frozen=True)
class Terms:
    """The parts of the equation at each of SIZES: seconds, and bytes of the array per second."""

    issue: Floats
    launch: float
    latency: Floats
    rate: Floats
    limit: Floats  # hardware limit in bytes/s of the array
    algorithms: tuple[str, ...]
    protocols: tuple[str, ...]
    network: Floats | float = 0.0
    fill: Floats | float = 0.0  # kappa * sqrt(seconds until the last rank has its first bytes)
    full: float = ENDLESS  # the most that filling takes is this * fill^2: chunks grow no further
    sliced: Floats | float = 0.0  # the part of the latency that half of the transfer hides

    def seconds(self, calibration: Calibration = DEFAULT) -> Floats:
        """Return the time at each of SIZES; it never falls with size, except as measured."""
        waiting = self.latency * calibration.latency + self.network * calibration.network
        transferring = SIZES / np.minimum(self.rate * calibration.rate, self.limit)

        # Filling the pipeline, in chunks that grow with the root of the bytes up to a largest one.
        filling = self.fill * calibration.filling * np.sqrt(transferring)
        filling /= np.sqrt(1 + transferring / np.maximum((self.full * self.fill) ** 2, TINY))

        # While half of a slice waits, the other half moves.
        sliced = self.sliced * calibration.latency
        hidden = together(sliced + transferring / 2, transferring) - sliced
        moving = np.where(sliced > 0, hidden, transferring)

        working = self.launch * calibration.launch + waiting + filling + moving
        times = monotone(together(self.issue * calibration.launch, working))
        return times * calibration.remaining() if calibration.ratios else times

    def at(self, nbytes: Floats, calibration: Calibration = DEFAULT) -> Floats:
        """Return the time at other sizes in bytes, each at least 1; beyond the last in proportion to the bytes."""
        inside = np.exp(np.interp(np.log(nbytes), np.log(SIZES), np.log(self.seconds(calibration))))
        return np.asarray(inside * np.maximum(1.0, nbytes / SIZES[-1]), np.float64)


def together(first: Floats, second: Floats) -> Floats:
    """Return the fourth root of the sum of fourth powers: the longer, or a fifth more where both are as long."""
    return np.asarray(np.sqrt(np.sqrt((first * first) ** 2 + (second * second) ** 2)), np.float64)


def monotone(times: Floats) -> Floats:
    """Return the mean, in logarithms, of two curves that never fall: the longest so far, the least from here."""
    return np.asarray(np.sqrt(np.maximum.accumulate(times) * np.minimum.accumulate(times[::-1])[::-1]), np.float64)


SPREAD = {"launch": 0.4, "latency": 0.6, "network": 1.0, "filling": 0.6, "rate": 0.3}
"""Standard deviation of a factor's logarithm between machines, in the order of Calibration's fields."""
NOISE = 0.05  # standard deviation of a measured time's logarithm against the calibrated equation


def calibrate(curves: Sequence[tuple[Terms, Sequence[tuple[float, float]]]]) -> Calibration:
    """Return the factors that fit all curves of a machine, each with its measured (bytes, seconds).

    The residual at a measured size is the mean of all curves. Without a measurement all factors are 1.
    """
    measured = [(terms, np.array(rows, np.float64).reshape(-1, 2)) for terms, rows in curves]
    spread = np.array(list(SPREAD.values()))

    def unexplained(factors: Calibration) -> list[Floats]:
        return [np.log(rows[:, 1] / terms.at(rows[:, 0], factors)) for terms, rows in measured]

    def residuals(logs: Floats) -> Floats:
        # The last residuals hold every factor at 1, weighted by its spread between machines.
        parts = [soft(left / NOISE) for left in unexplained(Calibration(*np.exp(logs)))]
        return np.concatenate([*parts, logs / spread])

    factors = Calibration(*np.exp(least_squares(residuals, np.zeros(len(spread)))).tolist())
    nbytes = np.concatenate([rows[:, 0] for _, rows in measured])
    logs = np.concatenate(unexplained(factors))
    ratios = tuple((size, float(np.exp(logs[nbytes == size].mean()))) for size in np.unique(nbytes).tolist())
    return replace(factors, ratios=ratios)


def soft(residuals: Floats) -> Floats:
    """Return residuals that grow as before while small, and like the square root where large (soft L1)."""
    return np.asarray(np.sign(residuals) * np.sqrt(2 * (np.sqrt(1 + residuals**2) - 1)), np.float64)


def least_squares(residuals: Callable[[Floats], Floats], start: Floats, rounds: int = 60) -> Floats:
    """Minimise the sum of squared residuals in at most `rounds` trials (Levenberg and Marquardt)."""
    # SciPy takes 0.3 s to import, too long for a prediction.
    from scipy import optimize

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
    files.load(str(path))  # raises if anything is wrong with it
    factors = read_toml(path, UsageError).get("calibration", {})
    if not factors or "file" in factors:
        raise UsageError(
            f"{path} has no factors in [calibration]; write them with `collbench predict --fit RUN -o {path}`"
        )
    ratios = tuple((float(nbytes), float(ratio)) for nbytes, ratio in factors.pop("ratios", ()))
    return Calibration(**{name: float(value) for name, value in factors.items()}, ratios=ratios)
