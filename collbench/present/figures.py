"""Looks of lines, plot styles, and files of figures.

figures.toml has LOOKS (colours and markers) and STYLES (sizes for screen and paper).  The font is Matplotlib's own
DejaVu Sans, so the same runs give the same bytes on every machine.  Most colours are those of Okabe and Ito, which
colour-blind people can distinguish.  Matplotlib is imported at the first figure.
"""

import importlib.util
import io
import math
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np

from collbench.host.files import replace_whole
from collbench.host.isolation import outside

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # Matplotlib is not imported yet
    Axes = Figure = Any
FORMATS = ("png", "svg", "pdf")
UNDATED: Mapping[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata by format for Matplotlib's savefig: without a date the same figure gives the same bytes."""
TOLD_APART = 60
"""Most lines, and most panels, of one figure: nobody distinguishes more, and drawing thousands takes hours."""
COLOURED = 7
"""Default number of coloured lines, about as many as a reader distinguishes at a glance."""
MUTED = "#BDBDBD"
"""Colour of lines in the background."""
GREY = "#606060"
"""Colour of bounds, levels and ideals."""


class Look(NamedTuple):
    """The look of a line; marker and dashes distinguish lines in grey print, too."""

    color: str
    marker: str
    linestyle: str
    linewidth: float = 1.5
    markerfacecolor: str = "auto"
    markersize: float | None = None  # relative to the plot style's; None: the same

    @property
    def predicted(self) -> "Look":
        """The look of the implementation's predictions: dashed and hollow."""
        return self._replace(linestyle="--", linewidth=1.2, markerfacecolor="white")

    @property
    def muted(self) -> "Look":
        """The look of the line in the background: grey and thin."""
        return self._replace(color=MUTED, linewidth=1.0, markersize=0.6)

    @property
    def marks(self) -> "Look":
        """Hollow marks around points of other lines, without a line."""
        return Look("#202020", self.marker, "", markerfacecolor="none", markersize=1.9)


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LOOKS = {name: Look(*look) for name, look in _TABLES["looks"].items()}

COLORS = ("#0072B2", "#E69F00", "#000000", "#882255", "#009E73", "#332288")
"""Colours of topologies, in the order of the runs.

Their CIE L* differs by at least 9 (of 100), for grey print, and they are at least 16 apart (CIE 1976) under simulated
protanopia, deuteranopia and tritanopia.
"""

PHASES: Mapping[str, str] = _TABLES["phases"]
"""Colours of the parts of an explained operation (results.PARTS)."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for each name, first those of LOOKS; other names get the looks that clash least."""
    named = set(names)
    chosen = {name: look for name, look in LOOKS.items() if name in named}
    colors = [look.color for look in LOOKS.values()]
    spare = [Look(*parts) for parts in product(colors, "hdoX^", ("--", "-.", ":"))]
    for name in sorted(named - set(LOOKS)):
        # Only the name decides the start of the search, so that it tends to keep its look between runs.
        first = zlib.crc32(name.encode()) % len(spare)
        if len(chosen) >= TOLD_APART:
            chosen[name] = spare[first]
            continue
        candidates = spare[first:] + spare[:first]
        # Cubed, since one very similar look clashes more than many slightly similar ones.
        chosen[name] = min(candidates, key=lambda look: sum(_alike(look, other) ** 3 for other in chosen.values()))
    return chosen


def _alike(one: Look, other: Look) -> int:
    marks = 2 * (one.marker == other.marker) + (one.linestyle == other.linestyle)
    return 4 * (one.color == other.color) + marks


def phase_css(prefix: str = ".") -> str:
    """Return a style sheet rule for the colour of each phase: `.waited { background: #CCCCCC; }`."""
    return "\n".join(f"{prefix}{name} {{ background: {colour}; }}" for name, colour in PHASES.items())


_LETTER = 0.53  # width of a letter over the font's size
_AXIS = 5  # width of a y axis with its label over the font's size


@dataclass(frozen=True)
class Style:
    """A plot style: sizes in inches, fonts in points; by default for a screen."""

    name: str
    widths: tuple[float, ...] = (8.0, 12.4, 15.6)  # of figures with one, two, three columns of panels
    panel_width: float = 0  # of each panel if there are more columns; 0: the last of widths is the largest
    row_height: float = 5.0  # of a row of panels with its titles
    size_ticks: tuple[int, int, int] = (7, 6, 6)  # most sizes named along x, with one, two, three and more columns
    value_ticks: int = 0  # most steps of a linear y axis; 0: Matplotlib's choice
    font: float = 11  # of the legend, ticks and a panel's title
    legend_below: bool = False  # else it is right of the panels
    title: float = 13.2  # font of the figure's title; 0: no title, since a caption replaces it
    labels: float = 11  # font of the name of an axis
    wrap: int = 52  # most letters in a line of a panel's title
    lines: float = 1.0  # line widths over those of LOOKS
    markers: float = 5
    frame: float = 0.8  # line width of axes and ticks
    dpi: int = 150
    companion: bool = False  # whether one topology has a second view at the right
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)  # other settings of Matplotlib

    @property
    def settings(self) -> dict[str, Any]:
        """Matplotlib's settings."""
        fonts = dict.fromkeys(("axes.titlesize", "legend.fontsize", "xtick.labelsize", "ytick.labelsize"), self.font)
        frame = dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), self.frame)
        sizes = {"font.size": self.labels, "figure.titlesize": self.title, "lines.markersize": self.markers}
        return {**_TABLES["settings"], **fonts, **frame, **sizes, **self.more}

    def width(self, columns: int) -> float:
        """Return the width in inches of a figure with `columns` columns of panels."""
        if columns <= len(self.widths):
            return self.widths[columns - 1]
        return max(self.widths[-1], self.panel_width * columns)

    def letters(self, inches: float, columns: int, shared: bool) -> int:
        """Return the letters in a line of a panel's title, for `columns` panels in `inches`; `shared` is one y axis."""
        axis = _AXIS * self.font / 72
        width = (inches - axis) / columns if shared else inches / columns - axis
        return min(self.wrap, letters_of(width - self.font / 72, self.font))

    def drawn(self, look: Look) -> dict[str, Any]:
        """Return keyword arguments of Matplotlib's `plot` for a look."""
        markersize = (look.markersize or 1) * self.markers
        return look._asdict() | {"linewidth": look.linewidth * self.lines, "markersize": markersize}


