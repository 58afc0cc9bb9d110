"""Styles of figures (`--style`): sizes, fonts, lines, and that nothing lies over anything else."""

from functools import cache
from itertools import combinations

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from collbench.plots import curves
from collbench.present import figures as styles
from collbench.present.figures import STYLES, Style
from collbench.results import Note
from collbench.runfile.store import Run
from tests.plots.made_up_sweeps import drawn, laid_out, lines, predicted, run, sweep, ticks

SIZES = (64, 2**12, 2**20, 2**28)
EVERY = tuple(styles.LOOKS)


def topologies(count: int, *implementations: str) -> list[Run]:
    names = ("2 x AMD EPYC, 128 cores", "RTX 4090 on PCIe 4 without P2P", "NVSwitch", "DGX H100")
    note = Note.of("oversubscribed: 4 ranks share 2 cores")
    return [run(*sweep(*implementations, sizes=SIZES, note=note), topology=name, name=name) for name in names[:count]]


@cache
def crowded(style: Style, count: int) -> Figure:
    """So many topologies with all implementations, and remarks above each panel; laying it out takes a second."""
    return laid_out("latency", *topologies(count, *EVERY), style=style)


def texts(figure: Figure, style: Style) -> list[Text]:
    """All that can be read; how many ticks there are depends on the size of letters."""
    with curves.style(style):
        found = [text for axes in figure.axes for which in "xy" for text in ticks(axes, which)]
    found += [part for axes in figure.axes for part in (axes._left_title, axes.xaxis.label, axes.yaxis.label)]  # type: ignore[attr-defined]
    found += [*figure.texts, *figure.legends[0].get_texts(), *(text for axes in figure.axes for text in axes.texts)]
    return [text for text in found if text.get_text() and text.get_visible()]


OTHERS = [pytest.param(name, marks=pytest.mark.full) for name in STYLES if name != "screen"]


@pytest.mark.parametrize("chosen", ["screen", *OTHERS])
def test_no_text_lies_over_another_or_outside_and_the_legend_covers_no_panel(chosen: str) -> None:
    style = STYLES[chosen]
    overlay = laid_out("overlay-ratio", *topologies(4, "nccl", "ring-ll", "two-shot"), style=style, overlay=True)
    for figure, least in ((crowded(style, 1), 0.15), (crowded(style, 4), 0.15), (overlay, 0.3)):
        boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts(figure, style)]
        for (one, first), (other, second) in combinations(boxes, 2):
            assert not first.overlaps(second), (one, other)
        legend, whole = figure.legends[0].get_window_extent(), figure.bbox
        for axes in figure.axes:
            assert not axes.get_window_extent().overlaps(legend)
            assert axes.get_window_extent().height > least * whole.height
        for name, box in [*boxes, ("legend", legend)]:
            assert min(box.x0 - whole.x0, whole.x1 - box.x1) > -1, name
            assert min(box.y0 - whole.y0, whole.y1 - box.y1) > -1, name


def test_every_style_tells_lines_apart_without_colours_and_says_what_is_predicted() -> None:
    for style in STYLES.values():
        axes = drawn("latency", *topologies(1, *EVERY), style=style).axes[0]
        assert set(lines(axes)) == set(EVERY)
        assert len({(line.get_marker(), line.get_linestyle()) for line in axes.lines}) == len(EVERY), style.name
        figure = drawn("ratio", predicted("nccl", "ring-ll"), style=style)
        assert "predicted" in (figure.get_suptitle() + figure.axes[0].get_ylabel()).lower(), style.name
