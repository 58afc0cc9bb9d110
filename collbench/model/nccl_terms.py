"""The equation's terms for NCCL: choice by size, latency and bandwidth.

NCCL's own figures (nccl_tuner.py) rank its options for each release, but hardware does not change with the release.
So an algorithm's rate is that of its links, if known, times a fitted efficiency.

All-to-all, send-receive, gather and scatter are not in NCCL's table: it sends directly from rank to rank. Their time
is that of the busiest resource: a GPU's link, the root's link, or a node's network cards (DIRECT).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from collbench.model.constants import (
    CONSTANTS,
    EAGER,
    OLD,
    Constants,
    alpha_net,
    amd_constants,
    driven,
    issue,
    kappa,
    launch,
    place,
    transport,
    wait,
)
from collbench.model.equation import ENDLESS, SIZES, Floats, Terms
from collbench.model.handwritten import copied
from collbench.model.nccl_channels import meets_a_bridge
from collbench.model.nccl_releases import release
from collbench.model.nccl_tuner import FAST_CARD, MICROSECOND, SIMPLE, Option, options
from collbench.model.schedule import NcclSchedule, schedule_of
from collbench.topology.products import capability, is_amd
from collbench.topology.system import System

PACKED = {"simple": 1.0, "ll128": 120 / 128, "ll": 0.5}  # fraction of the bytes on a link that are data, by protocol
COPY = 3e-6  # seconds until a copy of nothing is done, its launch hidden


@dataclass(frozen=True, eq=False)
class Chosen:
    """NCCL's choice at each of SIZES."""

    options: tuple[Option, ...]
    which: npt.NDArray[np.intp]  # index into options
    channels: Floats  # that run
    risen: Floats  # seconds by which its latency is higher than that of a small message
    algorithms: tuple[str, ...]
    protocols: tuple[str, ...]

    def each(self, value: Callable[[Option], float]) -> Floats:
        """Return the chosen option's value at every one of SIZES."""
        return np.array([value(option) for option in self.options], np.float64)[self.which]


@lru_cache(maxsize=256)
def choose(system: System, collective: str) -> Chosen:
    """Return the option with the least time by NCCL's own estimate, at each of SIZES."""
    usable = options(system, collective)
    which = np.stack([option.seconds(SIZES) for option in usable]).argmin(axis=0)
    channels = np.choose(which, [option.channels_at(SIZES) for option in usable])
    risen = np.choose(which, [option.risen(SIZES) for option in usable])
    names = np.array([(option.algorithm, option.protocol) for option in usable])[which].T.tolist()
    return Chosen(usable, which, channels, risen, *map(tuple, names))


@lru_cache(maxsize=256)
def terms(system: System, collective: str) -> Terms:
    """Return the terms of the equation for a collective of all ranks of the system."""
    return terms_by(CONSTANTS, system, collective)


def terms_by(constants: Constants, system: System, collective: str) -> Terms:
    """Return the terms with other constants than those of the package."""
    constants = amd_constants(constants) if is_amd(system.arch) else constants
    if system.ranks == 1:
        return _one_rank(system, constants)
    schedule = schedule_of(collective)
    if schedule.direct:
        return _direct_terms(system, schedule.direct, constants)
    chosen = choose(system, collective)
    each = chosen.each
    rates = each(lambda option: rate(system, collective, option, constants))
    if system.nodes == 1 or system.channels:
        lanes = each(lambda option: _lane(system, option, schedule, constants))
        rates = _slower(rates, lanes * chosen.channels)

    # A message is a rank's share of the array in a ring, and all of it in a tree.
    shares = each(lambda option: system.ranks if option.algorithm == "ring" and schedule.rounds else 1)
    eager = each(lambda option: _network(system, option, schedule, constants)[0])
    later = each(lambda option: _network(system, option, schedule, constants)[1])
    return Terms(
        issue=issue(system, chosen.channels, constants),
        launch=launch(system, constants),
        latency=each(lambda option: _latency(system, option, schedule, constants)),
        network=np.where(EAGER * shares > SIZES, eager, later) + chosen.risen,
        fill=each(lambda option: _fill(system, option, schedule, constants)),
        full=constants["full"] if system.nodes > 1 or system.is_rack else ENDLESS,
        rate=rates,
        limit=each(lambda option: limit(system, collective, option.algorithm)),
        sliced=each(lambda option: _sliced(system, option, schedule, constants)),
        algorithms=chosen.algorithms,
        protocols=chosen.protocols,
    )


