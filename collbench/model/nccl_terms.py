"""The terms of the equation for NCCL: which option it takes at each size, how long that waits, what rate it reaches.

NCCL's own figures (nccl_tuner.py) rank its options, release by release; machines do not change with the release.  So
where an algorithm uses links that are known, its rate is theirs, and fitted constants say how much of it is reached.

All-to-all, send-receive, gather and scatter are not in NCCL's table: it sends straight from rank to rank.  What takes
longest is then the busiest of a GPU's own link, the root's, and a node's network cards (DIRECT).
"""

from collections.abc import Sequence
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
    driven,
    issue,
    kappa,
    launch,
    place,
    transport,
    wait,
)
from collbench.model.equation import SIZES, Floats, Terms
from collbench.model.handwritten import copied
from collbench.model.nccl_channels import meets_a_bridge
from collbench.model.nccl_releases import release
from collbench.model.nccl_tuner import MICROSECOND, SIMPLE, Option, options
from collbench.model.schedule import Schedule, schedule_of
from collbench.topology.products import capability
from collbench.topology.system import System

ENDLESS = 1e9
"""Of filling that is not limited."""
PACKED = {"simple": 1.0, "ll128": 120 / 128, "ll": 0.5}
"""Fraction of the bytes on a link that are data, by protocol."""
COPY = 3e-6
"""Seconds until a copy of nothing is done, its launch hidden."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """NCCL's choice at each of SIZES."""

    options: tuple[Option, ...]
    which: npt.NDArray[np.intp]  # index into options
    channels: Floats  # that run
    risen: Floats  # seconds by which its latency is higher than that of a small message
    algorithms: tuple[str, ...]
    protocols: tuple[str, ...]

    def at_each_size(self, values: Sequence[float]) -> Floats:
        """Return the chosen option's value at every one of SIZES, from a value for each option."""
        return np.asarray(np.array(values, np.float64)[self.which])


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
    if system.ranks == 1:
        return _one_rank(system, constants)
    schedule = schedule_of(collective)
    if schedule.direct:
        return _direct_terms(system, schedule.direct, constants)
    chosen = choose(system, collective)
    at, every = chosen.at_each_size, chosen.options
    eager, later = zip(*(_network(system, option, schedule, constants) for option in every), strict=True)
    shares = [system.ranks if option.algorithm == "ring" and schedule.rounds else 1 for option in every]
    fills = [_fill(system, *known, schedule, constants) for known in zip(every, later, strict=True)]
    rates = at([rate(system, collective, option, constants) for option in every])
    if system.nodes == 1 or system.channels:
        rates = _slower(rates, at([_lane(system, option, schedule, constants) for option in every]) * chosen.channels)
    return Terms(
        issue=issue(system, chosen.channels, constants),
        launch=launch(system, constants),
        latency=at([_latency(system, option, schedule, constants) for option in every]),
        network=np.where(EAGER * at(shares) > SIZES, at(eager), at(later)) + chosen.risen,
        fill=at(fills),
        full=constants["full"] if system.nodes > 1 else ENDLESS,
        rate=rates,
        limit=at([limit(system, collective, option.algorithm) for option in every]),
        sliced=at([_sliced(system, option, schedule, constants) for option in every]),
        algorithms=chosen.algorithms,
        protocols=chosen.protocols,
    )


def _slower(first: Floats, second: Floats) -> Floats:
    """Return the rate of what two resources pass on, (P^-5 + N^-5)^(-1/5): the slower's, or less where they are alike.

    By products instead of powers, which take several times as long.
    """
    slower = np.minimum(first, second)
    ratio = slower / np.maximum(first, second)
    return np.asarray(slower * (1 + ratio * (ratio * ratio) ** 2) ** (-1 / 5), np.float64)


def _latency(system: System, option: Option, schedule: Schedule, constants: Constants) -> float:
    """Seconds that an option waits, but for what the network takes longer than NCCL counts.

    Within a node a ring's steps are known better than by NCCL's figures.
    """
    if _is_ring_of_a_node(system, option):
        return constants[f"start{place(system)}"] + _steps(system, option, schedule, constants)
    return option.base + option.inside + option.inter * _depth(system, option, schedule) + wait(system, constants)


def _is_ring_of_a_node(system: System, option: Option) -> bool:
    return system.nodes == 1 and option.algorithm == "ring"


def _steps(system: System, option: Option, schedule: Schedule, constants: Constants) -> float:
    """Seconds of a ring's steps within a node, one after the other, without bytes."""
    return constants[f"step_{option.protocol}{place(system)}"] * schedule.steps(system.ranks)


def _sliced(system: System, option: Option, schedule: Schedule, constants: Constants) -> float:
    """Seconds of steps whose latency the transfer hides: with Simple half a chunk moves while the other half waits."""
    hides = option.protocol == "simple" and _is_ring_of_a_node(system, option)
    return _steps(system, option, schedule, constants) if hides else 0.0


