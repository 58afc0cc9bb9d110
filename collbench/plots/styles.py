"""How figures look: colour, marker and dashes of each line; sizes and fonts for the screen, a paper and a slide.

Another implementation's look is a row in LOOKS, another style one in STYLES.  All of them draw in DejaVu Sans, which
Matplotlib brings along, so that the same runs give the same bytes on every machine.
"""

import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from collbench.plots.library import matplotlib


class Look(NamedTuple):
    """How a line is drawn; marker and dashes tell lines apart where colours can't, as in grey print."""

    color: str
    marker: str
    linestyle: str
    linewidth: float = 1.5
    markerfacecolor: str = "auto"
    markersize: float | None = None  # over that of the style; None: that

    @property
    def predicted(self) -> "Look":
        """The same implementation where it is predicted."""
        return self._replace(linestyle="--", linewidth=1.2, markerfacecolor="white")

    @property
    def muted(self) -> "Look":
        """The same behind lines that matter more; its marker and dashes still tell it apart."""
        return self._replace(color=MUTED, linewidth=1.0, markersize=0.6)

    @property
    def marks(self) -> "Look":
        """Rings around points of other lines."""
        return Look("#202020", self.marker, "", markerfacecolor="none", markersize=1.9)


MUTED = "#BDBDBD"
"""Of lines that stay in the background."""
COLOURED = 7
"""Lines that have a colour unless more are asked for: about as many as can be held apart at a glance."""

# Libraries are solid and thick.  Colours are Okabe and Ito's without yellow, which is lost on white, and four
# more that keep their distance under simulated protanopia, deuteranopia and tritanopia.
LOOKS = {
    "nccl": Look("#000000", "o", "-", 2.4),
    "mpi": Look("#0072B2", "s", "-", 2.4),
    "ring-host": Look("#999933", "v", "--"),
    "ring-events": Look("#E69F00", "^", "-."),
    "ring-flags": Look("#D55E00", "D", "--"),
    "ring-pipelined": Look("#009E73", "P", "-."),
    "ring-ll": Look("#56B4E9", "X", "-"),
    "one-shot": Look("#882255", "<", "--"),
    "one-shot-ll": Look("#CC79A7", ">", "-"),
    "two-shot": Look("#332288", "p", "-."),
    "nvls": Look("#7A4A00", "*", ":"),
    "parameter-server": Look("#F0A3C0", "h", ":"),
}


TOLD_APART = 60
"""Lines, and panels, of one figure: nobody tells more apart, and drawing thousands takes hours."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name, libraries first; a name without a fixed one gets what clashes least."""
    wanted = set(names)
    chosen = {name: look for name, look in LOOKS.items() if name in wanted}
    colors = [look.color for look in LOOKS.values()]
    spare = [Look(*parts) for parts in product(colors, "hdoX^", ("--", "-.", ":"))]
    for name in sorted(wanted - set(LOOKS)):
        first = zlib.crc32(name.encode()) % len(spare)  # so that a name tends to keep its look between runs
        free = spare[first:] + spare[:first] if len(chosen) < TOLD_APART else spare[first : first + 1]
        chosen[name] = min(free, key=lambda look: _clashes(look, chosen.values()))
    return chosen


def _clashes(look: Look, others: Iterable[Look]) -> int:
    """How alike a look is to the others: colour before marker before dashes, one twin before many cousins."""
    likeness = (sum(weight * (look[part] == other[part]) for part, weight in enumerate((4, 2, 1))) for other in others)
    return sum(points**3 for points in likeness)


COLORS = ("#0072B2", "#E69F00", "#000000", "#882255", "#009E73", "#332288")
"""Of topologies, in the order of the runs.

Each is at least 9 lighter or darker than every other (of CIE L* from 0 to 100), so that grey print keeps them apart,
and at least 16 away (CIE 1976) under simulated protanopia, deuteranopia and tritanopia.
"""


