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
    "one node": ((0.72, 1.31), (0.75, 1.33), (0.92, 1.23)),
    "one node, before Hopper": ((0.76, 1.26), (0.74, 1.54), (0.83, 2.01)),
    "PCIe": ((0.73, 1.36), (0.68, 1.64), (0.85, 1.59)),
    "InfiniBand": ((0.67, 2.78), (0.69, 3.35), (0.83, 1.26)),
    "RoCE": ((0.48, 2.72), (0.48, 3.09), (0.73, 1.67)),
    "Slingshot": ((0.38, 2.82), (0.32, 4.74), (0.74, 2.52)),
    "EFA": ((0.45, 2.47), (0.52, 2.99), (0.7, 1.59)),
    "TCP": ((0.53, 2.26), (0.37, 5.29), (0.76, 1.91)),
    "racks": ((0.35, 4.1), (0.3, 6.99), (0.83, 2.85)),
    "straight, one node": ((0.68, 1.26), (0.72, 2.05), (0.82, 1.75)),
    "straight, nodes": ((0.52, 3.46), (0.53, 3.62), (0.81, 2.64)),
}
"""Nothing of the machine was measured."""
CALIBRATED: Mapping[str, Factors] = {
    "one node": ((0.87, 1.42), (0.89, 1.24), (0.91, 1.08)),
    "one node, before Hopper": ((0.92, 1.21), (0.73, 1.33), (0.87, 1.48)),
    "PCIe": ((0.92, 1.39), (0.74, 1.41), (0.87, 1.35)),
    "InfiniBand": ((0.91, 2.61), (0.86, 2.33), (0.88, 1.09)),
    "RoCE": ((0.56, 2.01), (0.52, 1.99), (0.78, 1.36)),
    "Slingshot": ((0.43, 2.0), (0.34, 2.97), (0.62, 1.3)),
    "EFA": ((0.6, 1.51), (0.52, 2.3), (0.72, 1.16)),
    "TCP": ((0.61, 1.78), (0.5, 2.16), (0.81, 1.25)),
    "racks": ((0.42, 2.6), (0.32, 3.37), (0.64, 1.37)),
    "straight, one node": ((0.87, 1.25), (0.82, 1.46), (0.77, 1.23)),
    "straight, nodes": ((0.42, 2.33), (0.37, 1.87), (0.8, 1.23)),
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
