"""Bytes per second of an algorithm: what ports, cards and slots carry of it, and how much of that is reached.

NCCL's own figures (nccl/table.py) rank its options, release by release; machines do not change with the release.  So
where an algorithm uses links that are known, its rate is theirs: between nodes, ports of GPUs and network cards hinder
each other where both are near their limits.
"""

import numpy as np

from collbench.model.constants import CONSTANTS, OLD, Constants, transport
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
    return option.rate * _eta(system, option, constants) * _racked(system, constants)


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
    return eta * _racked(system, constants) * system.gpu_rate / (1 + 1 / system.gpus)


def _racked(system: System, constants: Constants) -> float:
    """What a large domain of NVLinks reaches less than the GPUs of one board."""
    return constants.eta_rack if system.is_rack else 1.0


def _pcie(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Through slots, at the rate of the slowest link of a ring, whatever speed of NCCL's ladder fits it."""
    schedule, link = schedule_of(collective), system.pace
    if system.sockets > 1:
        link = min(link, system.between_sockets)
    if system.p2p:
        return link / schedule.sent(system.ranks) * PACKED[option.protocol] * constants.eta_pcie
    if not schedule.rounds and system.ranks == 2:
        return link * PACKED[option.protocol] * constants.eta_host_one
    link = min(link, system.pace / system.sharing)
    return link / schedule.sent(system.ranks) * PACKED[option.protocol] * constants.eta_host


def _between(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Over nodes: what ports and cards carry together, but no more packets than NCCL counts with."""
    port, cards = _port(system, collective, option, constants), _cards(system, collective, option, constants)
    together = float((port**-SHARPNESS + cards**-SHARPNESS) ** (-1 / SHARPNESS))
    reached = constants.eta_net
    if transport(system) == "slingshot":
        reached = constants.eta_net_slingshot_old if system.arch in OLD else constants.eta_net_slingshot
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
    near = system.pace * _racked(system, constants) if system.gpus > 1 or system.fabric == "pcie" else np.inf
    return near / sent


def _through_host(system: System, constants: Constants) -> float:
    """Bytes/s between a node's cards and the GPUs that each is nearest to."""
    assert system.nics
    return system.pcie_rate * constants.eta_stage * min(system.gpus, system.nics.per_node)


def _cards(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Bytes/s of the array that all cards of a node carry: in the middle of two trees, the array goes out twice."""
    assert system.nics
    every = system.nics.rate * system.nics.per_node
    if not system.nics.gdr and option.protocol == "simple":  # LL's packets are written to the host's memory at once
        every = min(every, _through_host(system, constants))
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
