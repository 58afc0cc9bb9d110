"""The heat map of a fleet: a row for each node that stands out, and quantiles of all where there are too many."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from collbench.analysis.fleet import groups
from collbench.plots.fleet import draw, figure
from collbench.runfile.fleet import Node
from tools.fleet import CURVE, Fleet, name, nodes


def drawn(fleet: Fleet) -> tuple[list[str], np.ndarray, Iterable[int]]:
    """Names of rows, the cells from top to bottom, and the slow nodes."""
    times, slow = fleet.draw(1)
    made = figure(groups(nodes(times, fleet.bytes)))
    panel, _ = made.axes
    (mesh,) = panel.images
    return [label.get_text() for label in panel.get_yticklabels()], np.asarray(mesh.get_array()), slow


def test_of_2000_nodes_those_that_stand_out_come_first_and_then_quantiles() -> None:
    names, cells, slow = drawn(Fleet())
    assert set(names[:3]) == {name(node) for node in slow}
    assert 5 < len(names) - 3 < 20
    assert cells.shape == (len(names), 9)
    assert (cells[:3, -3:] > 0.05).all()
    assert (np.diff(cells[3:], axis=0) <= 0).all()
    assert np.abs(cells[names.index("median")]).max() < 1e-9


def test_of_few_nodes_each_has_its_row_the_slowest_first() -> None:
    """First those that stand out, also if that is at four sizes of nine."""
    names, cells, slow = drawn(Fleet(nodes=30, slow=1, by=0.2))
    assert sorted(names) == [name(node) for node in range(30)]
    assert names[0] == name(min(slow))
    assert (np.diff(np.median(cells[1:], axis=1)) <= 0).all()


def test_it_is_written_in_each_format_and_is_the_same_each_time(tmp_path: Path) -> None:
    made = groups(nodes(Fleet(nodes=10).draw(1)[0], Fleet().bytes))
    paths = [tmp_path / f"fleet.{suffix}" for suffix in ("png", "svg", "pdf")]
    assert draw(made, paths) == paths
    before = [path.read_bytes() for path in paths]
    draw(made, paths)
    assert [path.read_bytes() for path in paths] == before


def test_nothing_is_drawn_of_fewer_nodes_than_can_be_compared(tmp_path: Path) -> None:
    made = groups(nodes(Fleet(nodes=4, slow=0).draw(1)[0], Fleet().bytes))
    assert draw(made, [tmp_path / "fleet.png"]) == []
    assert not list(tmp_path.iterdir())


def test_many_sizes_and_long_names_are_drawn_too() -> None:
    sizes = [8 * number for number in range(1, 200)]
    every = [
        Node("n" * 200 + str(number), "OK", curves={CURVE: dict.fromkeys(sizes, 1e-06 + number * 1e-09)})
        for number in range(8)
    ]
    made = figure(groups(every))
    assert len(made.axes[0].get_xticklabels()) <= 20
    assert all(len(label.get_text()) <= 20 for label in made.axes[0].get_yticklabels())


def test_a_faster_node_stands_out_too() -> None:
    names, cells, fast = drawn(Fleet(nodes=60, slow=1, by=-0.2, first=1))
    assert names[0] == name(min(fast))
    assert (cells[0] < -0.1).all()
    assert len(names) < 20
