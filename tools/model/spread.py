"""Errors of the model on machines that it has not seen, by kind and size: bands for times, levels for curves.

The constants are fitted without the machine.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from collbench.analysis.reasons import FEWEST
from collbench.model.equation import Floats
from collbench.model.predict import BANDS, MANY, WIDER, beyond, smoothed
from tools.model.accuracy import Errors

Table = dict[str, list[tuple[float, float]]]

NINE_OF_TEN = 1.645  # standard deviations of a normal distribution to both sides
EDGES = (0.02, 0.98)
"""Quantiles that bound a band.

They are wider than nine of ten, because the next machine is none of these.  POOLED and FEW are chosen so that bands
made without a machine hold nine of ten of its times, in each class (`unseen`).
"""
POOLED = 8
"""Weight of all kinds of a family in a band, in machines: a few machines are a narrow sample."""
FEW = 0.3
"""Relative widening of a band without machines; it falls with their number."""
NVLINK = ("one node", "one node, before Hopper", "one node, Blackwell")
NVLS = "one node, NVLS"
IN_A_NODE = (*NVLINK, NVLS, "PCIe", "straight, one node")
BETWEEN_NODES = (MANY, "InfiniBand", "RoCE", "Slingshot", "TCP", "racks", "straight, nodes")
FAMILIES = {
    **dict.fromkeys(IN_A_NODE, IN_A_NODE),
    **dict.fromkeys(BETWEEN_NODES, BETWEEN_NODES),
    "InfiniBand": ("InfiniBand",),  # there are enough, and they are better known than others
    "EFA": ("InfiniBand", "RoCE", "EFA"),  # cards with one latency and few surprises, unlike others between nodes
    MANY: (MANY,),
    **dict.fromkeys(NVLINK, (*NVLINK, NVLS)),
    "AMD, one node": (*IN_A_NODE, "AMD, one node"),
    "AMD, nodes": (*BETWEEN_NODES, "AMD, nodes"),
    NVLS: (NVLS,),  # sums in switches, with similar errors in all generations
}


def bands(every: Sequence[Errors]) -> Table:
    """Return, by kind and size, the factors that bound measured over predicted times."""
    return _by_size(lambda name, size: _band(every, name, size))


def _by_size(value: Callable[[str, int], tuple[float, float]]) -> Table:
    """Return a pair of values for each kind and each of the three sizes."""
    return {name: [value(name, 0), value(name, 1), value(name, 2)] for name in BANDS}


def _band(every: Sequence[Errors], name: str, size: int) -> tuple[float, float]:
    """Return the band of a kind and size; it contains 1 on both sides, so that a prediction lies in its own band."""
    own, machines = _quantiles([found for found in every if found.kind == name], size)
    pool, _ = _quantiles([found for found in every if found.kind in FAMILIES[name]], size)
    wider = 1 + FEW / (machines + 1)
    low, high = np.exp(wider * (machines * own + POOLED * pool) / (machines + POOLED))
    return round(min(float(low), 0.95), 2), round(max(float(high), 1.05), 2)


def _quantiles(found: Sequence[Errors], size: int) -> tuple[Floats, int]:
    """Return quantiles of logarithms, the mean of equal weights for rows and machines; and the number of machines."""
    logs, machines = _logs(found, size)
    if not machines:
        return np.zeros(2), 0
    by_machine = np.array([_weighted(logs, _alike(machines), level) for level in EDGES])
    return (np.quantile(logs, EDGES) + by_machine) / 2, len(set(machines))


def _logs(found: Sequence[Errors], size: int, smooth: bool = False) -> tuple[Floats, list[str]]:
    """Return the logarithms of measured over predicted times in a range of sizes, and the machine of each."""
    logs, machines = [np.zeros(0)], []
    for one in found:
        there = (one.smoothed if smooth else one.logs)[one.regimes == size]
        logs.append(there)
        machines += [one.sweep.machine] * len(there)
    return np.concatenate(logs), machines


def _alike(machines: Sequence[str]) -> Floats:
    """Return weights that sum up to the same for each machine."""
    counts = Counter(machines)
    return np.array([1 / counts[machine] for machine in machines])


def _weighted(values: Floats, weights: Floats, level: float) -> float:
    order = np.argsort(values)
    places = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(level * weights.sum(), places, values[order]))


def inside(found: Errors, table: Table) -> Floats:
    """Return which rows lie in their bands."""
    low, high = np.log(np.array(table[found.kind])[found.regimes]).T
    more = beyond(found.sweep.system) * math.log(1 + WIDER)
    return np.asarray((low <= found.logs) & (found.logs <= high + more))


def unseen(every: Sequence[Errors]) -> Iterator[tuple[Errors, Floats]]:
    """Yield errors, and which rows lie in bands made without their operator."""
    for operator in dict.fromkeys(found.sweep.operator for found in every):
        table = bands([found for found in every if found.sweep.operator != operator])
        yield from ((found, inside(found, table)) for found in every if found.sweep.operator == operator)


FLOOR, USUAL = 0.06, 0.2
"""Of a spread between machines: the smallest, and that of one imaginary machine."""
MOST = 0.1
"""The largest median, as a logarithm."""


def levels(every: Sequence[Errors]) -> Table:
    """Return median errors and their spread between machines, as logarithms, by kind and size; sizes are averaged."""
    return _by_size(lambda name, size: _level(every, name, size))


def _level(every: Sequence[Errors], name: str, size: int) -> tuple[float, float]:
    """Return the level of a kind and size, combined with its family as in bands."""
    middle, own, machines = _spread([found for found in every if found.kind == name], size)
    _, pool, _ = _spread([found for found in every if found.kind in FAMILIES[name]], size)
    total = machines * own**2 + POOLED * pool**2 + USUAL**2
    spread = math.sqrt(total / (machines + POOLED + 1))
    return round(machines * middle / (machines + POOLED), 2), round(max(FLOOR, spread), 2)


def _spread(found: Sequence[Errors], size: int) -> tuple[float, float, int]:
    """Return median and standard deviation of logarithms with equal weights of machines, and the number of machines."""
    logs, machines = _logs(found, size, smooth=True)
    if not machines:
        return 0.0, USUAL, 0
    weights = _alike(machines)
    middle = float(np.clip(_weighted(logs, weights, 0.5), -MOST, MOST))
    return middle, _weighted(np.abs(logs - middle), weights, 0.9) / NINE_OF_TEN, len(set(machines))


SEEN = 0.98
"""The share of curves and sizes in which a slowdown must be seen."""


def sight_factors(every: Sequence[Errors]) -> dict[str, list[float]]:
    """Return how many times its limit a slowdown must be to be seen in nearly all curves and single sizes.

    Curves have one number, above 64 MiB.  Sizes have three: below 64 KiB, between, and above 64 MiB.  Some machines are
    faster than predicted.
    """
    curves, slower = [], math.log(2)
    for one in every:
        large = one.regimes == 2
        if np.sum(large) >= FEWEST:
            curves.append(slower - smoothed(one.logs + slower * large)[large].mean())
    logs, regimes = -np.concatenate([one.logs for one in every]), np.concatenate([one.regimes for one in every])
    return {"curve": [_seen(np.array(curves))], "sizes": [_seen(logs[regimes == size]) for size in range(3)]}


def _seen(logs: Floats) -> float:
    return round(float(np.exp(np.quantile(logs, SEEN))), 2)
