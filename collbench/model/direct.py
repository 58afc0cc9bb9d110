"""Collectives that NCCL carries out by sends from rank to rank, which its cost table does not cover.

Every byte goes straight from its sender to its receiver: what takes longest is the busiest of a GPU's own link, the
root's, and a node's network cards.
"""

import numpy as np

from collbench.model.constants import Constants, alpha_net, issue, launch
from collbench.model.equation import SIZES, Terms
from collbench.topology.system import System

COLLECTIVES = ("alltoall", "sendrecv", "gather", "scatter")

FIRST = 12e-6  # seconds until the first peer's bytes are there: a kernel, and Simple's hop
PEER = 0.6e-6  # that every further peer in the node adds
POST = 0.9e-6  # that every peer adds on the host
KAPPA = 1.0  # of the latency in a node alone: posts go on while bytes move
ETA = 0.95  # of NVLink and the slots; 0.93 to 0.97 published for A100 and H100
ETA_NET = 0.92
ETA_HOST = 0.4  # of a slot, through the host's memory: every byte is written there and read again


def _per_byte(system: System, collective: str) -> float:
    """Seconds per byte of the array on the busiest resource, all at the rates that the system states."""
    ranks, gpus = system.ranks, system.gpus
    near = 1.0 / ranks * (gpus - 1)
    far = (ranks - gpus) / ranks
    link, cards = 1 / system.pace, 0.0
    if system.nics and system.nodes > 1:
        cards = 1 / (system.nics.rate * system.nics.per_node)
    if collective == "alltoall":
        return max(near * link / _inside(system), far * gpus * cards / ETA_NET)
    if collective == "sendrecv":
        one = 1 / min(system.to_next, system.nics.rate) if system.nics and cards else 0.0
        return max(1 / system.to_next / _inside(system), one / ETA_NET)
    own = max(cards, 1 / max(system.nics.rate, 1 / (gpus * cards))) if system.nics and cards else 0.0
    return max((near + far) * link / _inside(system), far * own / ETA_NET)


def _inside(system: System) -> float:
    return ETA if system.p2p else ETA_HOST


def terms(system: System, collective: str, known: Constants) -> Terms:
    """Parts of the equation for one of COLLECTIVES."""
    peers = system.ranks - 1 if collective != "sendrecv" else 1
    near = min(peers, system.gpus - 1)
    per_byte = _per_byte(system, collective)
    filling = FIRST + PEER * near
    waiting = filling + known.post_net * (peers - near)
    between = alpha_net(system, known) if system.nodes > 1 else 0.0
    driven = system.gpus if system.launch == "single-process" else 1
    return Terms(
        issue=issue(system, known) + driven * POST * peers,
        launch=launch(system, known),
        latency=np.full_like(SIZES, waiting),
        network=np.full_like(SIZES, between),
        kappa=np.full_like(SIZES, KAPPA * np.sqrt(filling / (waiting + between))),
        rate=np.full_like(SIZES, 1 / per_byte),
        limit=np.full_like(SIZES, 1 / (per_byte * min(ETA_NET, _inside(system)))),
        algorithms=("direct",) * len(SIZES),
        protocols=("simple",) * len(SIZES),
    )
