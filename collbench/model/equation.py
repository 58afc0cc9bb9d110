"""The equation of the model: seconds from latency, hops between nodes, filling the pipeline, and bytes.

    T(S) = (issue^4 + working^4)^(1/4),    working = launch + latency + network + kappa * sqrt(F * S / B) + S / B

`issue` is what the host needs to start an operation: one process that drives eight GPUs launches eight kernels, and
writes down the work of every channel of each; small messages have few channels.  That hides behind the GPUs' work or
the other way round: the longer of the two decides, and where they are alike ranks wait for the last one launched (a
fifth).  F is the time until the pipeline's last rank has its first bytes.  A message cut into chunks that fill d hops
takes (sqrt(d alpha) + sqrt(S / B))^2 at best (`pipelined` in tools/model/closed_forms.py), so kappa is 2 for a pipeline
with the best chunks, and less for a pipeline that need not be filled at full size.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TOGETHER = 4.0
"""Power in which the host's part and the GPUs' add up."""
PER_OCTAVE = 8
SIZES: Floats = 2.0 ** (np.arange(44 * PER_OCTAVE + 1) / PER_OCTAVE)
"""Bytes at which a curve is evaluated: 1 B to 16 TiB; between them it is straight in logarithms."""


@dataclass(frozen=True)
class Calibration:
    """Factors on the terms of the equation that bring the model to one machine."""

    launch: float = 1.0  # on issue and launch
    latency: float = 1.0  # on what NCCL's table and the fabric inside a node wait for
    network: float = 1.0  # on what it takes longer between nodes
    filling: float = 1.0  # on kappa
    rate: float = 1.0  # on bytes per second; what the hardware can carry stays the limit


DEFAULT = Calibration()


@dataclass(frozen=True)
class Terms:
    """The parts of the equation at each of SIZES: seconds, and bytes of the array per second."""

    issue: Floats
    launch: float
    latency: Floats
    network: Floats
    fill: Floats  # kappa * sqrt(seconds until the pipeline's last rank has its first bytes)
    rate: Floats
    limit: Floats  # bytes/s of the array that the hardware can carry at most
    algorithms: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()

    def seconds(self, calibration: Calibration = DEFAULT) -> Floats:
        """Return the time at each of SIZES; never less for more bytes, nor faster than the hardware carries them."""
        waiting = self.latency * calibration.latency + self.network * calibration.network
        transferring = SIZES / np.minimum(self.rate * calibration.rate, self.limit)
        filling = self.fill * calibration.filling * np.sqrt(transferring)
        working = self.launch * calibration.launch + waiting + filling + transferring
        together = _together(self.issue * calibration.launch, working)
        return np.asarray(np.maximum.accumulate(together), np.float64)

    def at(self, nbytes: Floats, calibration: Calibration = DEFAULT) -> Floats:
        """Return the time at other sizes in bytes, each at least 1."""
        return between(nbytes, self.seconds(calibration))


def _together(issue: Floats, working: Floats) -> Floats:
    return np.asarray((issue**TOGETHER + working**TOGETHER) ** (1 / TOGETHER), np.float64)


def between(nbytes: Floats, seconds: Floats) -> Floats:
    """Read a curve over SIZES at other sizes; beyond the last it goes on in proportion to the bytes."""
    inside = np.exp(np.interp(np.log(nbytes), np.log(SIZES), np.log(seconds)))
    return np.asarray(inside * np.maximum(1.0, nbytes / SIZES[-1]), np.float64)
