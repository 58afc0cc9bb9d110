"""The model's errors by kind of machine, from constants fitted without the machine."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from collbench.model.constants import transport
from collbench.model.predict import SMALL
from collbench.topology.products import capability, is_amd
from tools.model.accuracy import Errors
from tools.model.spread import unseen
from tools.model.systems import Published


def _over(kinds: Sequence[str], least: int = 2) -> Callable[[Published], bool]:
    """So many nodes of NVIDIA's GPUs at least, that meet over one of these transports."""
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


def by_class(strangers: Sequence[Errors], kin: Sequence[Errors], probed: Sequence[Errors]) -> Iterator[str]:
    """Errors of this model, and what share of the rows lies in others' bands.

    Of strangers no other machine of the operator is in the fit; of kin only the machine itself is left out.  Five sizes
    of the strangers that are `probed` were measured before.
    """
    rows = list(unseen(strangers))
    yield "| machines | rows | strangers, % | p90 | signed | in the band | kin | five sizes |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, among in CLASSES.items():
        found = [one for one, _ in rows if among(one.sweep)]
        held = np.concatenate([lies for one, lies in rows if among(one.sweep)])
        others = (np.concatenate([one.relative for one in every if among(one.sweep)]) for every in (kin, probed))
        yield _line(name, found, (held.mean(), *map(np.median, others)))
    alone = (one for one in strangers if one.sweep.system.nodes == 1 and one.sweep.collective == "alltoall")
    yield _line(SMALL_ALLTOALL, [one for one in (every.up_to(SMALL) for every in alone) if len(one.nbytes)], ())


def _line(name: str, found: Sequence[Errors], more: Sequence[float]) -> str:
    wrong, logs = (np.concatenate(parts) for parts in zip(*((one.relative, one.logs) for one in found), strict=True))
    words = [f"{100 * share:.1f}" for share in (np.median(wrong), np.quantile(wrong, 0.9))]
    words += [f"{100 * np.expm1(-np.median(logs)):+.1f}", *(f"{100 * share:.1f}" for share in more)]
    return f"| {name} | {len(wrong)} | " + " | ".join(words + ["-"] * (6 - len(words))) + " |"
