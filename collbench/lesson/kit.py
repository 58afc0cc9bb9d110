"""A teacher's kit of a lesson: slides, a sheet to hand out, its answers, and a plan of 90 minutes.

Sentences that every lesson has stand in `assets/kit.toml` and `assets/plan.md`; the rest is the `Content` of the page.
Boxes are (left, top, width, height) in inches from the upper left corner of a page.
"""

import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any

from collbench.lesson.content import HERE, Break, Chapter, Content, Formula, Question, Reason, Screen, Trace
from collbench.plots import curves, timeline
from collbench.plots.axes import Axes, Figure, new_figure, patch_legend
from collbench.plots.kinds import PlotRequest
from collbench.plots.style import DARK, GREY, PAPER, PHASES, SLIDE, UNDATED, Style, letters_of, style
from collbench.results import by_key
from collbench.results.collectives import Span
from collbench.units import format_rate, format_seconds, format_size

Box = tuple[float, float, float, float]
Texts = Mapping[str, Any]
_SLIDE, _A4 = (13.333, 7.5), (8.27, 11.69)
_LEFT, _WIDE = 0.6, 12.1  # of what stands on a slide
_ACCENT, _GOOD, _SHADE = PHASES["published"], PHASES["added"], "#F2F2F2"
_SMALLER = 0.96  # times as large, until a text fits
_CODE = 92  # most letters in a line of code


class Page:
    """A page on which every text is wrapped, and made smaller, until it fits into its box."""

    def __init__(self, part: str, size: tuple[float, float], source: str = "", figure: Figure | None = None) -> None:
        """Start a page of that part of the lesson; a figure that has that size already is a page too."""
        self.part, self.source, (self._wide, self._tall) = part, source, size
        self.figure = figure or new_figure(*size, layout="none")

    def write(self, words: str, box: Box, size: float, **font: Any) -> float:
        """Write words in letters of at most that size, and return the inches from the top where they end."""
        left, top, width, height = box
        place = left / self._wide, 1 - top / self._tall
        written = self.figure.text(*place, "", va="top", linespacing=1.25, **font)
        while True:
            lines = words.split("\n")
            if "family" not in font:
                lines = [textwrap.fill(line, letters_of(width, size), subsequent_indent=_hanging(line)) for line in lines]
            written.set_text("\n".join(lines))
            written.set_fontsize(size)
            extent = written.get_window_extent()
            if extent.width <= width * self.figure.dpi and extent.height <= height * self.figure.dpi:
                return top + extent.height / self.figure.dpi
            size *= _SMALLER

    def axes(self, box: Box) -> Axes:
        """Return empty axes in a box."""
        left, top, width, height = box
        return self.figure.add_axes(
            (left / self._wide, 1 - (top + height) / self._tall, width / self._wide, height / self._tall)
        )

    def shade(self, box: Box, color: str = _SHADE) -> None:
        """Colour a box, behind what stands in it."""
        axes = self.axes(box)
        axes.set(xticks=[], yticks=[], facecolor=color, zorder=-1)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
