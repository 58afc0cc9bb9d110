"""Styles of figures (`--style`): sizes, fonts, lines, and that nothing lies over anything else."""

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from collbench.figures import curves, kinds, styles
from collbench.figures.kinds import Wanted
from collbench.figures.styles import STYLES, Style
from collbench.note import Note
from collbench.runs.file import Run
from tests.figures.test_curves import lines, run, sweep, ticks

SIZES = (64, 2**12, 2**20, 2**28)
LIBRARY_AND_LADDER = tuple(styles.LOOKS)
each_style = pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)


def topologies(count: int, *implementations: str) -> list[Run]:
    names = ("2 x AMD EPYC, 128 cores", "RTX 4090 on PCIe 4 without P2P", "NVSwitch", "DGX H100")
    note = Note.of("oversubscribed: 4 ranks share 2 cores")
    return [run(*sweep(*implementations, sizes=SIZES, note=note), topology=name, name=name) for name in names[:count]]


def figure(style: Style, runs: list[Run], view: str = "latency", **wanted: Any) -> Figure:
    """Laid out as it will be when written."""
    ((_, drawn),) = curves.figures(runs, wanted=Wanted([view], style, **wanted))
    with curves.style(style):
        drawn.draw_without_rendering()
    return drawn


@cache
def crowded(style: Style, count: int) -> Figure:
    """So many topologies with all implementations, and remarks above each panel; laying it out takes a second."""
    return figure(style, topologies(count, *LIBRARY_AND_LADDER))


def texts(drawn: Figure, style: Style) -> list[Text]:
    """All that can be read; how many ticks there are depends on the size of letters."""
    with curves.style(style):
        found = [text for axes in drawn.axes for which in "xy" for text in ticks(axes, which)]
    found += [part for axes in drawn.axes for part in (axes._left_title, axes.xaxis.label, axes.yaxis.label)]  # type: ignore[attr-defined]
    found += [*drawn.texts, *drawn.legends[0].get_texts(), *(text for axes in drawn.axes for text in axes.texts)]
    return [text for text in found if text.get_text() and text.get_visible()]


@each_style
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_text_lies_over_another_or_outside(style: Style, count: int) -> None:
    """Nor does the legend cover a panel; with all implementations and remarks above each panel."""
    drawn = crowded(style, count)
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts(drawn, style)]
    for (one, first), (other, second) in combinations(boxes, 2):
        assert not first.overlaps(second), (one, other)
    legend, whole = drawn.legends[0].get_window_extent(), drawn.bbox
    for axes in drawn.axes:
        assert not axes.get_window_extent().overlaps(legend)
        assert axes.get_window_extent().height > 0.15 * whole.height
    for name, box in [*boxes, ("legend", legend)]:
        assert min(box.x0 - whole.x0, whole.x1 - box.x1) > -1, name
        assert min(box.y0 - whole.y0, whole.y1 - box.y1) > -1, name


@each_style
@pytest.mark.parametrize("view", ["bandwidth", "ratio"])
def test_an_overlay_has_room_for_its_legend(style: Style, view: str) -> None:
    """Long names of topologies are wrapped."""
    drawn = figure(style, topologies(4, "nccl", "ring-ll", "two-shot"), view, overlay=True)
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts(drawn, style)]
    for (one, first), (other, second) in combinations(boxes, 2):
        assert not first.overlaps(second), (one, other)
    legend = drawn.legends[0].get_window_extent()
    assert not drawn.axes[0].get_window_extent().overlaps(legend)
    assert drawn.bbox.x0 <= legend.x0
    assert legend.x1 <= drawn.bbox.x1 + 1
    assert drawn.axes[0].get_window_extent().height > 0.3 * drawn.bbox.height


def test_a_figure_of_a_paper_is_as_wide_as_one_or_two_columns() -> None:
    """In 7 and 8 pt, without a title, which its caption is."""
    paper = STYLES["paper"]
    for count, width in ((1, 3.4), (2, 7.0), (4, 7.0)):
        drawn = crowded(paper, count)
        assert drawn.get_size_inches()[0] == width
        assert min(axes.get_window_extent().height for axes in drawn.axes) > 1.2 * drawn.dpi
        assert drawn.get_suptitle() == ""
        assert {text.get_fontsize() for text in texts(drawn, paper)} == {7, 8}


def test_a_slide_is_wide_and_its_letters_are_large() -> None:
    """16:9, 18 pt at least, a title, few ticks, and lines and markers that are seen from afar."""
    slide = STYLES["slide"]
    for count in (1, 4):
        drawn = crowded(slide, count)
        width, height = drawn.get_size_inches()
        assert width / height == pytest.approx(16 / 9, rel=1e-3)
        assert min(text.get_fontsize() for text in texts(drawn, slide)) >= 18
        assert drawn.get_suptitle() == "Latency of allreduce (float, sum)"
        with curves.style(slide):
            assert all(len(ticks(axes, "x")) <= 5 for axes in drawn.axes)
    screen = figure(STYLES["screen"], topologies(1, "nccl")).axes[0].lines[0]
    line = drawn.axes[0].lines[0]
    assert line.get_linewidth() > 1.5 * screen.get_linewidth()
    assert line.get_markersize() >= 2 * screen.get_markersize()


@each_style
def test_what_is_only_predicted_is_said_in_every_style(style: Style) -> None:
    """By the title, or by the axis where there is none."""
    from tests.figures.test_curves import predicted

    drawn = figure(style, [predicted("nccl", "ring-ll")], "ratio")
    assert "predicted" in (drawn.get_suptitle() + drawn.axes[0].get_ylabel()).lower()


@each_style
def test_lines_are_told_apart_without_colours(style: Style) -> None:
    """No two have the same marker and dashes."""
    axes = crowded(style, 1).axes[0]
    assert set(lines(axes)) == set(LIBRARY_AND_LADDER)
    assert len({(line.get_marker(), line.get_linestyle()) for line in axes.lines}) == len(LIBRARY_AND_LADDER)


@each_style
def test_same_runs_give_the_same_bytes_in_every_style(
    style: Style, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the user has configured Matplotlib otherwise; a PDF for a paper embeds TrueType fonts."""
    import matplotlib

    runs, formats = topologies(2, "nccl", "ring-ll"), ("png", "svg", "pdf")
    wanted = Wanted(["ratio"], style, overlay=True)
    first = kinds.draw(runs, tmp_path / "first", formats, wanted=wanted)
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 25.0)
    monkeypatch.setitem(matplotlib.rcParams, "pdf.fonttype", 3)
    monkeypatch.setitem(matplotlib.rcParams, "xtick.labelsize", 30)
    again = kinds.draw(runs, tmp_path / "again", formats, wanted=wanted)
    assert [path.name for path in first] == [f"overlay-ratio.{suffix}" for suffix in formats]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert (b"/CIDFontType2" in first[-1].read_bytes()) == (style.name == "paper")
