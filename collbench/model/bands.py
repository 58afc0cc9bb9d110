"""Bands around predictions: between which factors nine of ten published times lie, of machines that no fit has seen.

By what joins the GPUs, and by size.  `make model-report` has the numbers.
"""

from collections.abc import Mapping
from math import log2

from collbench.model.constants import OLD, transport
from collbench.model.schedule import schedule_of
from collbench.topology.system import System

SMALL, LARGE = 64 << 10, 64 << 20
"""Bytes below which latency decides, and above which bandwidth does."""
Factors = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

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
"""Nothing of the machine was measured."""
CALIBRATED: Mapping[str, Factors] = {
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

KNOWN = {"slingshot": 32}
FEW = 16
"""Nodes up to which the model is as sure as its tables say, by transport.

More were hardly published; or, over Slingshot, transfers hinder each other and those of other jobs, now less, now more.
"""
WIDER = 0.1
"""By how much each doubling beyond widens the band above, and adds to what errors spread by."""


def kind_of(system: System, collective: str) -> str:
    """Which row of the tables a system's predictions have."""
    if schedule_of(collective).direct:
        return "straight, nodes" if system.nodes > 1 else "straight, one node"
    if system.nodes > 1:
        return "racks" if system.is_rack else KINDS[transport(system)]
    if system.meets_over_pcie:
        return "PCIe"
    return "one node, before Hopper" if system.arch in OLD else "one node"


def band(system: System, collective: str, nbytes: int, calibrated: bool = False) -> tuple[float, float]:
    """Factors on a predicted time between which nine of ten measurements should lie."""
    low, high = (CALIBRATED if calibrated else BANDS)[kind_of(system, collective)][regime(nbytes)]
    return low, high if calibrated else high * (1 + WIDER) ** beyond(system)


def regime(nbytes: float) -> int:
    """Which of the three sizes of a row."""
    return int(nbytes >= SMALL) + int(nbytes > LARGE)


def beyond(system: System) -> float:
    """How often a system's nodes are twice as many as the model is sure of."""
    return max(0.0, log2(system.nodes / KNOWN.get(transport(system), FEW)))
