"""Figures written as files, each whole or not at all, and as pictures for a page.

PNGs have a palette, which makes them a third of the size.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collbench.errors import unlinked
from collbench.plots.axes import Figure
from collbench.plots.style import SCREEN, UNDATED, Style, style

_UNFIT = re.compile(r"[/\\\x00]+")  # characters that no file name may have
_LONGEST_NAME = 200
_COLOURS = 255  # of a palette; one more stays free
_PAGE_DPI, _PAGE_COLOURS = 110, 64


def save(figure: Figure, folder: Path, stem: str, formats: Sequence[str], plot_style: Style = SCREEN) -> list[Path]:
    """Write a figure in each of the formats and return the files.

    Args:
        figure: The figure.
        folder: Where to; it is made if it does not exist.
        stem: Name of the files without their suffix, which is the format.
        formats: Names of FORMATS.
        plot_style: The plot style that the figure was drawn with.

    """
    folder.mkdir(parents=True, exist_ok=True)
    # The name holds words of a run file, which may lead out of the folder.
    stem = _UNFIT.sub("_", stem)[:_LONGEST_NAME]
    paths = [folder / f"{stem}.{suffix}" for suffix in formats]
    for path in paths:
        unlinked(path, "--out")
        try:
            with style(plot_style):
                if path.suffix == ".png":
                    path.write_bytes(png(figure, plot_style.dpi))
                else:
                    figure.savefig(path, dpi=plot_style.dpi, metadata=UNDATED.get(path.suffix[1:]))
        except BaseException:  # a full disk, Ctrl-C: half a picture is none
            path.unlink(missing_ok=True)
            raise
    return paths


def page_png(figure: Figure) -> bytes:
    """Return the bytes of a small PNG, with few colours, that stands in a page."""
    with style():
        return png(figure, _PAGE_DPI, _PAGE_COLOURS)


def png(figure: Figure, dpi: int, colours: int = _COLOURS) -> bytes:
    """Return the bytes of a PNG with at most so many colours; the same figure gives the same bytes.

    The commonest colours stay as they are, so areas keep theirs; each of the other colours, which smooth edges, becomes
    the nearest of those.
    """
    from PIL import Image  # Matplotlib brings it along

    drawn = io.BytesIO()
    figure.savefig(drawn, format="raw", dpi=dpi)
    width, height = (int(dpi * inches + 1e-8) for inches in figure.get_size_inches())
    whole = Image.frombytes("RGBA", (width, height), drawn.getvalue()).convert("RGB")
    counted: Any = whole.getcolors(whole.width * whole.height)
    counted.sort(key=lambda pair: (-pair[0], pair[1]))
    order = np.array([colour for _, colour in counted], np.int32)
    palette = order[:colours]
    nearest = np.concatenate([((part[:, None] - palette) ** 2).sum(2).argmin(1) for part in np.array_split(order, 32)])
    place_of = np.zeros(1 << 24, np.uint8)
    place_of[_number_of(order)] = nearest
    small = Image.fromarray(place_of[_number_of(np.asarray(whole, np.int32))])
    small.putpalette(palette.astype(np.uint8).tobytes())
    written = io.BytesIO()
    small.save(written, "png", optimize=True, dpi=(dpi, dpi))
    return written.getvalue()


def _number_of(colours: "np.ndarray[Any, np.dtype[np.int32]]") -> "np.ndarray[Any, np.dtype[np.int32]]":
    """Return a number from 0 to 2**24 for each colour."""
    numbers: np.ndarray[Any, np.dtype[np.int32]] = (colours * np.array([1 << 16, 1 << 8, 1], np.int32)).sum(-1)
    return numbers
