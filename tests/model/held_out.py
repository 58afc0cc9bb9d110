"""The bands of the model and its errors by kind of machine, from constants that were fitted without the machine."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from collbench.model.bands import BANDS, kind_of, regime
from collbench.model.equation import Floats
from tests.model.accuracy import Errors
from tests.model.rivals import line, own_table
from tests.model.systems import Published

LEVELS = (0.04, 0.96)
"""Quantiles that bound a band: a little more than nine of ten, since the next machine is of none of those here."""
SHRINK = 0.3
"""Machines that all kinds of a family count as, beside those of the kind itself: few machines are a narrow sample."""
FAMILIES = (
    ("one node", "PCIe", "straight, one node"),
    ("InfiniBand", "RoCE", "straight, nodes"),
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
    order = np.argsort(values)
    places = np.cumsum(weights[order]) - weights[order] / 2
    by_machine = np.interp(np.array(LEVELS) * weights.sum(), places, values[order])
    return (np.quantile(values, LEVELS) + by_machine) / 2, len(set(machines))


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


def large(every: Iterable[Errors]) -> Floats:
    """Relative errors between nodes above 64 MiB."""
    return np.concatenate([one.relative[one.nbytes > 64 << 20] for one in every if one.sweep.system.nodes > 1])
