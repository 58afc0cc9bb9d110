"""How the model's errors go together: what its times say of a machine as a whole, rather than of one size.

Of machines left out of the fit: the median error and how it spreads between machines, by kind and size.  A size alone
may be off for reasons of its own, so sizes are looked at with their neighbours (`settled`).  Neighbouring sizes are off
alike: the correlation of their errors falls by e over `OCTAVES`.
"""

from collections.abc import Mapping, Sequence
from math import hypot
from typing import NamedTuple

import numpy as np

from collbench.model.bands import WIDER, beyond, kind_of, regime
from collbench.model.equation import Floats
from collbench.topology.system import System

Levels = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

LEVELS: Mapping[str, Levels] = {
    "one node": ((-0.02, 0.17), (0.0, 0.14), (0.01, 0.09)),
    "one node, before Hopper": ((0.05, 0.17), (0.02, 0.18), (-0.01, 0.17)),
    "PCIe": ((-0.02, 0.17), (-0.05, 0.25), (0.0, 0.2)),
    "InfiniBand": ((-0.0, 0.14), (-0.02, 0.21), (-0.03, 0.12)),
    "RoCE": ((-0.0, 0.16), (-0.0, 0.34), (-0.02, 0.17)),
    "Slingshot": ((-0.03, 0.21), (0.03, 0.47), (0.03, 0.18)),
    "EFA": ((0.0, 0.15), (0.06, 0.23), (-0.03, 0.14)),
    "TCP": ((-0.03, 0.17), (-0.04, 0.63), (-0.0, 0.19)),
    "racks": ((0.0, 0.17), (0.0, 0.4), (0.02, 0.25)),
    "straight, one node": ((-0.02, 0.18), (0.02, 0.21), (0.01, 0.12)),
    "straight, nodes": ((-0.02, 0.44), (0.02, 0.37), (0.03, 0.36)),
}
"""Of the logarithm of measured over predicted: median and standard deviation; below 64 KiB, between, above 64 MiB."""
CALIBRATED: Mapping[str, Levels] = {
    "one node": ((0.04, 0.11), (-0.01, 0.1), (-0.01, 0.08)),
    "one node, before Hopper": ((-0.01, 0.1), (0.01, 0.13), (-0.01, 0.1)),
    "PCIe": ((0.02, 0.1), (0.01, 0.14), (0.0, 0.11)),
    "InfiniBand": ((0.01, 0.09), (0.01, 0.11), (-0.01, 0.09)),
    "RoCE": ((0.02, 0.12), (0.01, 0.16), (0.01, 0.13)),
    "Slingshot": ((0.02, 0.16), (0.02, 0.3), (-0.0, 0.13)),
    "EFA": ((0.0, 0.16), (0.02, 0.13), (-0.0, 0.1)),
    "TCP": ((-0.01, 0.11), (-0.0, 0.17), (-0.0, 0.12)),
    "racks": ((0.0, 0.13), (0.0, 0.19), (0.0, 0.14)),
    "straight, one node": ((0.0, 0.12), (0.0, 0.14), (0.0, 0.11)),
    "straight, nodes": ((-0.01, 0.31), (-0.0, 0.17), (0.01, 0.12)),
}
"""The same where five sizes of the curve were measured before."""
OF_RUNGS: Levels = ((0.0, 0.42),) * 3
"""Of hand-written rungs: their bands of half to twice the time (predict.py) as standard deviations."""
OCTAVES = 6.0
ALONE = 0.05
"""Of a size's variance, what it shares with no other: how times scatter."""
WINDOW = 5
"""Sizes of which the middle one counts: two neighbours out of line are none of the machine's."""


class Doubt(NamedTuple):
    """The distribution of measured over predicted times at some sizes, as logarithms."""

    mean: Floats
    covariance: Floats


def levels_of(system: System, collective: str, implementation: str = "nccl") -> Levels:
    """What is known of the errors of an implementation there."""
    if implementation != "nccl":
        return OF_RUNGS
    if system.calibration:
        return CALIBRATED[kind_of(system, collective)]
    return widened(LEVELS[kind_of(system, collective)], system)


def widened(levels: Levels, system: System) -> Levels:
    """For more nodes than the model is sure of."""
    small, middle, large = ((mean, hypot(spread, WIDER * beyond(system))) for mean, spread in levels)
    return small, middle, large


def doubt(sizes: Sequence[int], levels: Levels) -> Doubt:
    """That of sizes in bytes, on a machine that is healthy."""
    mean, spread = np.array([levels[regime(size)] for size in sizes]).T
    octaves = np.log2(np.maximum(sizes, 1))
    together = (1 - ALONE) * np.exp(-np.abs(octaves[:, None] - octaves) / OCTAVES) + ALONE * np.eye(len(octaves))
    return Doubt(mean, spread[:, None] * together * spread)


def settled(logs: Floats) -> Floats:
    """Every value as the median of itself and its neighbours."""
    padded = np.pad(logs, WINDOW // 2, constant_values=np.nan)
    return np.asarray(np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1))
