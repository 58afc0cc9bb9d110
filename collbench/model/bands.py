"""How far the model is off on machines that it has not seen: bands around a prediction, and how errors go together.

Both are of the same table: between which factors nine of ten published times lie, machines left out of the fit as a
whole.  Neighbouring sizes are off alike: the correlation of their errors falls by e over `OCTAVES`.
"""

from collections.abc import Mapping
from math import log2
from typing import NamedTuple

import numpy as np

from collbench.model.constants import transport
from collbench.model.equation import Floats
from collbench.model.schedule import schedule_of
from collbench.topology.system import System

SMALL, LARGE = 64 << 10, 64 << 20
"""Bytes below which latency decides, and above which bandwidth does."""
Factors = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

BANDS: Mapping[str, Factors] = {
    "one node": ((0.72, 1.27), (0.82, 1.46), (0.87, 1.42)),
    "PCIe": ((0.77, 1.29), (0.74, 1.54), (0.87, 1.34)),
    "InfiniBand": ((0.67, 2.17), (0.75, 2.09), (0.86, 1.57)),
    "RoCE": ((0.68, 1.66), (0.75, 1.46), (0.77, 1.21)),
    "Slingshot": ((0.44, 1.54), (0.4, 3.2), (0.81, 1.65)),
    "EFA": ((0.48, 2.14), (0.63, 1.65), (0.74, 1.38)),
    "TCP": ((0.7, 1.48), (0.44, 3.72), (0.85, 1.43)),
    "straight, one node": ((0.64, 1.15), (0.68, 2.08), (0.85, 1.54)),
    "straight, nodes": ((0.67, 3.08), (0.71, 2.06), (0.91, 2.32)),
}
"""Nothing of the machine was measured."""
CALIBRATED: Mapping[str, Factors] = dict.fromkeys(BANDS, ((0.9, 1.2), (0.85, 1.3), (0.9, 1.2)))
"""Five sizes of the curve were."""
KINDS = {
    "ib": "InfiniBand",
    "roce": "RoCE",
    "slingshot": "Slingshot",
    "efa": "EFA",
    "tcpx": "TCP",
    "tcp": "TCP",
}
"""What joins the nodes, as the tables call it."""

OCTAVES = 6.0
ALONE = 0.05
"""Of a size's variance, what it shares with no other: how times scatter."""
SEEN = {"slingshot": 512}
FEW = 16
"""Nodes up to which sweeps were published, by transport; beyond, each doubling widens the band above by `WIDER`."""
WIDER = 0.1
NINE_OF_TEN = 1.645
"""Standard deviations of a normal distribution to both sides of its mean."""


class Doubt(NamedTuple):
    """The distribution of measured over predicted times at some sizes, as logarithms."""

    mean: Floats
    covariance: Floats


def kind_of(system: System, collective: str) -> str:
    """Which row of the tables a system's predictions have."""
    if schedule_of(collective).direct:
        return "straight, nodes" if system.nodes > 1 else "straight, one node"
    if system.nodes > 1:
        return KINDS[transport(system)]
    return "PCIe" if system.meets_over_pcie else "one node"


def band(system: System, collective: str, nbytes: int, calibrated: bool = False) -> tuple[float, float]:
    """Factors on a predicted time between which nine of ten measurements should lie."""
    low, high = (CALIBRATED if calibrated else BANDS)[kind_of(system, collective)][regime(nbytes)]
    return low, high if calibrated else high * _beyond(system)


def regime(nbytes: float) -> int:
    """Which of the three sizes of a row."""
    return int(nbytes >= SMALL) + int(nbytes > LARGE)


def _beyond(system: System) -> float:
    """What the band above is wider for more nodes than any sweep had."""
    return float((1 + WIDER) ** max(0.0, log2(system.nodes / SEEN.get(transport(system), FEW))))


def doubt(system: System, collective: str, sizes: Floats) -> Doubt:
    """Of sizes in bytes: the normal distribution that has the bands as its quantiles."""
    edges = np.log([band(system, collective, int(size)) for size in sizes])
    spread = (edges[:, 1] - edges[:, 0]) / (2 * NINE_OF_TEN)
    octaves = np.log2(np.maximum(sizes, 1.0))
    together = (1 - ALONE) * np.exp(-np.abs(octaves[:, None] - octaves) / OCTAVES) + ALONE * np.eye(len(sizes))
    return Doubt(edges.mean(axis=1), spread[:, None] * together * spread)