def letters_of(inches: float, font: float) -> int:
    """Return the number of letters that fit into a line, at least 12."""
    return max(12, math.floor(inches * 72 / (font * _LETTER)))


STYLES = {name: msgspec.convert({"name": name, **style}, Style) for name, style in _TABLES["styles"].items()}
SCREEN = STYLES["screen"]


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """Return an empty figure of a size in inches, with a layout that avoids overlaps."""
    from matplotlib import figure

    return figure.Figure(figsize=(width, height), **{"layout": "constrained"} | options)


@contextmanager
def style(chosen: Style = SCREEN) -> Iterator[None]:
    """Use the settings of a plot style, not the user's, in a block or, as `@style()`, in a function."""
    matplotlib()
    from matplotlib.style import context

    with context(["default", chosen.settings]):
        yield


def matplotlib() -> ModuleType:
    """Import Matplotlib without a matplotlibrc of the working folder, which may not be the user's."""
    spec = importlib.util.find_spec("matplotlib")
    assert spec
    assert spec.origin
    with outside(Path(spec.origin).parent):
        import matplotlib

    return matplotlib


# Files.  PNGs have a palette, which makes them a third of the size.

_UNFIT = re.compile(r"[/\\\x00]+")  # characters not allowed in file names
_LONGEST_NAME = 200
_COLOURS = 255  # of a palette; one more stays free
_UNQUOTED = " /:;,=.-_()!'*"  # allowed in an address in double quotes


def save(figure: Figure, folder: Path, stem: str, formats: Sequence[str], plot_style: Style = SCREEN) -> list[Path]:
    """Write a figure as STEM.FORMAT in each format, and return the files; the folder is made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    # The name may contain a path, since it has texts of a run file.
    stem = _UNFIT.sub("_", stem)[:_LONGEST_NAME]
    paths = [folder / f"{stem}.{suffix}" for suffix in formats]
    for path in paths:
        with style(plot_style):
            if path.suffix == ".png":
                drawn = png(figure, plot_style.dpi)
            else:
                kind, buffer = path.suffix[1:], io.BytesIO()
                figure.savefig(buffer, format=kind, dpi=plot_style.dpi, metadata=UNDATED.get(kind))
                drawn = buffer.getvalue()
        replace_whole(path, drawn)
    return paths


def page_svg(figure: Figure) -> str:
    """Return a figure as the data URL of an SVG; the same figure gives the same text."""
    drawn = io.StringIO()
    with style():
        figure.savefig(drawn, format="svg", metadata=UNDATED["svg"])
    text = drawn.getvalue()
    # Remove comments, which repeat the letters that are drawn as shapes.
    element = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    return f"data:image/svg+xml,{quote(' '.join(element.split()), safe=_UNQUOTED)}"


def png(figure: Figure, dpi: int) -> bytes:
    """Return the bytes of a PNG with few colours; the same figure gives the same bytes.

    The most frequent colours, those of areas, stay.  The others, which smooth edges, become the nearest of these.
    """
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, format="raw", dpi=dpi)
    width, height = (int(dpi * inches + 1e-8) for inches in figure.get_size_inches())
    whole = Image.frombytes("RGBA", (width, height), drawn.getvalue()).convert("RGB")

    # One number for each colour, so that colours can be counted.
    numbers = np.asarray(whole, np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    found, place_of, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    every = found[:, None] >> np.array([16, 8, 0]) & 255
    palette = every[np.argsort(-counts, kind="stable")[:_COLOURS]]

    # In parts, since the table of distances of all colours to the palette would be large.
    nearest = np.concatenate([((part[:, None] - palette) ** 2).sum(2).argmin(1) for part in np.array_split(every, 32)])
    small = Image.fromarray(nearest.astype(np.uint8)[place_of].reshape(numbers.shape))
    small.putpalette(palette.astype(np.uint8).tobytes())
    written = io.BytesIO()
    small.save(written, "png", optimize=True, dpi=(dpi, dpi))
    return written.getvalue()