def _lane(system: System, option: Option, schedule: Schedule, constants: Constants) -> float:
    """Bytes/s of the array that one channel passes on: in a ring with k steps, k + 1 shares of every rank.

    LL's packets are seen to wait once for the array, however often it goes around.
    """
    if not (system.channels or _is_ring_of_a_node(system, option)):
        return np.inf
    work = (schedule.steps(system.ranks) + 1) / system.ranks if schedule.rounds and option.protocol != "ll" else 1.0
    return constants[f"lane_{option.protocol}{place(system)}"] / work


def _one_rank(system: System, constants: Constants) -> Terms:
    """Return the terms of a single rank, which copies its input."""
    zeros = np.zeros_like(SIZES)
    memory = zeros + copied(system) / 2
    return Terms(
        issue=issue(system, zeros, constants),
        launch=launch(system, constants),
        latency=zeros + COPY,
        network=zeros,
        fill=zeros,
        full=ENDLESS,
        rate=memory,
        limit=memory,
        sliced=zeros,
        algorithms=("copy",) * len(SIZES),
        protocols=("",) * len(SIZES),
    )


def _network(system: System, option: Option, schedule: Schedule, constants: Constants) -> tuple[float, float]:
    """Seconds that an option's steps between nodes take longer than NCCL counts: eager ones, and with a rendezvous."""
    if system.nodes == 1:
        return 0.0, 0.0
    depth = _depth(system, option, schedule)
    hop = release(system.nccl).net["ring"][SIMPLE] * MICROSECOND
    # What NCCL counts for NVLSTree's steps has more in it than the network.
    counted = min(option.inter, option.hops * hop) * depth
    return alpha_net(system, option.hops * depth, constants, counted)


def _fill(system: System, option: Option, network: float, schedule: Schedule, constants: Constants) -> float:
    """Return the root of the seconds that filling an option's pipeline takes, but for those of its bytes.

    They pass until the last rank has its first bytes.  Of a ring these go around once, and chunks are as large, however
    often it goes around.
    """
    passes = 1.0
    if option.algorithm != "ring":
        first = option.base + option.inside + option.inter * _depth(system, option, schedule) + network
    else:
        passes = schedule.sent(system.ranks)
        if schedule.rounds:
            first = option.base + (option.inside + option.inter) / schedule.rounds + network / schedule.rounds
        else:
            first = option.base + option.inside * (system.ranks - 1) + option.inter * option.hops + network
    return kappa(system, option.algorithm, option.protocol, constants) * sqrt(first / passes)


def _depth(system: System, option: Option, schedule: Schedule) -> float:
    """How many more steps between nodes there are than NCCL counts.

    It rounds the depth of trees down; here times do not jump with nodes.  A share that goes once around a ring leaves
    out one link; where nodes have several GPUs that is one within a node, and so the share passes all nodes.
    """
    if option.algorithm == "ring" and schedule.rounds == 1 and min(system.nodes, system.gpus) > 1:
        return system.nodes / (system.nodes - 1)
    if option.algorithm not in ("tree", "nvlstree") or system.nodes < 2:
        return 1.0
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
        fastest = min(fastest, system.nics.rate * system.nics.per_node / schedule.sent(system.nodes))
    return float(fastest)


def _nvls_rate(system: System, constants: Constants) -> float:
    """Return the rate where switches add: a port carries the GPU's input, and its shard of the result to all."""
    eta = constants["eta_nvls_new"] if capability(system.arch) >= 100 else constants["eta_nvls"]
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
    kind = "_slingshot" + ("_old" if system.arch in OLD else "") if transport(system) == "slingshot" else ""
    reached = constants[f"eta_net{kind}"]
    if option.protocol == "simple":
        return together * reached
    if option.protocol == "ll" and transport(system) == "slingshot":
        reached *= constants["eta_ll_slingshot"]
    return min(together * reached * PACKED[option.protocol], option.rate * constants["eta_low_net"])


