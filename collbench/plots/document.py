"""Pages of a PDF with texts, tables and figures: slides, and sheets of paper.

Boxes are (left, top, width, height) in inches from the upper left corner of a page.
"""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from collbench.present.figures import GREY, UNDATED, Axes, Figure, letters_of, new_figure

Box = tuple[float, float, float, float]
SLIDE_SIZE, A4 = (13.333, 7.5), (8.27, 11.69)
"""Inches."""
_BOLD = 1.15  # width of bold letters over that of others
_MARGIN = 0.12  # of words in a coloured box
_SMALLER = 0.97  # at most, times as large, until a text fits
_NODE = {"boxstyle": "round,pad=0.4", "facecolor": "white"}


class Page:
    """A page on which every text is wrapped, and made smaller, until it fits into its box."""

    def __init__(self, part: str, size: tuple[float, float], figure: "Figure | None" = None) -> None:
        """Start a page of a part of the document; a figure of that size may be what it shows."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self.part, (self._wide, self._tall) = part, size
        self.figure = figure or new_figure(*size, layout="none")
        FigureCanvasAgg(self.figure)  # measures texts quickly

    def write(self, words: str, box: Box, size: float, shade: str = "", **font: Any) -> None:
        """Write words into a box, of that colour if it has a shade, in letters of at most so many points.

        `font` has looks as Matplotlib's Text has them.  Lines are wrapped unless it has a `family`, a monospaced one's.
        """
        left, top, width, height = box
        if shade:
            self.blank(box, shade)
            left, top, width, height = left + _MARGIN, top + _MARGIN, width - 2 * _MARGIN, height - 2 * _MARGIN
        place = left / self._wide, 1 - top / self._tall
        looks: dict[str, Any] = {"va": "top", "linespacing": 1.3}
        written = self.figure.text(*place, "", **looks | font)
        coded, wide = "family" in font, _BOLD if font.get("weight") == "bold" else 1.0
        while True:
            written.set(text=words if coded else _wrapped(words, letters_of(width, size * wide)), fontsize=size)
            extent = written.get_window_extent()
            wider, taller = extent.width / width / self.figure.dpi, extent.height / height / self.figure.dpi
            if max(wider, taller) <= 1:
                return
            # Half as large, wrapped words fill a quarter; lines of code get shorter, others are wrapped anew.
            size *= min(_SMALLER, taller**-0.5, 1 / wider if coded else 1)

    def axes(self, box: Box) -> Axes:
        """Return axes in a box."""
        left, top, width, height = box
        place = left / self._wide, 1 - (top + height) / self._tall, width / self._wide, height / self._tall
        return self.figure.add_axes(place)

    def blank(self, box: Box, color: str = "none") -> Axes:
        """Return axes without ticks and frame: to draw in, or a coloured box behind a text."""
        axes = self.axes(box)
        axes.set(xticks=[], yticks=[], facecolor=color, zorder=-1)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
        return axes

    def table(self, rows: Sequence[Sequence[str]], box: Box, widths: Sequence[float], size: float) -> None:
        """Write rows of equal height, the first bold, with a line below each and columns of those widths."""
        left, top, width, height = box
        edges = list(accumulate(widths, initial=left))
        step = height / len(rows)
        for number, row in enumerate(rows):
            low = top + number * step
            for words, (start, end) in zip(row, pairwise(edges), strict=True):
                cell = (start, low + 0.2 * step, end - start - 0.1, 0.75 * step)
                self.write(words, cell, size, weight="normal" if number else "bold")
            self.blank((left, low + step, width, 0.01), GREY)

    def network(
        self,
        nodes: Mapping[str, tuple[float, float]],
        arrows: Mapping[str, Sequence[Sequence[str]]],
        box: Box,
        size: float,
    ) -> None:
        """Draw named nodes, at places in shares of a box, and arrows between them by their colour."""
        axes = self.blank(box)
        for name, place in nodes.items():
            axes.annotate(name, place, ha="center", va="center", fontsize=size, bbox=_NODE)
        for color, pairs in arrows.items():
            for start, end in pairs:
                line = {"arrowstyle": "-|>", "color": color, "shrinkA": 2 * size, "shrinkB": 2 * size, "linewidth": 1.5}
                axes.annotate("", nodes[end], nodes[start], arrowprops=line)


def _wrapped(words: str, letters: int) -> str:
    """Return words in lines of so many letters; what goes on below a choice, `A   one-shot`, stands below its words."""
    lines = []
    for line in words.split("\n"):
        indent = 5 * " " if line[1:4].isspace() else ""
        lines.append(textwrap.fill(line, letters, subsequent_indent=indent, break_on_hyphens=False))
    return "\n".join(lines)


class Layouts:
    """Pages whose texts, and where those stand, are data.

    A layout is a list of boxes: `text`, a Jinja template; `at`, the box; `size`, of letters in points; and `look`, a
    name in the table of Matplotlib's looks of a text.
    """

    def __init__(self, tables: Mapping[str, Any], **known: Any) -> None:
        """Take the tables `layout` and `look`, and what every template knows."""
        from jinja2 import Environment, StrictUndefined

        self.tables = tables
        # Texts become marks on paper, which nobody executes.
        self._templates = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
        self._templates.globals |= known

    def filled(self, template: str, **facts: Any) -> str:
        """Return a template with what it knows, and with these facts."""
        return self._templates.from_string(template).render(facts)

    def page(self, layout: str, part: str, size: tuple[float, float] = SLIDE_SIZE, **facts: Any) -> Page:
        """Return a page of a layout, for a part of the document; a text that comes out empty has no box."""
        page = Page(part, size)
        for box in self.tables["layout"][layout]:
            if words := self.filled(box["text"], **facts).strip():
                page.write(words, box["at"], box["size"], **self.tables["look"].get(box.get("look"), {}))
        return page


def save_pages(pages: Sequence[Page], path: Path) -> Path:
    """Write a PDF of these pages, without a date, so that the same pages give the same bytes; return its path."""
    from matplotlib.backends.backend_pdf import PdfPages

    with PdfPages(path, metadata=dict(UNDATED["pdf"])) as document:
        for page in pages:
            document.savefig(page.figure)
    return path
