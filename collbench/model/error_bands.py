"""How far predictions may be off: bands around single times, and an error model of whole curves.

All is of machines that were left out of the fit, by what joins the GPUs and by size.  `make model-report` writes the
tables.

A band says between which factors nine of ten published times lie.  The error model says what the times of a machine
say together: the median error of its kind and how it spreads between machines.  A single size may be off by itself,
so sizes are looked at with their neighbours (`smoothed`).  Neighbouring sizes are off alike: the correlation of their
errors falls by e over `OCTAVES`.
"""

from collections.abc import Mapping, Sequence
from math import hypot, log2
from typing import NamedTuple

import numpy as np

from collbench.model.constants import OLD, transport
from collbench.model.equation import Floats
from collbench.model.schedule import schedule_of
from collbench.topology.system import System

SMALL, LARGE = 64 << 10, 64 << 20
"""Bytes below which latency decides, and above which bandwidth does."""
Factors = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
Levels = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

BANDS: Mapping[str, Factors] = {
    "one node": ((0.72, 1.32), (0.75, 1.33), (0.92, 1.23)),
    "one node, before Hopper": ((0.76, 1.27), (0.74, 1.54), (0.83, 2.01)),
    "PCIe": ((0.73, 1.36), (0.68, 1.64), (0.85, 1.59)),
    "InfiniBand": ((0.75, 2.68), (0.69, 3.31), (0.82, 1.26)),
    "RoCE": ((0.58, 2.9), (0.44, 3.23), (0.74, 1.72)),
    "Slingshot": ((0.48, 3.08), (0.3, 4.91), (0.74, 2.6)),
    "EFA": ((0.77, 1.7), (0.65, 3.32), (0.71, 1.22)),
    "TCP": ((0.61, 2.48), (0.34, 5.59), (0.75, 1.97)),
    "racks": ((0.47, 4.56), (0.26, 7.57), (0.83, 3.01)),
    "straight, one node": ((0.68, 1.27), (0.72, 2.05), (0.82, 1.75)),
    "straight, nodes": ((0.6, 3.67), (0.49, 3.75), (0.82, 2.73)),
}
"""Factors of low and high end where nothing of the machine was measured; below SMALL, between, above LARGE."""
CALIBRATED_BANDS: Mapping[str, Factors] = {
    "one node": ((0.87, 1.42), (0.89, 1.24), (0.91, 1.08)),
    "one node, before Hopper": ((0.92, 1.21), (0.73, 1.33), (0.87, 1.48)),
    "PCIe": ((0.92, 1.39), (0.74, 1.41), (0.87, 1.35)),
    "InfiniBand": ((0.93, 2.6), (0.86, 2.34), (0.86, 1.09)),
    "RoCE": ((0.55, 2.31), (0.5, 2.07), (0.82, 1.4)),
    "Slingshot": ((0.41, 2.25), (0.33, 3.1), (0.65, 1.34)),
    "EFA": ((0.71, 1.35), (0.83, 2.25), (0.8, 1.17)),
    "TCP": ((0.6, 1.98), (0.49, 2.23), (0.84, 1.25)),
    "racks": ((0.41, 3.18), (0.3, 3.64), (0.7, 1.44)),
    "straight, one node": ((0.87, 1.25), (0.82, 1.46), (0.77, 1.23)),
    "straight, nodes": ((0.42, 2.6), (0.36, 1.94), (0.84, 1.27)),
}
"""The same where five sizes of the curve were measured."""
HANDWRITTEN = (0.5, 2.0)
"""Factors for hand-written implementations: an estimate, in which all lies that is published of their algorithms."""

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
"""Median and standard deviation of the logarithm of measured over predicted; below SMALL, between, above LARGE."""
CALIBRATED_LEVELS: Mapping[str, Levels] = {
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
HANDWRITTEN_LEVELS: Levels = ((0.0, 0.42),) * 3
"""The band of hand-written implementations as standard deviations."""

KINDS = {
    "ib": "InfiniBand",
    "roce": "RoCE",
    "slingshot": "Slingshot",
    "efa": "EFA",
    "tcpx": "TCP",
    "tcp": "TCP",
}
"""Row of the tables by transport between nodes."""
KNOWN = {"slingshot": 32}
FEW = 16
"""Nodes up to which the model is as sure as its tables say; KNOWN by transport.

More were hardly published; or, over Slingshot, transfers hinder each other and those of other jobs, now less, now more.
"""
WIDER = 0.1
"""How much each doubling of the nodes beyond widens the band above, and adds to the spread of errors."""
OCTAVES = 6.0
ALONE = 0.05
"""Fraction of a size's variance that it shares with no other: how times scatter."""
WINDOW = 5
"""Sizes of which the median counts: two neighbours out of line say nothing of the machine."""


def kind_of(system: System, collective: str) -> str:
    """Return the row of the tables for a system's predictions."""
    if schedule_of(collective).direct:
        return "straight, nodes" if system.nodes > 1 else "straight, one node"
    if system.nodes > 1:
        return "racks" if system.is_rack else KINDS[transport(system)]
    if system.meets_over_pcie:
        return "PCIe"
    return "one node, before Hopper" if system.arch in OLD else "one node"


def regime(nbytes: float) -> int:
    """Return the place of a size in a row of the tables: 0 below SMALL, 2 above LARGE, else 1."""
    return int(nbytes >= SMALL) + int(nbytes > LARGE)


def beyond(system: System) -> float:
    """Return how often a system's nodes are twice as many as the model is sure of."""
    return max(0.0, log2(system.nodes / KNOWN.get(transport(system), FEW)))


def band(system: System, collective: str, nbytes: int, calibrated: bool = False) -> tuple[float, float]:
    """Return the factors on a predicted time between which nine of ten measurements should lie."""
    low, high = (CALIBRATED_BANDS if calibrated else BANDS)[kind_of(system, collective)][regime(nbytes)]
    return low, high if calibrated else high * (1 + WIDER) ** beyond(system)


class ErrorModel(NamedTuple):
    """The distribution of the logarithm of measured over predicted times, at some sizes of a healthy machine."""

    mean: Floats
    covariance: Floats


def error_levels(system: System, collective: str, implementation: str = "nccl") -> Levels:
    """Return the median error and its spread for an implementation on a system."""
    if implementation != "nccl":
        return HANDWRITTEN_LEVELS
    if system.calibration:
        return CALIBRATED_LEVELS[kind_of(system, collective)]
    return widened(LEVELS[kind_of(system, collective)], system)


def widened(levels: Levels, system: System) -> Levels:
    """Widen the levels for more nodes than the model is sure of."""
    small, middle, large = ((mean, hypot(spread, WIDER * beyond(system))) for mean, spread in levels)
    return small, middle, large


def error_model(sizes: Sequence[int], levels: Levels) -> ErrorModel:
    """Return the error model of a curve at these sizes, in bytes."""
    mean, spread = np.array([levels[regime(size)] for size in sizes]).T
    octaves = np.log2(np.maximum(sizes, 1))
    together = (1 - ALONE) * np.exp(-np.abs(octaves[:, None] - octaves) / OCTAVES) + ALONE * np.eye(len(octaves))
    return ErrorModel(mean, spread[:, None] * together * spread)


def smoothed(logs: Floats) -> Floats:
    """Return every value as the median of itself and its neighbours."""
    padded = np.pad(logs, WINDOW // 2, constant_values=np.nan)
    return np.asarray(np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1))
