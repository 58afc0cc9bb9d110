"""The option that NCCL's own table chooses at every size, and the parts of the equation that follow from it."""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from collbench.model import direct
from collbench.model.constants import CONSTANTS, EAGER, Constants, alpha_net, issue, kappa, launch, wait
from collbench.model.equation import SIZES, Floats, Terms
from collbench.model.ladder import copied
from collbench.model.nccl.constants import release
from collbench.model.nccl.option import Option
from collbench.model.nccl.table import MICROSECOND, SIMPLE, options
from collbench.model.rates import limit, rate
from collbench.model.schedule import Schedule, schedule_of
from collbench.topology.system import System


@dataclass(frozen=True, eq=False)
class Chosen:
    """NCCL's choice at each of SIZES."""

    options: tuple[Option, ...]
    which: npt.NDArray[np.intp]  # into options
    channels: Floats  # that run
    algorithms: tuple[str, ...]
    protocols: tuple[str, ...]

    def spread(self, values: list[float]) -> Floats:
        """The chosen option's value at every one of SIZES, from one value an option."""
        spread: Floats = np.array(values, np.float64)[self.which]
        return spread


@lru_cache(maxsize=256)
def choose(system: System, collective: str) -> Chosen:
    """The option with the least time by NCCL's own estimate."""
    usable = options(system, collective)
    which = np.stack([option.seconds(SIZES) for option in usable]).argmin(axis=0)
    channels = np.choose(which, [option.channels_at(SIZES) for option in usable])
    algorithms, protocols = zip(*((usable[index].algorithm, usable[index].protocol) for index in which), strict=True)
    return Chosen(usable, which, channels, algorithms, protocols)


@lru_cache(maxsize=256)
def terms(system: System, collective: str, constants: Constants = CONSTANTS) -> Terms:
    """Parts of the equation for all ranks of the system."""
    if system.ranks == 1:
        return _alone(system, constants)
    schedule = schedule_of(collective)
    if schedule.direct:
        return direct.terms(system, schedule.direct, constants)
    chosen = choose(system, collective)
    every = chosen.options
    network = [_network(system, option, constants) for option in every]
    eager, later = (chosen.spread(list(seconds)) for seconds in zip(*network, strict=True))
    waiting = [option.base + option.inside + option.inter * _depth(system, option) for option in every]
    filling = [
        _fill(system, option, schedule, alpha, constants) for option, (_, alpha) in zip(every, network, strict=True)
    ]
    return Terms(
        issue=issue(system, chosen.channels, constants),
        launch=launch(system, constants),
        latency=chosen.spread(waiting) + wait(system, constants),
        network=np.where(SIZES < EAGER, eager, later),
        fill=chosen.spread(filling),
        rate=chosen.spread([rate(system, collective, option, constants) for option in every]),
        limit=chosen.spread([limit(system, collective, option.algorithm) for option in every]),
        algorithms=chosen.algorithms,
        protocols=chosen.protocols,
    )


def _network(system: System, option: Option, constants: Constants) -> tuple[float, float]:
    """Seconds that an option's steps between nodes take longer than NCCL counts: eager ones, and with a rendezvous."""
    if system.nodes == 1:
        return 0.0, 0.0
    depth = _depth(system, option)
    hop = release(system.nccl).net["ring"][SIMPLE] * MICROSECOND
    counted = min(option.inter, option.hops * hop) * depth  # NVLSTree's have more in them than the network
    return alpha_net(system, option.hops * depth, constants, counted)


def _fill(system: System, option: Option, schedule: Schedule, network: float, constants: Constants) -> float:
    """The root of the seconds that filling an option's pipeline takes, but for those of its bytes.

    A ring's chunks are as large whatever goes round how often.
    """
    first = _first(system, option, schedule.rounds, network)
    passes = schedule.sent(system.ranks) if option.algorithm == "ring" else 1.0
    return kappa(system, option.algorithm, option.protocol, constants) * sqrt(first / passes)


def _first(system: System, option: Option, rounds: int, network: float) -> float:
    """Seconds until the last rank has its first bytes: a ring's once round, whatever goes round how often."""
    if option.algorithm != "ring":
        return option.base + option.inside + option.inter * _depth(system, option) + network
    if rounds:
        return option.base + (option.inside + option.inter) / rounds + network / rounds
    return option.base + option.inside * (system.ranks - 1) + option.inter * option.hops + network


def _depth(system: System, option: Option) -> float:
    """How much deeper a tree over the nodes is than NCCL counts, which rounds down: so times do not jump with nodes."""
    if option.algorithm not in ("tree", "nvlstree") or system.nodes < 2:
        return 1.0
    return float(np.log2(system.nodes) / np.floor(np.log2(system.nodes)))


COPY = 3e-6  # seconds until a copy of nothing is done, its launch hidden


def _alone(system: System, constants: Constants) -> Terms:
    """One rank copies its input."""
    flat = np.zeros_like(SIZES)
    memory = flat + copied(system) / 2
    return Terms(
        issue(system, flat, constants), launch(system, constants), flat + COPY, flat, flat, memory, memory,
        ("copy",) * len(SIZES), ("",) * len(SIZES),
    )  # fmt: skip