def _port_rate(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Bytes/s of the array that a GPU's port carries of an algorithm."""
    if option.algorithm == "nvlstree":
        return _nvls_rate(system, constants)
    if option.algorithm != "tree":
        sent = schedule_of(collective).sent(system.ranks)
    elif system.gpus > 1:
        sent = 2 * (system.gpus - 1) / system.gpus
    else:
        sent = _forked(system)
    if system.gpus == 1 and system.fabric != "pcie":
        return np.inf / sent
    return _slowest_link(system, constants) * _rack_factor(system, constants) / sent


def _cards(system: System, constants: Constants) -> float:
    """Bytes/s of all cards of a node that its ranks use, or of a rack: behind sockets, and among many nodes."""
    assert system.nics
    every = system.nics.rate * system.nics.per_node
    if transport(system) == "tcp":  # the host copies to a card's sockets before the card sends
        every /= 1 + system.nics.rate / constants["socket"]
    if transport(system) == "slingshot":
        every /= (1 + (system.nodes / constants["crowd_slingshot"]) ** 4) ** 0.25
    return every


def _cards_rate(system: System, collective: str, option: Option, constants: Constants) -> float:
    """Bytes/s of the array that all cards of a node carry: in the middle of two trees, the array goes out twice."""
    assert system.nics
    every = _cards(system, constants)
    if system.is_rack:  # whose channels are few, and leave it through a card each
        every *= min(1.0, constants["cards_rack"] / system.nics.per_node)
    # LL's packets are written to the host's memory at once, whether or not cards read the GPUs' memory.
    if not system.nics.gdr and option.protocol == "simple":
        staged = system.pcie_rate * constants["eta_stage"] * min(system.gpus, system.nics.per_node)
        every = min(every, staged)
    if option.algorithm in ("tree", "nvlstree"):
        return every / _forked(system)
    return every / schedule_of(collective).sent(system.ranks)


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


def _shares(system: System) -> tuple[float, float]:
    """Return the shares of a rank's part of the array that go to GPUs of its node, and to other nodes."""
    ranks, gpus = system.ranks, system.gpus
    return 1.0 / ranks * (gpus - 1), (ranks - gpus) / ranks


def _cards_time(system: System, constants: Constants) -> float:
    """Seconds per byte on all network cards of a node; 0 where nothing leaves it."""
    return 1 / _cards(system, constants) if system.nics and system.nodes > 1 else 0.0


def _alltoall_time(system: System, constants: Constants) -> float:
    near, far = _shares(system)
    inside = near / system.pace / _direct_inside(system, constants)
    if system.nodes == 1 and system.p2p and _is_bridged(system):
        leaving = system.sharing * (system.gpus - system.sharing) / system.gpus
        inside = max(inside, leaving / system.pace / constants["eta_bridge"])
    return max(inside, far * system.gpus * _cards_time(system, constants) / _direct_outside(system, constants))


def _sendrecv_time(system: System, constants: Constants) -> float:
    between = 1 / min(system.to_next, system.nics.rate) if system.nics and system.nodes > 1 else 0.0
    return max(1 / system.to_next / _direct_inside(system, constants), between / constants["eta_pair_net"])


def _rooted_time(system: System, constants: Constants) -> float:
    """Seconds per byte on the root's link, or on the card or cards that its data takes."""
    (near, far), cards = _shares(system), _cards_time(system, constants)
    card = max(cards, 1 / max(system.nics.rate, 1 / (system.gpus * cards))) if system.nics and cards else 0.0
    inside = (near + far) / system.pace / _direct_inside(system, constants)
    return max(inside, far * card / _direct_outside(system, constants))


DIRECT = {"alltoall": _alltoall_time, "sendrecv": _sendrecv_time, "rooted": _rooted_time}
"""Seconds per byte of the array on the busiest resource; only with `sendrecv` no rank has messages for all others."""
DIRECT_CHANNELS, PCIE_CHANNELS = (32, 32), (4, 2)
"""Channels that messages sent straight share, and the most of one message; and where GPUs meet over PCIe."""
LEAST_PART, MOST_PART = 64 << 10, 16 << 20
"""Bytes of a message on each of its channels: for less it has fewer, for more it has more (NCCL's `addP2pToPlan`)."""


def _direct_lanes(system: System, messages: int, constants: Constants) -> Floats:
    """Return the bytes/s of the array that the channels of so many messages pass on, the one to itself included.

    Messages to all ranks have channels of their own, a power of two; large ones have more, which they share.
    """
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
    if system.nodes == 1:
        # The first bytes come as a ring's with LL do.
        filling = constants[f"start{place(system)}"] + constants[f"step_ll{place(system)}"] + constants["direct"]
        filling += constants["peer"] * near
        reached = _direct_inside(system, constants)
    else:
        filling = constants["first"]
        reached = min(_direct_outside(system, constants), _direct_inside(system, constants))
    kappa_direct = constants["kappa_direct"] if to_all else constants["kappa_pair"]
    eager, later = alpha_net(system, 1, constants) if system.nodes > 1 else (0.0, 0.0)
    post = constants["post_slingshot"] if transport(system) == "slingshot" else constants["post_net"]
    zeros = np.zeros_like(SIZES)
    through = zeros + 1 / per_byte
    if system.nodes == 1:
        through = _slower(through, _direct_lanes(system, messages, constants))
    return Terms(
        issue=issue(system, zeros, constants) + driven(system) * constants["post"] * peers,
        launch=launch(system, constants),
        latency=zeros + filling + post * (peers - near),
        network=np.where(EAGER * messages > SIZES, eager, later),
        fill=zeros + kappa_direct * filling**0.5,  # of the node alone: posts go on while bytes move
        full=ENDLESS,
        rate=through,
        limit=zeros + 1 / (per_byte * reached),
        sliced=zeros,
        algorithms=("direct",) * len(SIZES),
        protocols=("simple",) * len(SIZES),
    )