def _slower(first: Floats, second: Floats) -> Floats:
    """Return the rate of two resources together, (P^-5 + N^-5)^(-1/5): the slower's, or less where they are alike."""
    # By products, since powers take several times as long.
    slower = np.minimum(first, second)
    ratio = slower / np.maximum(first, second)
    return np.asarray(slower * (1 + ratio * (ratio * ratio) ** 2) ** (-1 / 5), np.float64)


def _latency(system: System, option: Option, schedule: NcclSchedule, constants: Constants) -> float:
    """Latency of an option in seconds, without the network's excess over NCCL's own figure."""
    # Within a node a ring's steps are known better than by NCCL's figures.
    if _is_ring_of_a_node(system, option):
        return constants[f"start{place(system)}"] + _steps(system, option, schedule, constants)
    return option.base + option.inside + option.inter * _depth(system, option, schedule) + wait(system, constants)


def _is_ring_of_a_node(system: System, option: Option) -> bool:
    return system.nodes == 1 and option.algorithm == "ring"


def _steps(system: System, option: Option, schedule: NcclSchedule, constants: Constants) -> float:
    """Seconds of a ring's steps within a node, one after the other, without bytes."""
    return constants[f"step_{option.protocol}{place(system)}"] * schedule.steps(system.ranks)


def _sliced(system: System, option: Option, schedule: NcclSchedule, constants: Constants) -> float:
    """Seconds of steps whose latency the transfer hides: with Simple half a chunk moves while the other half waits."""
    hides = option.protocol == "simple" and _is_ring_of_a_node(system, option)
    return _steps(system, option, schedule, constants) if hides else 0.0


def _lane(system: System, option: Option, schedule: NcclSchedule, constants: Constants) -> float:
    """Bytes/s of the array that one channel passes on: in a ring with k steps, k + 1 shares of every rank."""
    if not (system.channels or _is_ring_of_a_node(system, option)):
        return np.inf
    work = 1.0
    # LL's packets are seen to wait once for the array, however often it goes around.
    if schedule.rounds and option.protocol != "ll":
        work = (schedule.steps(system.ranks) + 1) / system.ranks
    return constants[f"lane_{option.protocol}{place(system)}"] / work


def _one_rank(system: System, constants: Constants) -> Terms:
    memory = np.full_like(SIZES, copied(system) / 2)
    return Terms(
        issue=issue(system, np.zeros_like(SIZES), constants),
        launch=launch(system, constants),
        latency=np.full_like(SIZES, COPY),
        rate=memory,
        limit=memory,
        algorithms=("copy",) * len(SIZES),
        protocols=("",) * len(SIZES),
    )


def _network(system: System, option: Option, schedule: NcclSchedule, constants: Constants) -> tuple[float, float]:
    """Seconds that an option's steps between nodes take longer than NCCL counts: eager ones, and with a rendezvous."""
    if system.nodes == 1:
        return 0.0, 0.0
    depth = _depth(system, option, schedule)
    hop = release(system.nccl).net["ring"][SIMPLE] * MICROSECOND
    # NCCL's figure for NVLSTree's steps includes more than the network.
    counted = min(option.inter, option.hops * hop) * depth
    return alpha_net(system, option.hops * depth, constants, counted)


def _fill(system: System, option: Option, schedule: NcclSchedule, constants: Constants) -> float:
    """Return the square root of the seconds to fill an option's pipeline, without the term of its bytes.

    They pass until the last rank has its first bytes.
    """
    _, network = _network(system, option, schedule, constants)
    passes = 1.0
    if option.algorithm != "ring":
        first = option.base + option.inside + option.inter * _depth(system, option, schedule) + network
    elif schedule.rounds:
        # They go around once, and chunks are as large, however often a ring goes around.
        passes = schedule.sent(system.ranks)
        first = option.base + (option.inside + option.inter) / schedule.rounds + network / schedule.rounds
    else:
        first = option.base + option.inside * (system.ranks - 1) + option.inter * option.hops + network
    return kappa(system, option.algorithm, option.protocol, constants) * sqrt(first / passes)


