"""Which lines have a colour, how `auto` is marked on what it picked, and what names stand at the ends of lines."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from collbench.plots import styles
from collbench.plots.ends import spread
from collbench.plots.styles import COLOURED, MUTED
from collbench.results import Measurement, Note
from tests.plots.made_up_sweeps import SIZES, drawn, labels, lines, run, sweep

CROWD = run(*sweep(*styles.LOOKS, "a", "b", "c"))


def by_name(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")}


def coloured(figure: Figure) -> set[str]:
    return {name for name, line in by_name(figure).items() if line.get_color() != MUTED}


def times(name: str, *seconds: float) -> list[Measurement]:
    rows = sweep(name, sizes=SIZES[: len(seconds)])
    return [replace(row, seconds=(value,) * 9) for row, value in zip(rows, seconds, strict=True)]


def test_at_most_seven_lines_have_a_colour_unless_more_are_asked_for() -> None:
    for wanted, most in (({}, COLOURED), ({"coloured": 3}, 3), ({"coloured": 99}, 15)):
        figure = drawn("bandwidth", CROWD, **wanted)
        found = by_name(figure)
        grey = set(found) - coloured(figure)
        assert (len(found), len(found) - len(grey)) == (15, most)
        assert not {"nccl", "mpi"} & grey
        assert all(found[name].get_linewidth() < found["nccl"].get_linewidth() for name in grey)
        assert set(found) <= set(labels(figure)), most


def test_libraries_have_a_colour_then_whoever_wins_somewhere_then_the_nearest() -> None:
    rows = [
        *times("mpi", 9.0, 9.0, 9.0),
        *times("wins-once", 1.0, 8.0, 8.0),
        *times("wins-twice", 2.0, 1.0, 1.0),
        *times("near", 1.5, 1.5, 1.5),
        *times("far", 3.0, 3.0, 3.0),
    ]
    order = ["mpi", "wins-twice", "wins-once", "near", "far"]
    for most in range(len(order) + 1):
        assert coloured(drawn("bandwidth", run(*rows), coloured=most)) == set(order[:most])


def test_auto_is_a_mark_on_the_line_of_what_it_picked() -> None:
    picks = ["ring-ll" if number < 5 else "nccl" for number in range(len(SIZES))]
    rows = [replace(row, note=Note(picked=pick)) for row, pick in zip(sweep("auto"), picks, strict=True)]
    figure = drawn("bandwidth", run(*sweep("nccl", "ring-ll"), *rows), coloured=2)
    found = by_name(figure)
    assert found["auto"].get_linestyle() == "None"
    assert found["auto"].get_markerfacecolor() == "none"
    assert lines(figure.axes[0])["auto"][0] == list(SIZES)
    assert MUTED not in {line.get_color() for line in found.values()}
    assert labels(figure)[-2:-1] == ["auto"], "after the lines, before the bands"
    assert "auto" not in [text.get_text() for text in figure.axes[0].texts]
    for others in (("nccl",), ("nccl", "two-shot")):
        figure = drawn("bandwidth", run(*sweep(*others), *rows))
        assert by_name(figure)["auto"].get_linestyle() != "None", "marks would hang in the air"


@settings(max_examples=100, derandomize=True, deadline=None)
@given(some.lists(some.floats(0, 100), max_size=20).map(sorted), some.floats(0.1, 5))
def test_names_are_moved_no_farther_than_they_must_be(wanted: list[float], step: float) -> None:
    places = spread(wanted, step, 0.0, 100.0)
    assert len(places) == len(wanted)
    assert all(after - before >= step - 1e-6 for before, after in pairwise(places))
    if places:
        assert places[0] >= -1e-9
        assert places[-1] <= max(100.0, (len(places) - 1) * step) + 1e-6
    if all(after - before >= step for before, after in pairwise(wanted)):
        assert places == pytest.approx(wanted, abs=1e-6)
