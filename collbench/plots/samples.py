"""Every sample of every row (`--view samples`): a strip of them around their median, with the median's interval."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from collbench.plots.axes import grid_along_x, heading, name_rows, panel_grid
from collbench.plots.panels import Drawn, Panel, PlotLine
from collbench.plots.views import SAMPLES
from collbench.present.figures import DARK, SCREEN, Axes, Figure, Look, new_figure, style
from collbench.results import Measurement, Reported
from collbench.results.collectives import sample_in_words
from collbench.units import format_seconds, format_size

_COLUMNS, _PANELS = 3, 9  # sizes side by side, and in a figure; more are too small to read
_ROW = 1.9  # height of a strip over the font's size
_WIDEST = 2.0  # times the median that the axis reaches at most, and its inverse
_TAILS = 1.0  # per cent of all samples of a figure that may lie beyond the axis on either side
_MANY = 30  # points of a strip that are drawn small
_FEW = 400  # points that a vector picture holds one by one


def figures(
    row: Sequence[Panel], looks: Mapping[PlotLine, Look], say: Callable[[str], None]
) -> Iterator[tuple[str, Figure]]:
    """Yield a figure for each topology with samples; `say` gets why another has none, and how many sizes lack.

    They have the plot style of the screen whatever the user asked for: so many points are no slide.
    """
    for number, panel in enumerate(row, 1):
        sampled = {key: result for key, result in panel.points.items() if len(_samples(result)) > 1}
        if not sampled:
            say(f"{SAMPLES} not drawn for {panel.place}: {_lacking(panel)}")
            continue
        sizes = sorted({size for _, size in sampled})
        shown = spaced(sizes, _PANELS)
        if len(shown) < len(sizes):
            say(f"{SAMPLES} of {len(sizes) - len(shown)} of {len(sizes)} sizes not drawn for {panel.place}")
        name = SAMPLES if number == 1 else f"{SAMPLES}-{number}"
        yield name, _figure(panel, sampled, shown, looks)


def _samples(result: Drawn) -> tuple[float, ...]:
    """Return seconds; none of a prediction, or where only a statistic is known."""
    if isinstance(result, Measurement):
        return result.times
    return result.samples if isinstance(result, Reported) else ()


def _lacking(panel: Panel) -> str:
    """Return why a panel has no samples."""
    statistics = dict.fromkeys(result.statistic for result in panel.results if isinstance(result, Reported))
    if statistics:
        return f"the other tool printed no samples but {'; '.join(filter(None, statistics)) or 'one figure'}"
    return "what is predicted has no samples" if panel.predicted else "no row has two samples"


def spaced(sizes: Sequence[int], most: int) -> list[int]:
    """Return at most that many sizes, evenly spaced, the first and the last among them."""
    if len(sizes) <= most:
        return [*sizes]
    return [sizes[round(number * (len(sizes) - 1) / (most - 1))] for number in range(most)]


@style()
def _figure(
    panel: Panel, sampled: Mapping[tuple[PlotLine, int], Drawn], sizes: list[int], looks: Mapping[PlotLine, Look]
) -> Figure:
    from matplotlib.ticker import MaxNLocator

    shown = {line for line, _ in sampled}
    names = [line for line in looks if line in shown]
    columns = min(_COLUMNS, len(sizes))
    rows = math.ceil(len(sizes) / columns)
    height = rows * (len(names) * _ROW + 5) * SCREEN.font / 72 + 4 * SCREEN.font / 72
    width = SCREEN.width(columns)
    drawn = new_figure(width, max(2.5, height), dpi=SCREEN.dpi)
    panels = panel_grid(drawn, len(sizes), columns, sharex=True, sharey=True)
    low, high = _limits([result for (_, size), result in sampled.items() if size in sizes])
    for axes, size in zip(panels, sizes, strict=True):
        of_size = [result for (_, other), result in sampled.items() if other == size]
        counts = [len(_samples(result)) for result in of_size]
        least, most = min(counts), max(counts)
        count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        axes.set_title(f"{format_size(size)}, {count} samples a row")
        for number, line in enumerate(names):
            if result := sampled.get((line, size)):
                _strip(axes, number, result, looks[line], (low, high))
        axes.set_xlim(low, high)
        name_rows(axes, [line.label for line in names], 0.6, fontsize=0.85 * SCREEN.font)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(
            lambda ratio, position: "median" if abs(ratio - 1) < 1e-9 else f"{100 * (ratio - 1):+.3g} %"
        )
        grid_along_x(axes)
    words = f"Samples of {panel.results[0].case.title} against the median of each row\n{panel.place}"
    if what := sample_in_words(sampled.values()):
        words += f"; each {what}"
    heading(drawn, words, fontsize=SCREEN.labels)
    return drawn


def _limits(results: Sequence[Drawn]) -> tuple[float, float]:
    """Return the ends of the axis: nearly all samples, and every interval as far as it is below twice the median."""
    ratios = np.concatenate([np.array(_samples(result)) / result.typical for result in results])

    # Nearly all samples, and every interval, but no more than twice the median.
    least, most = np.percentile(ratios, [_TAILS, 100 - _TAILS])
    ends = [end / result.typical for result in results for end in result.band if math.isfinite(end)]
    low, high = min(least, *ends, 0.98), max(most, *ends, 1.02)
    return max(low, 1 / _WIDEST) / 1.01, min(high, _WIDEST) * 1.01


def _strip(axes: Axes, row: int, result: Drawn, look: Look, limits: tuple[float, float]) -> None:
    """Draw points in the order in which they were taken, from above to below; median and interval across them."""
    ratios = np.array(_samples(result)) / result.typical
    heights = row + np.linspace(-0.3, 0.3, len(ratios))
    inside = (ratios >= limits[0]) & (ratios <= limits[1])
    points: dict[str, Any] = {
        "color": look.color,
        "markersize": 3 if len(ratios) > _MANY else 6,
        "alpha": 0.55,
        "markeredgewidth": 0,
        "rasterized": len(ratios) > _FEW,
    }
    axes.plot(ratios[inside], heights[inside], ".", label="_samples", **points)
    low, high = (end / result.typical for end in result.band)
    if math.isfinite(high):
        (bar,) = axes.barh(row, high - low, left=low, height=0.72, color=look.color, alpha=0.25, linewidth=0)
        bar.set_label("_interval")
    axes.plot((1, 1), (row - 0.4, row + 0.4), color=DARK, linewidth=1.2 * SCREEN.lines, label="_median")

    # Samples beyond the axis are counted beside their strip.
    beyond = int((~inside).sum())
    said = format_seconds(result.typical) + (f", {beyond:,} outside" if beyond else "")
    axes.text(1.01, row, said, transform=axes.get_yaxis_transform(), va="center", fontsize=0.75 * SCREEN.font)
