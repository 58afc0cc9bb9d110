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
    "one node": ((0.73, 1.27), (0.83, 1.29), (0.93, 1.17)),
    "one node, before Hopper": ((0.81, 1.25), (0.8, 1.74), (0.84, 1.77)),
    "PCIe": ((0.76, 1.3), (0.72, 1.58), (0.88, 1.35)),
    "InfiniBand": ((0.71, 2.27), (0.74, 2.41), (0.85, 1.19)),
    "RoCE": ((0.9, 1.44), (0.79, 1.31), (0.76, 1.16)),
    "Slingshot": ((0.42, 1.59), (0.33, 3.45), (0.88, 1.95)),
    "EFA": ((0.48, 2.04), (0.66, 1.73), (0.71, 1.2)),
    "TCP": ((0.78, 1.24), (0.4, 4.77), (0.84, 1.31)),
    "racks": ((0.74, 3.14), (0.74, 2.15), (0.95, 2.71)),
    "straight, one node": ((0.62, 1.12), (0.65, 2.43), (0.85, 1.66)),
    "straight, nodes": ((0.77, 3.44), (0.74, 2.12), (0.92, 2.51)),
}
"""Nothing of the machine was measured."""
CALIBRATED: Mapping[str, Factors] = {
    "one node": ((0.9, 1.26), (0.89, 1.22), (0.93, 1.07)),
    "one node, before Hopper": ((0.95, 1.05), (0.74, 1.27), (0.91, 1.45)),
    "PCIe": ((0.95, 1.2), (0.8, 1.36), (0.95, 1.09)),
    "InfiniBand": ((0.94, 1.63), (0.88, 1.75), (0.89, 1.09)),
    "RoCE": ((0.95, 1.4), (0.89, 1.12), (0.95, 1.39)),
    "Slingshot": ((0.41, 1.43), (0.33, 2.64), (0.7, 1.22)),
    "EFA": ((0.74, 1.11), (0.78, 1.92), (0.75, 1.08)),
    "TCP": ((0.92, 1.12), (0.71, 1.53), (0.95, 1.15)),
    "racks": ((0.92, 2.38), (0.72, 1.52), (0.89, 1.2)),
    "straight, one node": ((0.88, 1.05), (0.92, 1.4), (0.74, 1.05)),
    "straight, nodes": ((0.43, 2.39), (0.41, 1.15), (0.95, 1.17)),
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

SEEN = {"slingshot": 512}
FEW = 16
"""Nodes up to which sweeps were published, by transport; beyond, each doubling widens the band above by `WIDER`."""
WIDER = 0.1


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
    return low, high if calibrated else high * _beyond(system)


def regime(nbytes: float) -> int:
    """Which of the three sizes of a row."""
    return int(nbytes >= SMALL) + int(nbytes > LARGE)


def _beyond(system: System) -> float:
    """What the band above is wider for more nodes than any sweep had."""
    return float((1 + WIDER) ** max(0.0, log2(system.nodes / SEEN.get(transport(system), FEW))))
