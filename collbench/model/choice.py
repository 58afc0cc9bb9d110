"""The option that NCCL's own table chooses at every size, and the parts of the equation that follow from it."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collbench.model import direct
from collbench.model.constants import CONSTANTS, Constants, alpha_net, issue, launch, shape
from collbench.model.equation import SIZES, Floats, Terms
from collbench.model.ladder import copied
from collbench.model.nccl.option import Option
from collbench.model.nccl.table import options
from collbench.model.schedule import schedule_of
from collbench.topology.system import System


@dataclass(frozen=True, eq=False)
class Chosen:
    """NCCL's choice at each of SIZES."""

    options: tuple[Option, ...]
    which: npt.NDArray[np.intp]  # into options
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
    algorithms, protocols = zip(*((usable[index].algorithm, usable[index].protocol) for index in which), strict=True)
    return Chosen(usable, which, algorithms, protocols)


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
    shapes = [shape(system, option.algorithm, option.protocol, constants) for option in every]
    pairs = list(zip(every, shapes, strict=True))
    return Terms(
        issue=issue(system, constants),
        launch=launch(system, constants),
        latency=chosen.spread([option.base + option.intra + option.inter * _depth(system, option) for option in every]),
        network=chosen.spread(
            [option.hops * _depth(system, option) * alpha_net(system, constants) for option in every]
        ),
        kappa=chosen.spread([kappa for kappa, _ in shapes]),
        rate=chosen.spread([_rate(system, collective, option) * eta for option, (_, eta) in pairs]),
        limit=chosen.spread([limit(system, collective, option.algorithm) for option in every]),
        algorithms=chosen.algorithms,
        protocols=chosen.protocols,
    )


def _depth(system: System, option: Option) -> float:
    """How much deeper a tree over the nodes is than NCCL counts, which rounds down: so times do not jump with nodes."""
    if option.algorithm not in ("tree", "nvlstree") or system.nodes < 2:
        return 1.0
    return float(np.log2(system.nodes) / np.floor(np.log2(system.nodes)))


def _rate(system: System, collective: str, option: Option) -> float:
    """Bytes/s of the array that eta is a share of: NCCL's figure, but where that is off.

    NVLSTree's is a ceiling per release; its ports and cards, which hinder each other, explain all releases with one
    eta.  Through the host's memory, bytes in and bytes out share the slot, so that only two ranks one of which merely
    sends have all of it.  Where no speed that NCCL tries fits the links it notes a token rate and sends all the same.
    """
    rate = option.rate * option.bound / option.busbw if option.placeholder else option.rate
    if option.algorithm == "nvlstree":
        port = system.gpu_rate / (1 + 1 / system.gpus)
        return float((port**-4 + limit(replace(system, gpu_rate=np.inf), collective) ** -4) ** -0.25)
    if system.meets_over_pcie and not system.p2p and system.nodes == 1:
        one_way = not schedule_of(collective).rounds and system.ranks == 2
        return min(rate, limit(system, collective) / (1 if one_way else 2))
    return rate


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


COPY = 3e-6  # seconds until a copy of nothing is done, its launch hidden


def _alone(system: System, constants: Constants) -> Terms:
    """One rank copies its input."""
    flat = np.zeros_like(SIZES)
    memory = copied(system) / 2
    return Terms(
        issue(system, constants), launch(system, constants), flat + COPY, flat, flat, flat + memory, flat + memory,
        ("copy",) * len(SIZES), ("",) * len(SIZES),
    )  # fmt: skip
