"""The equation's parts for collectives that NCCL carries out by sends from rank to rank, outside its cost table.

Every byte goes straight from its sender to its receiver: what takes longest is the busiest of a GPU's own link, the
root's, and a node's network cards.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from collbench.model.constants import EAGER, Constants, alpha_net, driven, issue, launch, transport, wait
from collbench.model.equation import SIZES, Terms
from collbench.topology.system import System


class Direct(NamedTuple):
    """One way to send from rank to rank."""

    per_byte: Callable[[System, Constants], float]
    """Seconds per byte of the array on the busiest resource."""
    peers: Callable[[int], int] = lambda ranks: ranks - 1
    """Ranks that the busiest rank exchanges messages with."""
    kappa: str = "kappa_direct"
    """Constant of what filling costs."""


def _shares(system: System) -> tuple[float, float]:
    """Of a rank's part of the array: what goes to other GPUs of its node, and what to other nodes."""
    ranks, gpus = system.ranks, system.gpus
    return 1.0 / ranks * (gpus - 1), (ranks - gpus) / ranks


def _inside(system: System, constants: Constants) -> float:
    """What is reached of the rate of the links within a node; of a switch's way to the host, no more than its share."""
    return constants.eta_direct if system.p2p else min(constants.eta_direct_host, 1 / system.sharing)


def _outside(system: System, constants: Constants) -> float:
    """And of a node's network cards."""
    return constants.eta_direct_slingshot if transport(system) == "slingshot" else constants.eta_direct_net


def _cards(system: System) -> float:
    """Seconds per byte on all network cards of a node; 0 where nothing leaves it."""
    return 1 / (system.nics.rate * system.nics.per_node) if system.nics and system.nodes > 1 else 0.0


def _alltoall(system: System, constants: Constants) -> float:
    near, far = _shares(system)
    inside = near / system.pace / _inside(system, constants)
    return max(inside, far * system.gpus * _cards(system) / _outside(system, constants))


def _sendrecv(system: System, constants: Constants) -> float:
    one = 1 / min(system.to_next, system.nics.rate) if system.nics and system.nodes > 1 else 0.0
    return max(1 / system.to_next / _inside(system, constants), one / constants.eta_pair_net)


def _rooted(system: System, constants: Constants) -> float:
    """The root's link, and the card or cards that its data takes."""
    (near, far), cards = _shares(system), _cards(system)
    own = max(cards, 1 / max(system.nics.rate, 1 / (system.gpus * cards))) if system.nics and cards else 0.0
    return max((near + far) / system.pace / _inside(system, constants), far * own / _outside(system, constants))


ALLTOALL = Direct(_alltoall)
SENDRECV = Direct(_sendrecv, peers=lambda ranks: 1, kappa="kappa_pair")
ROOTED = Direct(_rooted)


def terms(system: System, direct: Direct, constants: Constants) -> Terms:
    """Parts of the equation for all ranks of the system."""
    peers = direct.peers(system.ranks)
    near = min(peers, system.gpus - 1)
    per_byte = direct.per_byte(system, constants)
    filling = constants.first + constants.peer * near
    kappa = float(getattr(constants, direct.kappa))
    eager, later = alpha_net(system, 1, constants) if system.nodes > 1 else (0.0, 0.0)
    cxi = "_slingshot" if transport(system) == "slingshot" else "_net"
    flat = np.zeros_like(SIZES)
    return Terms(
        issue=issue(system, flat, constants) + driven(system) * constants.post * peers,
        launch=launch(system, constants),
        latency=flat + filling + wait(system, constants) + getattr(constants, f"post{cxi}") * (peers - near),
        network=np.where(SIZES < EAGER, eager, later),
        fill=flat + kappa * filling**0.5,  # of the node alone: posts go on while bytes move
        rate=flat + 1 / per_byte,
        limit=flat + 1 / (per_byte * min(_outside(system, constants), _inside(system, constants))),
        algorithms=("direct",) * len(SIZES),
        protocols=("simple",) * len(SIZES),
    )
