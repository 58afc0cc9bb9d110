"""The model's errors by kind of machine, from constants fitted without the machine, beside those of rivals."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tools.model.accuracy import Errors
from tools.model.rivals import line, own_table
from tools.model.spread import unseen
from tools.model.systems import Published

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


def by_class(every: Sequence[Errors]) -> Iterator[str]:
    """Errors of this model, of NCCL's table and of a line, and what share of the rows lies in others' bands."""
    rows = list(unseen(every))
    yield "| machines | rows | median, % | p90, % | in the band, % | NCCL's table, % | alpha + S / B, % |"
    yield "|---|---|---|---|---|---|---|"
    for name, among in CLASSES.items():
        found = [one for one, _ in rows if among(one.sweep)]
        wrong = np.concatenate([one.relative for one in found])
        held = np.concatenate([lies for one, lies in rows if among(one.sweep)])
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
