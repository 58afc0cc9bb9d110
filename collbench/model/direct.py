"""The equation's parts for collectives that NCCL carries out by sends from rank to rank, outside its cost table.

Every byte goes straight from its sender to its receiver: what takes longest is the busiest of a GPU's own link, the
root's, and a node's network cards.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from collbench.model.constants import Constants, alpha_net, issue, launch
from collbench.model.equation import SIZES, Terms
from collbench.topology.system import System

FIRST = 12e-6  # seconds until the first peer's bytes are there: a kernel, and Simple's hop
PEER = 0.6e-6  # that every further peer in the node adds
POST = 0.9e-6  # that every peer adds on the host
KAPPA = 1.0  # of the latency in a node alone: posts go on while bytes move
ETA = 0.95  # of NVLink and the slots; 0.93 to 0.97 published for A100 and H100
ETA_NET = 0.92
ETA_HOST = 0.4  # of a slot, through the host's memory: every byte is written there and read again


class Direct(NamedTuple):
    """One way to send from rank to rank."""

    per_byte: Callable[[System], float]
    """Seconds per byte of the array on the busiest resource."""
    peers: Callable[[int], int] = lambda ranks: ranks - 1
    """Ranks that the busiest rank exchanges messages with."""


def _shares(system: System) -> tuple[float, float]:
    """Of a rank's part of the array: what goes to other GPUs of its node, and what to other nodes."""
    ranks, gpus = system.ranks, system.gpus
    return 1.0 / ranks * (gpus - 1), (ranks - gpus) / ranks


def _inside(system: System) -> float:
    """What is reached of the rate of the links within a node."""
    return ETA if system.p2p else ETA_HOST


def _cards(system: System) -> float:
    """Seconds per byte on all network cards of a node; 0 where nothing leaves it."""
    return 1 / (system.nics.rate * system.nics.per_node) if system.nics and system.nodes > 1 else 0.0


def _alltoall(system: System) -> float:
    near, far = _shares(system)
    return max(near * (1 / system.pace) / _inside(system), far * system.gpus * _cards(system) / ETA_NET)


def _sendrecv(system: System) -> float:
    one = 1 / min(system.to_next, system.nics.rate) if system.nics and system.nodes > 1 else 0.0
    return max(1 / system.to_next / _inside(system), one / ETA_NET)


def _rooted(system: System) -> float:
    """The root's link, and the card or cards that its data takes."""
    (near, far), cards = _shares(system), _cards(system)
    own = max(cards, 1 / max(system.nics.rate, 1 / (system.gpus * cards))) if system.nics and cards else 0.0
    return max((near + far) * (1 / system.pace) / _inside(system), far * own / ETA_NET)


ALLTOALL = Direct(_alltoall)
SENDRECV = Direct(_sendrecv, peers=lambda ranks: 1)
ROOTED = Direct(_rooted)


def terms(system: System, direct: Direct, constants: Constants) -> Terms:
    """Parts of the equation for all ranks of the system."""
    peers = direct.peers(system.ranks)
    near = min(peers, system.gpus - 1)
    per_byte = direct.per_byte(system)
    filling = FIRST + PEER * near
    waiting = filling + constants.post_net * (peers - near)
    between = alpha_net(system, constants) if system.nodes > 1 else 0.0
    driven = system.gpus if system.launch == "single-process" else 1
    return Terms(
        issue=issue(system, constants) + driven * POST * peers,
        launch=launch(system, constants),
        latency=np.full_like(SIZES, waiting),
        network=np.full_like(SIZES, between),
        kappa=np.full_like(SIZES, KAPPA * np.sqrt(filling / (waiting + between))),
        rate=np.full_like(SIZES, 1 / per_byte),
        limit=np.full_like(SIZES, 1 / (per_byte * min(ETA_NET, _inside(system)))),
        algorithms=("direct",) * len(SIZES),
        protocols=("simple",) * len(SIZES),
    )
