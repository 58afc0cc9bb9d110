"""Which lines have a colour, how `auto` is marked on what it picked, and what names stand at the ends of lines."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from collbench.figures import curves, styles
from collbench.figures.ends import spread
from collbench.figures.kinds import Wanted
from collbench.figures.styles import COLOURED, MUTED, SCREEN, STYLES, Style
from collbench.measurement import Measurement
from collbench.note import Note
from collbench.runs.file import Run, read
from tests.conftest import ROOT
from tests.figures.test_curves import SIZES, labels, lines, predicted, run, sweep

COMMITTED = ROOT / "results" / "cpu-2-ranks" / "run.jsonl"


def drawn(*runs: Run, view: str = "bandwidth", style: Style = SCREEN, **wanted: Any) -> Figure:
    """The figure of one view, laid out."""
    ((_, figure),) = curves.figures(runs, Wanted(views=[view], style=style, **wanted))
    with styles.style(style):
        figure.draw_without_rendering()
    return figure


def by_name(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")}


def times(name: str, *seconds: float, **fields: Any) -> list[Measurement]:
    """One result for each of the first sizes."""
    rows = sweep(name, sizes=SIZES[: len(seconds)], **fields)
    return [replace(row, seconds=(value,) * 9) for row, value in zip(rows, seconds, strict=True)]


FEW = run(*sweep("nccl", "ring-ll"))
CROWD = run(*sweep(*styles.LOOKS, "a", "b", "c"))


@pytest.mark.parametrize(("wanted", "most"), [({}, COLOURED), ({"coloured": 3}, 3), ({"coloured": 99}, 15)])
def test_at_most_seven_lines_have_a_colour(wanted: dict[str, Any], most: int) -> None:
    """Unless more are asked for; the rest is grey, thin, and named all the same."""
    found = by_name(drawn(CROWD, **wanted))
    grey = [name for name, line in found.items() if line.get_color() == MUTED]
    assert len(found) == 15
    assert len(found) - len(grey) == most
    assert {"nccl", "mpi"} & set(grey) == set()
    assert all(found[name].get_linewidth() < found["nccl"].get_linewidth() for name in grey)
    assert set(found) <= set(labels(drawn(CROWD, **wanted)))


def test_libraries_have_a_colour_then_whoever_wins_somewhere_then_the_nearest() -> None:
    """That is the rule which the documents state; a library that is slow everywhere is what others are held against."""
    rows = [
        *times("mpi", 9.0, 9.0, 9.0),
        *times("wins-once", 1.0, 8.0, 8.0),
        *times("wins-twice", 2.0, 1.0, 1.0),
        *times("near", 1.5, 1.5, 1.5),
        *times("far", 3.0, 3.0, 3.0),
    ]
    order = ["mpi", "wins-twice", "wins-once", "near", "far"]
    for most in range(len(order) + 1):
        found = by_name(drawn(run(*rows), coloured=most))
        assert {name for name, line in found.items() if line.get_color() != MUTED} == set(order[:most])


def test_what_is_predicted_has_the_colour_of_what_was_measured() -> None:
    """It counts with it."""
    found = by_name(drawn(run(*sweep("nccl", "ring-ll"), platform="cpu"), predicted("nccl", "ring-ll"), coloured=1))
    assert found["nccl, predicted"].get_color() == found["nccl"].get_color() != MUTED
    assert found["ring-ll, predicted"].get_color() == found["ring-ll"].get_color() == MUTED


def test_auto_is_a_mark_on_the_line_of_what_it_picked() -> None:
    """At its own value, without a line, a band or a name at its end; it takes none of the colours."""
    picked = [
        replace(row, note=Note(picked="ring-ll" if number < 5 else "nccl")) for number, row in enumerate(sweep("auto"))
    ]
    figure = drawn(run(*sweep("nccl", "ring-ll"), *picked), coloured=2)
    found = by_name(figure)
    assert found["auto"].get_linestyle() == "None"
    assert found["auto"].get_markerfacecolor() == "none"
    assert lines(figure.axes[0])["auto"][0] == list(SIZES)
    assert MUTED not in {line.get_color() for line in found.values()}
    assert labels(figure)[-2:-1] == ["auto"], "after the lines, before the bands"
    assert "auto" not in [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("others", [("nccl",), ("nccl", "two-shot")])
def test_auto_has_a_line_where_what_it_picked_is_not_drawn(others: tuple[str, ...]) -> None:
    """Marks would hang in the air."""
    picked = [replace(row, note=Note(picked="ring-ll")) for row in sweep("auto")]
    assert by_name(drawn(run(*sweep(*others), *picked)))["auto"].get_linestyle() != "None"


@pytest.mark.parametrize("view", ["bandwidth", "latency", "ratio"])
@pytest.mark.parametrize("rows", [CROWD, FEW, read(COMMITTED)], ids=["many", "few", "real"])
def test_names_at_the_ends_of_lines_do_not_overlap(view: str, rows: Run) -> None:
    """Nor do they leave the figure, or stand in another panel; they come in the order of the values."""
    figure = drawn(rows, view=view)
    names = [text for text in figure.axes[0].texts if text.get_label() == "end"]
    boxes = sorted((Text.get_window_extent(text) for text in names), key=lambda box: box.y0)
    assert len(names) >= 2 or rows is FEW
    for one, other in pairwise(boxes):
        assert one.y1 <= other.y0 + 1 or one.x1 < other.x0 or other.x1 < one.x0
    last = max((text.xy[0] for text in names), default=0)  # type: ignore[attr-defined]
    beside = sorted((text for text in names if text.xy[0] == last), key=lambda text: Text.get_window_extent(text).y0)  # type: ignore[attr-defined]
    values = [text.xy[1] for text in beside]  # type: ignore[attr-defined]
    assert values == sorted(values)
    limit = figure.axes[1].get_window_extent().x0 if len(figure.axes) > 1 else figure.legends[0].get_window_extent().x0
    assert all(Text.get_window_extent(text).x1 < limit + 2 for text in names)


def test_the_legend_is_in_the_order_of_the_right_ends() -> None:
    """The topmost first: the fastest where y is a rate, the slowest where it is a time."""
    rows = run(*times("nccl", 1.0, 3.0), *times("ring-ll", 2.0, 2.0), *times("two-shot", 3.0, 1.0))
    order = ["two-shot", "ring-ll", "nccl"]
    assert labels(drawn(rows))[:3] == order
    assert labels(drawn(rows, view="latency"))[:3] == order[::-1]
    assert labels(drawn(rows, coloured=2))[:3] == ["two-shot", "nccl", "ring-ll"], "those in grey after the others"


def test_a_speed_up_stands_beside_the_bandwidth_of_one_topology() -> None:
    """On a screen, unless it is a figure of its own, or there is no library."""
    one, other = run(*sweep("nccl", "ring-ll")), run(*sweep("nccl", "ring-ll"), topology="PCIe")

    def axes(*runs: Run, views: tuple[str, ...] = ("bandwidth",), style: str = "screen", **wanted: Any) -> list[str]:
        figures = dict(curves.figures(runs, Wanted(views=views, style=STYLES[style], **wanted)))
        return [panel.get_ylabel() for panel in figures[next(iter(figures))].axes]

    assert axes(one) == ["bus bandwidth", "speed-up over nccl"]
    assert axes(one, views=("bandwidth", "ratio")) == ["bus bandwidth"]
    assert axes(run(*sweep("ring-ll"))) == ["bus bandwidth"]
    assert axes(one, style="paper") == ["bus bandwidth"]
    assert "speed-up over nccl" not in axes(one, other)
    assert axes(one, other, overlay=True) == ["bus bandwidth"]


PLACES = some.lists(some.floats(0, 100), max_size=20).map(sorted)


@given(PLACES, some.floats(0.1, 5))
def test_names_are_moved_no_farther_than_they_must_be(wanted: list[float], step: float) -> None:
    """In order, a step apart, within the panel; where nothing is too near nothing moves."""
    places = spread(wanted, step, 0.0, 100.0)
    assert len(places) == len(wanted)
    assert all(after - before >= step - 1e-6 for before, after in pairwise(places))
    if places:
        assert places[0] >= -1e-9
        assert places[-1] <= max(100.0, (len(places) - 1) * step) + 1e-6
    if all(after - before >= step for before, after in pairwise(wanted)):
        assert places == pytest.approx(wanted, abs=1e-6)


def test_a_default_figure_is_drawn_fast(tmp_path: Path) -> None:
    """So that a sweep does not wait for its picture: well under 1.5 s on a machine with nothing else to do."""
    from time import process_time

    from collbench.figures.kinds import draw

    runs = [read(COMMITTED)]
    draw(runs, tmp_path, wanted=Wanted(views=["latency"]))  # imports
    began = process_time()
    draw(runs, tmp_path, wanted=Wanted(views=["bandwidth"]))
    assert process_time() - began < 3.0
