"""How each implementation looks in all figures, and each topology where several share a panel.

An implementation's look is its row in LOOKS; a prediction looks the same, but hollow and dashed.
"""

import zlib
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple


class Look(NamedTuple):
    """How a line is drawn; marker and dashes tell lines apart where colours can't, as in grey print."""

    color: str
    marker: str
    linestyle: str
    linewidth: float = 1.5
    markerfacecolor: str = "auto"

    @property
    def predicted(self) -> "Look":
        """The same implementation where it is predicted."""
        return self._replace(linestyle="--", linewidth=1.2, markerfacecolor="white")


# Libraries are solid and thick.  Colours are Okabe and Ito's without yellow, which is lost on white, and four
# more that keep their distance under simulated protanopia, deuteranopia and tritanopia.
LOOKS = {
    "nccl": Look("#000000", "o", "-", 2.4),
    "mpi": Look("#0072B2", "s", "-", 2.4),
    "ring-host": Look("#A0A0A0", "v", "--"),
    "ring-events": Look("#E69F00", "^", "-."),
    "ring-flags": Look("#D55E00", "D", "--"),
    "ring-pipelined": Look("#009E73", "P", "-."),
    "ring-ll": Look("#56B4E9", "X", "-"),
    "one-shot": Look("#882255", "<", "--"),
    "one-shot-ll": Look("#CC79A7", ">", "-"),
    "two-shot": Look("#332288", "p", "-."),
    "nvls": Look("#7A4A00", "*", ":"),
    "parameter-server": Look("#F0A3C0", "h", ":"),
}


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name, libraries first; a name without a fixed one gets what clashes least."""
    wanted = set(names)
    chosen = {name: look for name, look in LOOKS.items() if name in wanted}
    colors = [look.color for look in LOOKS.values()]
    spare = [Look(*parts) for parts in product(colors, "hdoX^", ("--", "-.", ":"))]
    for name in sorted(wanted - set(LOOKS)):
        first = zlib.crc32(name.encode()) % len(spare)  # so that a name tends to keep its look between runs
        chosen[name] = min(spare[first:] + spare[:first], key=lambda look: _clashes(look, chosen.values()))
    return chosen


def _clashes(look: Look, others: Iterable[Look]) -> int:
    """How alike a look is to the others: colour before marker before dashes, one twin before many cousins."""
    likeness = (sum(weight * (look[part] == other[part]) for part, weight in enumerate((4, 2, 1))) for other in others)
    return sum(each**3 for each in likeness)


COLORS = ("#0072B2", "#E69F00", "#000000", "#882255", "#009E73", "#332288")
"""Of topologies, in the order of the runs.

Each is at least 9 lighter or darker than every other (of CIE L* from 0 to 100), so that grey print keeps them apart,
and at least 16 away (CIE 1976) under simulated protanopia, deuteranopia and tritanopia.
"""
