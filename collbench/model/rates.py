"""Bytes per second of an algorithm: what ports, cards and slots carry of it, and how much of that is reached.

NCCL's own figures (nccl/table.py) rank its options, release by release; machines do not change with the release.  So
where an algorithm uses links that are known, its rate is theirs: between nodes, ports of GPUs and network cards hinder
each other where both are near their limits.
"""

from collections.abc import Callable

import numpy as np

from collbench.model.constants import CONSTANTS, Constants, transport
from collbench.model.nccl.option import Option
from collbench.model.schedule import schedule_of
from collbench.topology.architectures import capability
from collbench.topology.system import System

SHARPNESS = 6
"""How abruptly the slower of port and cards decides: (P^-6 + N^-6)^(-1/6)."""
PACKED = {"simple": 1.0, "ll128": 120 / 128, "ll": 0.5}
"""Of the bytes on a link, those that are data."""


def rate(system: System, collective: str, option: Option, constants: Constants = CONSTANTS) -> float:
    """Bytes/s of the array that an option reaches; its limit apart."""
    if system.nodes > 1 and system.nics:
        return _between(system, collective, option, constants)
    if option.algorithm == "nvls" and schedule_of(collective).both_ways:
        return _nvls(system, constants)
    if system.meets_over_pcie:
        return _pcie(system, collective, option, constants)
    return option.rate * _eta(system, option, constants)


def _eta(system: System, option: Option, constants: Constants) -> float:
    """Of NCCL's figure within a node of NVLinks."""
    if option.algorithm == "tree":
        return constants.eta_tree
    if option.protocol != "simple" and capability(system.arch) < 90:
        return float(getattr(constants, f"eta_{option.protocol}_old"))
    return constants.eta_ring


def _nvls(system: System, constants: Constants) -> float:
    """Where switches add, a port carries all of the own input, and the own shard of the result to all."""
    eta = constants.eta_nvls_new if capability(system.arch) >= 100 else constants.eta_nvls
    return eta * system.gpu_rate / (1 + 1 / system.gpus)


def _pcie(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Through slots: of NCCL's figure with P2P, of the slot without.

    Through the host's memory, bytes in and bytes out share the slot, so that only two ranks one of which merely sends
    have all of it.  Where no speed that NCCL tries fits the links it notes a token rate and sends all the same.
    """
    known = option.rate * option.bound / option.busbw if option.placeholder else option.rate
    if system.p2p:
        return known * constants.eta_pcie
    one_way = not schedule_of(collective).rounds and system.ranks == 2
    return min(known, limit(system, collective) * (constants.eta_host_one if one_way else constants.eta_host))


def _between(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Over nodes: what ports and cards carry together, but no more packets than NCCL counts with."""
    port, cards = _port(system, collective, option, constants), _cards(system, collective, option, constants)
    together = float((port**-SHARPNESS + cards**-SHARPNESS) ** (-1 / SHARPNESS))
    reached = constants.eta_net_slingshot if transport(system) == "slingshot" else constants.eta_net
    if option.protocol == "simple":
        return together * reached
    if option.protocol == "ll" and transport(system) == "slingshot":
        reached *= constants.eta_ll_slingshot
    return min(together * reached * PACKED[option.protocol], option.rate * constants.eta_low_net)


def _port(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Bytes/s of the array that a GPU's port carries of an algorithm."""
    if option.algorithm == "nvlstree":
        return _nvls(system, constants)
    if option.algorithm != "tree":
        sent = schedule_of(collective).sent(system.ranks)
    else:
        sent = 2 * (system.gpus - 1) / system.gpus if system.gpus > 1 else min(2, system.nodes - 1)
    return system.pace / sent if system.gpus > 1 or system.fabric == "pcie" else np.inf


def _cards(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Bytes/s of the array that all cards of a node carry: in the middle of two trees, the array goes out twice."""
    assert system.nics
    every = system.nics.rate * system.nics.per_node
    if transport(system) == "slingshot":
        every /= (1 + (system.nodes / constants.crowd_slingshot) ** 4) ** 0.25
    if option.algorithm in ("tree", "nvlstree"):
        return every / min(2, system.nodes - 1)
    return every / schedule_of(collective).sent(system.ranks)


def limit(system: System, collective: str, algorithm: str = "ring") -> float:
    """Bytes/s of the array that the busiest link carries at most, at the rates the system states."""
    schedule, gpus = schedule_of(collective), system.gpus
    sent = schedule.sent(system.ranks)
    if algorithm.startswith("nvls") and schedule.both_ways:
        sent = 1 + 1 / gpus  # the switch adds: all of the own input, and the own shard of the result to all
    rate = system.pace / sent if gpus > 1 else np.inf
    if system.nodes > 1 and system.nics:
        rate = min(rate, system.nics.rate * system.nics.per_node / schedule.sent(system.nodes))
    return float(rate)
