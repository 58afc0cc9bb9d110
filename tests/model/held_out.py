"""The bands of the model and its errors by kind of machine, from constants that were fitted without the machine."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from collbench.model.bands import BANDS, kind_of, regime
from collbench.model.doubt import settled
from collbench.model.equation import Floats
from tests.model.accuracy import Errors
from tests.model.rivals import line, own_table
from tests.model.systems import Published

NINE_OF_TEN = 1.645  # standard deviations of a normal distribution to both sides
LEVELS = (0.04, 0.96)
"""Quantiles that bound a band: a little more than nine of ten, since the next machine is of none of those here."""
SHRINK = 0.3
"""Machines that all kinds of a family count as, beside those of the kind itself: few machines are a narrow sample."""
FAMILIES = (
    ("one node", "one node, before Hopper", "PCIe", "straight, one node"),
    ("InfiniBand", "RoCE", "racks", "straight, nodes"),
    ("EFA", "TCP"),
    ("Slingshot",),
)
CLASSES: dict[str, Callable[[Published], bool]] = {
    "one node, NVLink": lambda sweep: sweep.system.nodes == 1 and not sweep.system.meets_over_pcie,
    "one node, PCIe": lambda sweep: sweep.system.nodes == 1 and sweep.system.meets_over_pcie,
    **{
        name: (lambda sweep, kinds=kinds: sweep.system.nodes > 1 and sweep.system.nics.transport in kinds)
        for name, kinds in (
            ("InfiniBand", ("ib",)),
            ("RoCE", ("roce",)),
            ("EFA", ("efa",)),
            ("TCP, TCPX", ("tcp", "tcpx")),
            ("Slingshot", ("slingshot",)),
        )
    },
    "all but Slingshot": lambda sweep: not CLASSES["Slingshot"](sweep),
    "all": lambda sweep: True,
}  # type: ignore[dict-item]
"""Kinds of machines that the tables tell apart."""


def kind(found: Errors) -> str:
    """Row of the band tables."""
    return kind_of(found.sweep.system, found.sweep.collective)


def bands(every: Sequence[Errors]) -> dict[str, list[tuple[float, float]]]:
    """Factors by kind and size between which measured over predicted times lie."""
    return {name: [_band(every, name, size) for size in range(3)] for name in BANDS}


def _band(every: Sequence[Errors], name: str, size: int) -> tuple[float, float]:
    """Around 1 on both sides, so that a prediction lies in its own band."""
    family = next(family for family in FAMILIES if name in family)
    own, machines = _quantiles([found for found in every if kind(found) == name], size)
    pool, _ = _quantiles([found for found in every if kind(found) in family], size)
    low, high = np.exp((machines * own + SHRINK * pool) / (machines + SHRINK))
    return round(min(float(low), 0.95), 2), round(max(float(high), 1.05), 2)


def _quantiles(found: Sequence[Errors], size: int) -> tuple[Floats, int]:
    """Of logarithms, half way between those of all rows alike and of all machines alike; and how many machines."""
    logs, machines = [np.zeros(0)], []
    for one in found:
        there = np.log(one.measured / one.predicted)[[regime(nbytes) == size for nbytes in one.nbytes]]
        logs.append(there)
        machines += [one.sweep.machine] * len(there)
    if not machines:
        return np.zeros(2), 0
    values = np.concatenate(logs)
    weights = np.array([1 / machines.count(machine) for machine in machines])
    by_machine = np.array([_weighted(values, weights, level) for level in LEVELS])
    return (np.quantile(values, LEVELS) + by_machine) / 2, len(set(machines))


FLOOR, USUAL = 0.06, 0.2
"""Of a spread between machines: the least, and what one machine more would have."""
MOST = 0.1
"""Of a median, as a logarithm."""


def levels(every: Sequence[Errors]) -> dict[str, list[tuple[float, float]]]:
    """Median error and its spread between machines, as logarithms, by kind and size; sizes as settled."""
    return {name: [_level([one for one in every if kind(one) == name], size) for size in range(3)] for name in BANDS}


def _level(found: Sequence[Errors], size: int) -> tuple[float, float]:
    logs, machines = _settled(found, size)
    if not machines:
        return 0.0, 0.3
    weights = np.array([1 / machines.count(machine) for machine in machines])
    middle = float(np.clip(_weighted(logs, weights, 0.5), -MOST, MOST))
    spread, count = _weighted(np.abs(logs - middle), weights, 0.9) / NINE_OF_TEN, len(set(machines))
    spread = math.sqrt((count * spread**2 + USUAL**2) / (count + 1))
    return round(middle, 2), round(max(FLOOR, spread), 2)


def _settled(found: Sequence[Errors], size: int) -> tuple[Floats, list[str]]:
    """Logarithms of measured over predicted times of one of the three sizes, and the machine of each."""
    logs, machines = [np.zeros(0)], []
    for one in found:
        there = settled(np.log(one.measured / one.predicted))[[regime(nbytes) == size for nbytes in one.nbytes]]
        logs.append(there)
        machines += [one.sweep.machine] * len(there)
    return np.concatenate(logs), machines


def _weighted(values: Floats, weights: Floats, level: float) -> float:
    """A quantile."""
    order = np.argsort(values)
    places = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(level * weights.sum(), places, values[order]))


def inside(found: Errors, table: dict[str, list[tuple[float, float]]]) -> Floats:
    """Which rows lie in their bands."""
    edges = np.array([table[kind(found)][regime(nbytes)] for nbytes in found.nbytes]).reshape(-1, 2)
    ratio = found.measured / found.predicted
    return np.asarray((edges[:, 0] <= ratio) & (ratio <= edges[:, 1]))


def by_class(every: Sequence[Errors], table: dict[str, list[tuple[float, float]]]) -> Iterator[str]:
    """Errors of this model, of NCCL's table and of a line, and what share of the rows lies in the bands."""
    yield "| machines | rows | median, % | p90, % | in the band, % | NCCL's table, % | alpha + S / B, % |"
    yield "|---|---|---|---|---|---|---|"
    for name, among in CLASSES.items():
        found = [one for one in every if among(one.sweep)]
        wrong, held = (
            np.concatenate([one.relative for one in found]),
            np.concatenate([inside(one, table) for one in found]),
        )
        words = (np.median(wrong), np.quantile(wrong, 0.9), held.mean(), *_rivals(found, every))
        yield f"| {name} | {len(wrong)} | " + " | ".join(f"{100 * share:.1f}" for share in words) + " |"


def _rivals(found: Sequence[Errors], every: Sequence[Errors]) -> tuple[float, float]:
    """Median errors of NCCL's table, of those rows that it has, and of a line."""
    tabled, lined = [], []
    for one in found:
        own = own_table(one.sweep, one.nbytes)
        if own is not None:
            tabled.append(np.abs(own / one.measured - 1))
        others = [other.sweep for other in every if other.sweep.machine != one.sweep.machine]
        lined.append(np.abs(line(one.sweep, one.nbytes, others) / one.measured - 1))
    return float(np.median(np.concatenate(tabled))), float(np.median(np.concatenate(lined)))
