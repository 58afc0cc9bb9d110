"""Pictures of systems: network cards meet what they are at, and each has its own way up to the leaf switches."""

from itertools import combinations

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from collbench.plots.system import COLORS, figure
from collbench.topology import files
from collbench.topology.system import System

Place = tuple[float, float]
SYSTEMS = ("dgx-h100", "dgx-a100", "gb200-nvl72", "pcie4-4090", "hgx-a100-4")


def picture(system: System) -> Axes:
    (axes,) = figure(system).axes
    return axes


def lines(axes: Axes, name: str) -> list[tuple[Place, Place]]:
    return [tuple(zip(*line.get_data(), strict=True)) for line in axes.lines if line.get_label() == f"_{name}"]  # type: ignore[misc]


def boxes(axes: Axes, kind: str) -> list[Rectangle]:
    colour = to_rgba(COLORS[kind])
    return [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_facecolor() == colour]


def holds(box: Rectangle, place: Place) -> bool:
    (x, y), (left, low) = place, box.get_xy()
    return left <= x <= left + box.get_width() and low <= y <= low + box.get_height()


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_network_card_has_an_uplink_and_a_host_of_its_own_and_nothing_overlaps(name: str) -> None:
    system = files.load(name).of(2)
    assert system.nics
    axes = picture(system)
    uplinks, slots, cards, hosts = lines(axes, "uplink"), lines(axes, "slot"), boxes(axes, "nic"), boxes(axes, "cpu")
    assert len({start for start, _ in uplinks}) == len(uplinks) == len(cards) == 2 * system.nics.per_node
    leaf = min(boxes(axes, "tier"), key=lambda bar: bar.get_y())
    for start, end in uplinks:
        assert sum(holds(card, start) for card in cards) == 1
        assert holds(leaf, end)
        assert start[0] == end[0]
    met = [next(host for host in hosts if holds(host, end)) for _, end in slots]
    assert len(met) == len(cards)
    counts = [met.count(host) for host in set(met)]
    assert max(counts) - min(counts) <= 1
    if system.switches:
        assert {host.get_y() for host in met} == {min(host.get_y() for host in hosts)}, "PCIe switches are below CPUs"
    parts = [box for kind in ("gpu", "fabric", "nic", "cpu", "tier") for box in boxes(axes, kind)]
    extents = [box.get_window_extent().padded(-0.5) for box in parts]
    assert not any(one.overlaps(other) for one, other in combinations(extents, 2))
    for (x0, y0), (x1, y1) in slots:
        way = [(x0 + part / 20 * (x1 - x0), y0 + part / 20 * (y1 - y0)) for part in range(21)]
        crossed = {box.get_xy() for box in parts for place in way if holds(box, place)}
        assert len(crossed) == 2, "its own and its host's"