def _depth(system: System, option: Option, schedule: NcclSchedule) -> float:
    """How many more steps between nodes there are than NCCL counts."""
    # A share that goes once around a ring leaves out one link.  Where nodes have several GPUs that is one within a
    # node, and so the share passes all nodes.
    if option.algorithm == "ring" and schedule.rounds == 1 and min(system.nodes, system.gpus) > 1:
        return system.nodes / (system.nodes - 1)
    if option.algorithm not in ("tree", "nvlstree") or system.nodes < 2:
        return 1.0
    # NCCL rounds the depth of trees down; here times do not jump with nodes.
    return float(np.log2(system.nodes) / np.floor(np.log2(system.nodes)))


# Rates: bytes of the array per second.


def rate(system: System, collective: str, option: Option, constants: Constants = CONSTANTS) -> float:
    """Return the bytes/s of the array that an option reaches; its limit apart."""
    if system.nodes > 1 and system.nics:
        return _rate_between_nodes(system, collective, option, constants)
    if option.algorithm == "nvls" and schedule_of(collective).both_ways:
        return _nvls_rate(system, constants)
    if system.meets_over_pcie:
        return _pcie_rate(system, collective, option, constants)
    reached = constants["eta_ring"]
    if is_amd(system.arch) and option.algorithm == "ring":
        return system.pace / schedule_of(collective).sent(system.ranks) * PACKED[option.protocol] * reached
    if option.algorithm == "tree":
        reached = constants["eta_tree"]
    elif option.protocol != "simple" and capability(system.arch) < 90:
        reached = constants["eta_low_old"]
    return option.rate * reached * _rack_factor(system, constants)


def limit(system: System, collective: str, algorithm: str = "ring") -> float:
    """Return the bytes/s of the array that the busiest link carries at most, at the rates the system states."""
    schedule, gpus = schedule_of(collective), system.gpus
    sent = schedule.sent(system.ranks)
    if algorithm.startswith("nvls") and schedule.both_ways:
        # The switch adds: a GPU sends all of its input, and its shard of the result to all.
        sent = 1 + 1 / gpus
    fastest = system.pace / sent if gpus > 1 else np.inf
    if system.nodes > 1 and system.nics:
        leaving = 1.0 if algorithm == "collnet" else schedule.sent(system.nodes)
        fastest = min(fastest, system.nics.rate * system.nics.per_node / leaving)
    return float(fastest)


def _nvls_rate(system: System, constants: Constants) -> float:
    """Return the rate where switches add: a port carries the GPU's input, and its shard of the result to all."""
    eta = constants["eta_nvls" + ("_new" if capability(system.arch) >= 100 else "")]
    return eta * _rack_factor(system, constants) * system.gpu_rate / (1 + 1 / system.gpus)


def _rack_factor(system: System, constants: Constants) -> float:
    """Return the factor by which a large domain of NVLinks reaches less than the GPUs of a board."""
    return constants["eta_rack"] if system.is_rack else 1.0


def _pcie_rate(system: System, collective: str, option: Option, constants: Constants) -> float:
    """The rate of the slowest link of a ring, whatever speed of NCCL's search fits it."""
    schedule, link = schedule_of(collective), _slowest_link(system, constants)
    if system.p2p:
        return link / schedule.sent(system.ranks) * PACKED[option.protocol] * constants["eta_pcie"]
    if not schedule.rounds and system.ranks == 2:
        return link * PACKED[option.protocol] * constants["eta_host_one"]
    link = min(link, system.pace / system.sharing)
    return link / schedule.sent(system.ranks) * PACKED[option.protocol] * constants["eta_host"]


def _slowest_link(system: System, constants: Constants) -> float:
    """Bytes/s of the slowest link of a ring in a node: out of a GPU, or over PCIe past a host bridge or to a socket."""
    link = system.pace
    if system.meets_over_pcie and system.sockets > 1:
        link = min(link, system.between_sockets)
    return min(link, system.pace * constants["eta_bridge"]) if system.p2p and _is_bridged(system) else link


def _is_bridged(system: System) -> bool:
    """Whether GPUs meet at the host bridge of an Intel CPU, which passes on less than a slot does."""
    return system.meets_over_pcie and system.cpu == "intel" and meets_a_bridge(system)


