"""A node as NCCL's search sees it: how many channels of a speed its links carry.

GB/s (1e9 bytes/s).  Certain for switches of NVLink, where tables that NCCL logged agree.  Derived from its rules, and
not checked against a log: meshes, the hybrid cube, pairs, PCIe.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor, inf

from collbench.model.nccl.constants import INTEL_P2P_OVERHEAD
from collbench.topology.architectures import socket_rate
from collbench.topology.system import CUBE_RINGS, Nics, System

SLACK = 1e-6  # NCCL rounds what is left of a link to a thousandth
NEWEST_SLOT = 5  # PCIe generation of CPUs whose rate between sockets is not said
PLENTY = 10**6  # channels: more than any search asks for

Count = Callable[[float], int]  # channels of a speed


def count(capacity: float, speed: float) -> int:
    """How often a speed fits a capacity."""
    return floor(capacity / speed + SLACK) if capacity < inf else PLENTY


@dataclass(frozen=True)
class Node:
    """What the search counts with."""

    gpus: int
    port: float  # out of a GPU, and as much into it: channels that reach it end the search
    nvlink: bool  # whether channels stay on NVLink all the way
    rings: Count  # within a node alone
    chains: Count  # that begin and end at network cards, of a node among others
    within: float  # of all channels together, of whatever speed
    widest: float  # of a path: no channel is faster
    same: bool = True  # whether all rings take the GPUs in the same order
    fewest: int = 1  # rings that it looks for
    tree_port: float = inf  # of a GPU through which a tree's share to the network goes too
    nics: int = 0  # 0: one node alone
    nic: float = 0.0  # from a GPU to its card
    slots: float = 0.0  # of all GPUs, to cards

    @property
    def bound(self) -> float:
        """What all channels together can carry, of whatever speed."""
        return min(self.within, self.nics * self.nic, self.slots) if self.nics else self.within

    def cards(self, speed: float) -> int:
        """Channels that the network cards, and the slots of the GPUs beside them, carry."""
        return min(self.nics * count(self.nic, speed), count(self.slots, speed))

    def trees(self, channels: int, intra: float, inter: float) -> bool:
        """Whether as many trees fit; two GPUs without a network share them out, half in each direction."""
        if not self.nics:
            return self.rings(intra) >= ((channels + 1) // 2 if self.gpus == 2 else channels)
        loaded = channels * (intra + inter / 2) <= self.tree_port + SLACK or self.gpus == 1
        return self.cards(inter) >= channels and self.chains(intra) >= channels and loaded


def node_of(system: System, merges_ports: bool) -> Node:
    """The node of a system; its network cards only if there are other nodes."""
    cards = system.nics
    if system.nodes == 1 or cards is None:
        return _FABRICS[system.fabric](system, False)
    number, rate = _seen(system.gpus, cards, merges_ports)
    nic = min(rate, system.pcie_rate / 1e9)
    node = _FABRICS[system.fabric](system, number % system.gpus == 0)
    if system.gpus == 1:
        node = replace(node, chains=lambda speed: PLENTY)
    slots = system.gpus * system.pcie_rate / 1e9 if number >= system.gpus else inf
    return replace(node, nics=number, nic=nic, slots=slots, widest=nic)


def _seen(gpus: int, cards: Nics, merges_ports: bool) -> tuple[int, float]:
    """Network cards as NCCL sees them: one a GPU by EFA's plugin; twice as many as GPUs are ports of cards with two."""
    two_ports = merges_ports and cards.transport in ("ib", "roce") and cards.per_node == 2 * gpus
    if two_ports or (cards.transport == "efa" and cards.per_node > gpus):
        return gpus, cards.rate / 1e9 * cards.per_node / gpus
    return cards.per_node, cards.rate / 1e9


def _switch(system: System, spread: bool) -> Node:
    """NVSwitch; `spread`: every GPU has a card; then chains, whose ends load one way only, load all alike."""
    gpus, port = system.gpus, system.gpu_rate / 1e9
    shared = port * gpus / (gpus - 1) if spread and gpus > 1 else port
    return Node(
        gpus, port, gpus > 1, lambda speed: count(port, speed), lambda speed: count(shared, speed), shared, port
    )


def _mesh(system: System, spread: bool) -> Node:
    """NVLinks from each GPU to each other.

    The arcs of a mesh divide into one ring fewer than it has GPUs, but for 4, where that takes two of each arc.
    """
    gpus, port = system.gpus, system.gpu_rate / 1e9
    if gpus <= 2:
        return _switch(system, spread)
    link = port / (gpus - 1)

    def rings(speed: float) -> int:
        times = count(link, speed)
        return 6 * (times // 2) + 2 * (times % 2) if gpus == 4 else (gpus - 1) * times

    return Node(gpus, port, True, rings, lambda speed: gpus * count(link, speed), port, link, same=False)


def _cube(system: System, spread: bool) -> Node:
    """The NVLinks of a DGX-1V (V100), as many rings as go through its first GPUs."""
    rings, port = CUBE_RINGS.get(system.gpus, 0), system.gpu_rate / 1e9
    if not rings:
        return _pcie(system, spread) if system.gpus > 1 else _switch(system, spread)

    def fit(speed: float) -> int:
        return rings * count(port / rings, speed)

    return Node(system.gpus, port, True, fit, fit, port, 2 * port / rings, same=system.gpus == 2)


def _pairs(system: System, spread: bool) -> Node:
    """Bridges between pairs; more than one pair meet over PCIe, which then sets the pace of all."""
    if system.gpus <= 2:
        return _switch(system, spread)
    return replace(_pcie(system, spread), fewest=2 if system.gpus == 4 else 1)


def _pcie(system: System, spread: bool) -> Node:
    """PCIe.  Without P2P, NCCL copies through the host: the same links, all the way up to the CPU."""
    port = (system.gpu_rate if system.fabric == "pcie" else system.pcie_rate) / 1e9
    if not system.p2p:  # all the GPUs under a switch share its way up
        port /= system.sharing
    load = INTEL_P2P_OVERHEAD if system.cpu == "intel" and _meets_a_bridge(system) else 1.0
    counted = socket_rate(system.cpu, system.pcie_generation or NEWEST_SLOT)  # whatever the link carries
    between = counted / 1e9 if system.sockets > 1 else inf

    def fit(speed: float) -> int:
        return min(count(port, speed * load), count(between, speed))

    most = min(port / load, between)
    return Node(system.gpus, port, False, fit, fit, most, min(port, between), tree_port=port / load)


def _meets_a_bridge(system: System) -> bool:
    """Whether two GPUs of one socket meet at its host bridge, not at a switch below."""
    if not system.p2p:
        return True
    under = {gpu: group for group in system.switches for gpu in group}
    places = [(system.socket(gpu), under.get(gpu, (gpu,))) for gpu in range(system.gpus)]
    return any(a[0] == b[0] and a[1] != b[1] for a in places for b in places)


_FABRICS = {"nvswitch": _switch, "mesh": _mesh, "hybrid-cube": _cube, "nvlink-pairs": _pairs, "pcie": _pcie}
