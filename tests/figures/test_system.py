"""Pictures of systems: network cards meet what they are at, and each has its own way up to the leaf switches."""

from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from collbench.figures.system import COLORS, MOST_CARDS, figure
from collbench.topology import files
from collbench.topology.system import System

Ends = tuple[tuple[float, float], tuple[float, float]]


def picture(system: System) -> Axes:
    (axes,) = figure(system).axes
    return axes


def ends(line: Line2D) -> Ends:
    (x0, x1), (y0, y1) = line.get_data()
    return (x0, y0), (x1, y1)


def lines(axes: Axes, name: str) -> list[Ends]:
    return [ends(line) for line in axes.lines if line.get_label() == f"_{name}"]


def boxes(axes: Axes, kind: str) -> list[Rectangle]:
    from matplotlib.colors import to_rgba

    return [
        patch
        for patch in axes.patches
        if isinstance(patch, Rectangle) and patch.get_facecolor() == to_rgba(COLORS[kind])
    ]


def holds(box: Rectangle, place: tuple[float, float]) -> bool:
    (x, y), (left, low) = place, box.get_xy()
    return left <= x <= left + box.get_width() and low <= y <= low + box.get_height()


@pytest.mark.parametrize("name", files.names())
def test_every_network_card_has_an_uplink_of_its_own(name: str) -> None:
    """From the card of each node that is drawn to the lowest tier's bar: eight cards, eight uplinks."""
    system = files.load(name)
    assert system.nics
    axes = picture(system.of(2))
    uplinks, cards = lines(axes, "uplink"), boxes(axes, "nic")
    assert len(uplinks) == len(cards) == 2 * system.nics.per_node
    leaf = min(boxes(axes, "tier"), key=lambda bar: bar.get_y())
    assert len({start for start, _ in uplinks}) == len(uplinks)
    for start, end in uplinks:
        assert sum(holds(card, start) for card in cards) == 1
        assert holds(leaf, end)
        assert start[0] == end[0]


@pytest.mark.parametrize("name", files.names())
@pytest.mark.parametrize("nodes", [1, 2])
def test_every_network_card_meets_a_pcie_switch_or_a_cpu(name: str, nodes: int) -> None:
    """As many at each, as evenly as it goes; where there are switches none is at a CPU."""
    system = files.load(name).of(nodes)
    assert system.nics
    axes = picture(system)
    hosts = boxes(axes, "cpu")
    met = [next(host for host in hosts if holds(host, end)) for _, end in lines(axes, "slot")]
    assert len(met) == nodes * system.nics.per_node
    counts = [met.count(host) for host in set(met)]
    assert max(counts) - min(counts) <= 1
    if system.switches:
        lowest = min(host.get_y() for host in hosts)
        assert all(host.get_y() == lowest for host in met), "PCIe switches are below the CPUs"


@pytest.mark.parametrize("name", files.names())
def test_no_part_of_a_node_lies_over_another(name: str) -> None:
    """Boxes stay apart, and no way from a card to its host goes through another box."""
    axes = picture(files.load(name).of(2))
    parts = [box for kind in ("gpu", "fabric", "nic", "cpu", "tier") for box in boxes(axes, kind)]
    for one, other in combinations(parts, 2):
        assert not one.get_window_extent().padded(-0.5).overlaps(other.get_window_extent().padded(-0.5))
    for start, end in lines(axes, "slot"):
        between = [
            (start[0] + part / 20 * (end[0] - start[0]), start[1] + part / 20 * (end[1] - start[1]))
            for part in range(21)
        ]
        crossed = {box.get_xy() for box in parts for place in between if holds(box, place)}
        assert len(crossed) == 2, "its own and its host's"


def test_more_cards_than_can_be_seen_are_counted_in_words() -> None:
    """A file may say thousands."""
    system = files.load("dgx-h100")
    assert system.nics
    axes = picture(replace(system, nics=replace(system.nics, per_node=4000)).of(2))
    assert len(boxes(axes, "nic")) == 2 * MOST_CARDS
    assert any("4000 x InfiniBand" in text.get_text() for text in axes.texts)