def _rate_between_nodes(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Return what ports and cards carry together, but no more packets than NCCL counts with."""
    port = _port_rate(system, collective, option, constants)
    cards = _cards_rate(system, collective, option, constants)
    together = float(_slower(np.array(port), np.array(cards)))
    reached = constants["eta_net_tcp" if transport(system) in ("tcp", "tcpx") else "eta_net"]
    if transport(system) == "slingshot":
        reached = constants["eta_net_slingshot_old" if system.arch in OLD else "eta_net_slingshot"]
        if option.protocol == "ll":
            reached *= constants["eta_ll_slingshot"]
    if option.protocol == "simple" or (option.algorithm, option.protocol) == ("ring", "ll128"):
        return together * reached * PACKED[option.protocol]
    return min(together * reached * PACKED[option.protocol], option.rate * constants["eta_low_net"])


def _port_rate(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Bytes/s of the array that a GPU's port carries of an algorithm."""
    if option.algorithm == "nvlstree" or (option.algorithm == "collnet" and system.adds):
        return _nvls_rate(system, constants)
    if system.gpus == 1 and system.fabric != "pcie":
        return np.inf
    sent = schedule_of(collective).sent(system.ranks)
    if option.algorithm in ("tree", "collnet"):
        sent = 2 * (system.gpus - 1) / system.gpus if system.gpus > 1 else _forked(system)
    # NCCL's figure for an NVLink is what one node's rings reach; with other nodes they were seen to carry more.
    reached = 1.0 if system.meets_over_pcie else constants["eta_port_old" if system.arch in OLD else "eta_port"]
    return _slowest_link(system, constants) * reached * _rack_factor(system, constants) / sent


def _cards(system: System, constants: Constants) -> float:
    """Bytes/s of all cards of a node that its ranks use, or of a rack: behind sockets, and among many nodes."""
    assert system.nics
    together = system.nics.rate * system.nics.per_node
    # The host copies to a card's sockets before the card sends.
    if transport(system) == "tcp":
        together /= 1 + system.nics.rate / constants["socket"]
    if transport(system) == "slingshot":
        together /= (1 + (system.nodes / constants["crowd_slingshot"]) ** 4) ** 0.25
    return together


def _cards_rate(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Bytes/s of the array that all cards of a node carry."""
    assert system.nics
    together = _cards(system, constants)
    # A rack's channels are few, and leave it through the cards of a GPU each.
    if system.is_rack:
        gpus = constants["gpus_rack"] * (2 if system.nodes == 2 else 1)
        together *= min(1.0, gpus / system.gpus)
    # LL's packets are written to the host's memory at once, whether or not cards read the GPUs' memory.
    if not system.nics.gdr and option.protocol == "simple":
        staged = system.pcie_rate * constants["eta_stage"] * min(system.gpus, system.nics.per_node)
        together = min(together, staged)
    # Switches of the network add, so a node sends the array once and gets the sum once.
    if option.algorithm == "collnet":
        return together * constants["eta_sharp"]
    if option.algorithm in ("tree", "nvlstree"):
        faulty = option.algorithm == "nvlstree" and system.nodes > 2 and together / system.gpus >= FAST_CARD
        return together / _forked(system) * (release(system.nccl).nvlstree_reaches if faulty else 1.0)
    return together / schedule_of(collective).sent(system.ranks)


def _forked(system: System) -> float:
    """How often the array leaves the busiest node of two trees, each of which carries half of it up and down."""
    return min(2.0, system.nodes / 2)


# Sends from rank to rank, outside NCCL's table.


def _direct_inside(system: System, constants: Constants) -> float:
    """Return the rate that is reached within a node; of a PCIe switch's way to the host, at most its share."""
    return constants["eta_direct"] if system.p2p else min(constants["eta_direct_host"], 1 / system.sharing)


def _direct_outside(system: System, constants: Constants) -> float:
    """Return the share that is reached of a node's network cards."""
    return constants["eta_direct_slingshot"] if transport(system) == "slingshot" else constants["eta_direct_net"]


def _cards_time(system: System, constants: Constants) -> float:
    """Seconds per byte on all network cards of a node; 0 where nothing leaves it."""
    return 1 / _cards(system, constants) if system.nics and system.nodes > 1 else 0.0


def _alltoall_time(system: System, constants: Constants) -> float:
    ranks, gpus = system.ranks, system.gpus
    inside = (gpus - 1) / ranks / system.pace / _direct_inside(system, constants)
    if system.nodes == 1 and system.p2p and _is_bridged(system):
        leaving = system.sharing * (gpus - system.sharing) / gpus
        inside = max(inside, leaving / system.pace / constants["eta_bridge"])
    outside = (ranks - gpus) / ranks * gpus * _cards_time(system, constants) / _direct_outside(system, constants)
    return max(inside, outside)


def _sendrecv_time(system: System, constants: Constants) -> float:
    between = 1 / min(system.to_next, system.nics.rate) if system.nics and system.nodes > 1 else 0.0
    return max(1 / system.to_next / _direct_inside(system, constants), between / constants["eta_pair_net"])


def _rooted_time(system: System, constants: Constants) -> float:
    """Seconds per byte on the root's link, or on the card or cards that its data takes."""
    ranks, gpus = system.ranks, system.gpus
    inside = (ranks - 1) / ranks / system.pace / _direct_inside(system, constants)
    card = cards = _cards_time(system, constants)
    if system.nics and cards:
        card = max(cards, 1 / max(system.nics.rate, 1 / (gpus * cards)))
    return max(inside, (ranks - gpus) / ranks * card / _direct_outside(system, constants))


DIRECT = {"alltoall": _alltoall_time, "sendrecv": _sendrecv_time, "rooted": _rooted_time}
"""Seconds per byte of the array on the busiest resource; only with `sendrecv` no rank has messages for all others."""
DIRECT_CHANNELS, PCIE_CHANNELS = (32, 32), (4, 2)
"""Channels that messages sent straight share, and the most of one message; and where GPUs meet over PCIe."""
LEAST_PART, MOST_PART = 64 << 10, 16 << 20
"""Bytes of a message on each of its channels: for less it has fewer, for more it has more (NCCL's `addP2pToPlan`)."""


def _direct_lanes(system: System, messages: int, constants: Constants) -> Floats:
    """Return the rate in bytes/s of the array through the channels of `messages` messages, a rank's own included."""
    # Messages to all ranks have channels of their own, a power of two; large ones have more, which they share.
    every, most = PCIE_CHANNELS if system.meets_over_pcie else DIRECT_CHANNELS
    share, nbytes = max(1.0, 2.0 ** np.floor(np.log2(every / system.ranks))), SIZES / messages
    channels = np.clip(nbytes / MOST_PART, share, most)
    if release(system.nccl).p2p_parts:
        channels = np.clip(nbytes // LEAST_PART, 1, channels)
    channels = np.minimum(channels * messages, system.channels or np.inf)
    return np.asarray(channels * constants[f"lane_direct{place(system)}"], np.float64)


def _direct_terms(system: System, kind: str, constants: Constants) -> Terms:
    to_all, per_byte = kind != "sendrecv", DIRECT[kind](system, constants)
    messages = system.ranks if to_all else 1
    peers = max(1, messages - 1)
    near = min(peers, system.gpus - 1)
    through = np.full_like(SIZES, 1 / per_byte)
    reached = _direct_inside(system, constants)
    if system.nodes == 1:
        # The first bytes come as a ring's with LL do.
        filling = constants[f"start{place(system)}"] + constants[f"step_ll{place(system)}"] + constants["direct"]
        filling += constants["peer"] * near
        through = _slower(through, _direct_lanes(system, messages, constants))
        eager = later = 0.0
    else:
        filling = constants["first"]
        reached = min(_direct_outside(system, constants), reached)
        eager, later = alpha_net(system, 1, constants)
    posted = "post_net_new" if place(system) == "_new" else "post_net"
    post = constants["post_slingshot" if transport(system) == "slingshot" else posted]
    kappa_direct = constants["kappa_direct" if to_all else "kappa_pair"]
    return Terms(
        issue=issue(system, np.zeros_like(SIZES), constants) + driven(system) * constants["post"] * peers,
        launch=launch(system, constants),
        latency=np.full_like(SIZES, filling + post * (peers - near)),
        network=np.where(EAGER * messages > SIZES, eager, later),
        fill=np.full_like(SIZES, kappa_direct * filling**0.5),  # of the node alone: posts go on while bytes move
        rate=through,
        limit=np.full_like(SIZES, 1 / (per_byte * reached)),
        algorithms=("direct",) * len(SIZES),
        protocols=("simple",) * len(SIZES),
    )
