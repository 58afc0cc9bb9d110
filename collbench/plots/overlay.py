"""Several topologies in one panel, a colour each; marker and dashes still tell the implementations apart."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from collbench.errors import UsageError
from collbench.plots.panels import Panel
from collbench.plots.styles import COLORS, Look


class Layer(NamedTuple):
    """A panel's lines in a figure; with a name and a colour where other layers share their axes."""

    panel: Panel
    name: str = ""
    color: str = ""

    def look(self, look: Look) -> Look:
        """How a line looks in it."""
        return look._replace(color=self.color) if self.color else look


def overlaid(row: Sequence[Panel]) -> tuple[Layer, ...]:
    """All panels of a figure as layers of one; UsageError if there are more than colours.

    They show one kind of bandwidth: the algorithm's, if there is no bus to speak of in any of them.
    """
    if len(row) > len(COLORS):
        raise UsageError(
            f"--overlay can tell {len(COLORS)} topologies apart by colour, and these are {len(row)}; "
            "give fewer runs, or leave --overlay out"
        )
    buses = all(panel.factor for panel in row)
    same = [panel if buses else replace(panel, factor=0.0) for panel in row]
    return tuple(Layer(*parts) for parts in zip(same, names(row), COLORS, strict=False))


def names(row: Sequence[Panel]) -> list[str]:
    """What tells these panels apart: the topology, the ranks where they differ, the run, and a number at last."""
    if alone(row):
        told = [panel.origin for panel in row]
    else:
        told = [place(panel) if len({other.ranks for other in row}) > 1 else panel.topology for panel in row]
        twice = Counter(told)
        told = [f"{name}, {panel.origin}" if twice[name] > 1 else name for name, panel in zip(told, row, strict=True)]
    alike = Counter(told)
    return [f"{name} ({told[:at].count(name) + 1})" if alike[name] > 1 else name for at, name in enumerate(told)]


def alone(row: Sequence[Panel]) -> bool:
    """Whether there is one topology, so that it need not be said of each panel."""
    return len({place(panel) for panel in row}) == 1


def place(panel: Panel) -> str:
    """The topology and its ranks, unless it says them itself: `4 ranks on ...`, `DGX H100, 8 GPUs`."""
    ranks = f"{panel.ranks} rank{'s' if panel.ranks > 1 else ''}"
    said = panel.topology.startswith(ranks) or panel.topology.endswith(f", {panel.ranks} GPUs")
    return panel.topology if said else f"{panel.topology}, {ranks}"
