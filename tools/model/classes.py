"""The model's errors by kind of machine, from constants fitted without the machine."""

from collections.abc import Callable, Sequence

import numpy as np

from collbench.model.constants import transport
from collbench.model.predict import SMALL
from collbench.topology.products import capability, is_amd
from tools import table
from tools.model.accuracy import Errors
from tools.model.spread import unseen
from tools.model.systems import Published


def _over(kinds: Sequence[str], least: int = 2) -> Callable[[Published], bool]:
    """Return a test for sweeps of at least `least` nodes with NVIDIA's GPUs and one of these transports."""
    return lambda sweep: sweep.system.nodes >= least and transport(sweep.system) in kinds and not amd(sweep)


def amd(sweep: Published) -> bool:
    return is_amd(sweep.system.arch)


def links(sweep: Published) -> bool:
    return sweep.system.nodes == 1 and not sweep.system.meets_over_pcie and not amd(sweep)


CLASSES: dict[str, Callable[[Published], bool]] = {
    "one node, Hopper and before": lambda sweep: links(sweep) and capability(sweep.system.arch) < 100,
    "one node, Blackwell": lambda sweep: links(sweep) and capability(sweep.system.arch) >= 100,
    "one node, PCIe": lambda sweep: sweep.system.nodes == 1 and sweep.system.meets_over_pcie,
    "InfiniBand": _over(("ib",)),
    "RoCE": _over(("roce",)),
    "EFA": _over(("efa",)),
    "TCP, TCPX": _over(("tcp", "tcpx")),
    "4 nodes and more": _over(("ib", "roce", "efa"), 4),
    "Slingshot": _over(("slingshot",)),
    "AMD": amd,
    "all but Slingshot": lambda sweep: not CLASSES["Slingshot"](sweep),
    "all": lambda sweep: True,
}
"""Kinds of machines that the tables tell apart."""
SMALL_ALLTOALL = "one node, all-to-all to 64 KiB"


def by_class(strangers: Sequence[Errors], kin: Sequence[Errors], probed: Sequence[Errors]) -> list[str]:
    """Return a table of errors by kind of machine, and the share of rows in bands that other operators give.

    The constants of `strangers` are fitted without the operator, those of `kin` without the machine.  `probed` are
    strangers with five sizes measured before.
    """
    rows, every = [], list(unseen(strangers))
    for name, among in CLASSES.items():
        found = [one for one, _ in every if among(one.sweep)]
        held = np.concatenate([inside for one, inside in every if among(one.sweep)])
        shares = [held.mean()]
        for others in (kin, probed):
            shares.append(np.median(np.concatenate([one.relative for one in others if among(one.sweep)])))
        rows.append(_row(name, found, shares))
    alone = (one for one in strangers if one.sweep.system.nodes == 1 and one.sweep.collective == "alltoall")
    small = [one.up_to(SMALL) for one in alone]
    rows.append(_row(SMALL_ALLTOALL, [one for one in small if len(one.nbytes)], ()))
    return table(("machines", "rows", "strangers, %", "p90", "signed", "in the band", "kin", "five sizes"), rows)


def _row(name: str, found: Sequence[Errors], shares: Sequence[float]) -> list[str]:
    wrong = np.concatenate([one.relative for one in found])
    logs = np.concatenate([one.logs for one in found])
    cells = [f"{100 * share:.1f}" for share in (np.median(wrong), np.quantile(wrong, 0.9))]
    cells += [f"{100 * np.expm1(-np.median(logs)):+.1f}", *(f"{100 * share:.1f}" for share in shares)]
    return [name, str(len(wrong)), *cells, *["-"] * (6 - len(cells))]