FORMATS = ("png", "svg", "pdf")
UNDATED: Mapping[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""What to tell Matplotlib, so that a file's bytes do not depend on the day."""


@dataclass(frozen=True)
class Style:
    """Sizes in inches, fonts in points; functions take the number of columns, or of rows, of panels."""

    name: str
    summary: str  # one line for `collbench plot --help`
    width: Callable[[int], float]
    height: Callable[[int], float]  # of the panels and what stands above them
    font: float  # of the legend
    below: bool  # whether the legend stands below the panels; else on their right
    title: float  # font of what says what the figure is of; 0: its caption must
    labels: float  # font of what names an axis
    remarks: float  # font of a panel's title
    wrap: int  # characters in a line of that at most
    ticks: Callable[[int], int]  # sizes at most that the x axis names
    marks: int  # steps of a linear y axis at most; 0: as many as Matplotlib likes
    lines: float  # widths, over those of the screen
    dpi: int
    beside: bool = False  # whether a second view stands right of the first where there is one topology
    ends: int = 0  # the most panels side by side whose lines have labels at their ends
    margin: float = 0.0  # inches more that a figure is wide for them
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  # Matplotlib's, over those of the screen

    def letters(self, inches: float, columns: int, shared: bool) -> int:
        """In a line of a panel's title, where so many panels, with one y axis or one each, share that width."""
        axis = _AXIS * self.font / 72
        width = (inches - axis) / columns if shared else inches / columns - axis
        return min(self.wrap, letters_of(width - self.remarks / 72, self.remarks))

    def drawn(self, look: Look) -> dict[str, Any]:
        """A line of that look, as Matplotlib takes it."""
        size = (look.markersize or 1.0) * self.settings.get("lines.markersize", _EVERY["lines.markersize"])
        return look._asdict() | {"linewidth": look.linewidth * self.lines, "markersize": size}


_TEXT = 0.53  # width of a letter over the font's size
_AXIS = 5  # width of a y axis with its label over the font's size


def letters_of(inches: float, font: float) -> int:
    """How many stand in a line."""
    return max(12, math.floor(inches * 72 / (font * _TEXT)))


def _ticks(settings: Mapping[str, float]) -> dict[str, float]:
    """Matplotlib's settings of the ticks of both axes."""
    return {f"{axis}tick.{name}": value for name, value in settings.items() for axis in "xy"}


_EVERY = {
    "svg.hashsalt": "collbench",
    "text.parse_math": False,  # what runs are called is text, also with two dollar signs in it
    "font.size": 11,
    "lines.markersize": 5,
    "legend.frameon": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#E4E4E4",
}
SCREEN = Style(
    name="screen",
    summary="for reading on a screen",
    width=lambda columns: {1: 8.0, 2: 12.4}.get(columns, 5.2 * columns),
    height=lambda rows: 5.0 * rows,
    font=11,
    below=False,
    title=13.2,
    labels=11,
    remarks=11,
    wrap=52,
    ticks=lambda columns: 7 if columns == 1 else 6,
    marks=0,
    lines=1.0,
    dpi=150,
    beside=True,
    ends=2,
    margin=1.3,
)
PAPER = Style(
    name="paper",
    summary="one or two columns of a paper; 8 pt, no title, since the caption says it",
    width=lambda columns: 3.4 if columns == 1 else 7.0,
    height=lambda rows: 2.3 * rows,
    font=7,
    below=True,
    title=0,
    labels=8,
    remarks=7,
    wrap=60,
    ticks=lambda columns: 5 if columns < 3 else 4,
    marks=6,
    lines=0.55,
    dpi=300,
    settings={
        "pdf.fonttype": 42,  # TrueType: publishers refuse Matplotlib's default, Type 3
        "ps.fonttype": 42,
        "font.size": 8,
        "axes.titlesize": 7,
        "axes.linewidth": 0.6,
        "grid.linewidth": 0.5,
        "lines.markersize": 3,
        "legend.fontsize": 7,
        "legend.columnspacing": 1.2,
        "legend.labelspacing": 0.3,
        **_ticks({"labelsize": 7, "major.width": 0.6, "minor.width": 0.4, "major.size": 2.5, "minor.size": 1.5}),
    },
)
SLIDE = Style(
    name="slide",
    summary="a whole slide of 16:9; 18 pt and more, thick lines",
    width=lambda columns: 13.333,
    height=lambda rows: 7.5,
    font=18,
    below=False,
    title=26,
    labels=20,
    remarks=18,
    wrap=70,
    ticks=lambda columns: 5 if columns == 1 else 3,
    marks=5,
    lines=1.8,
    dpi=144,  # 1920 x 1080
    settings={
        "font.size": 20,
        "figure.titlesize": 26,
        "axes.titlesize": 18,
        "axes.linewidth": 1.4,
        "grid.linewidth": 1.2,
        "lines.markersize": 10,
        "legend.fontsize": 18,
        "legend.labelspacing": 0.35,
        **_ticks({"labelsize": 18, "major.width": 1.4, "major.size": 7, "minor.size": 4}),
    },
)
STYLES = {style.name: style for style in (SCREEN, PAPER, SLIDE)}


def style(chosen: Style = SCREEN) -> AbstractContextManager[None]:
    """Settings of every figure of that style, whatever the user's configuration."""
    matplotlib()
    from matplotlib.style import context

    return context(["default", {**_EVERY, **chosen.settings}])
