"""Figures written as files, each whole or not at all; PNGs with a palette, which have a third of the bytes."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.errors import unlinked
from collbench.plots.styles import SCREEN, UNDATED, Style, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNFIT = re.compile(r"[/\\\x00]+")  # in the name of a file
_LONGEST = 200  # characters of one
_COLOURS = 255  # of a palette; one more is kept free


def save(figure: "Figure", folder: Path, stem: str, formats: Sequence[str], of_style: Style = SCREEN) -> list[Path]:
    """Write one figure in each format, and say which files."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = _UNFIT.sub("_", stem)[:_LONGEST]  # it holds words of a run file, which may lead out of the folder
    paths = [folder / f"{stem}.{suffix}" for suffix in formats]
    for path in paths:
        unlinked(path, "--out")
        try:
            with style(of_style):
                if path.suffix == ".png":
                    path.write_bytes(encoded(figure, of_style.dpi))
                else:
                    figure.savefig(path, dpi=of_style.dpi, metadata=UNDATED.get(path.suffix[1:]))
        except BaseException:  # a full disk, Ctrl-C: half a picture is none
            path.unlink(missing_ok=True)
            raise
    return paths


def encoded(figure: "Figure", dpi: int, colours: int = _COLOURS) -> bytes:
    """A PNG of so many dots per inch; the same figure gives the same bytes.

    The commonest colours stay as they are, so what is filled with one keeps it; of the others, which smooth edges,
    each becomes the nearest of those.
    """
    from PIL import Image  # Matplotlib brings it along

    drawn = io.BytesIO()
    figure.savefig(drawn, format="raw", dpi=dpi)
    width, height = (int(dpi * inches + 1e-8) for inches in figure.get_size_inches())
    whole = Image.frombytes("RGBA", (width, height), drawn.getvalue()).convert("RGB")
    every: Any = whole.getcolors(whole.width * whole.height)
    order = np.array([colour for _, colour in sorted(every, key=lambda one: (-one[0], one[1]))], np.int32)
    kept = order[:colours]
    nearest = np.concatenate([((part[:, None] - kept) ** 2).sum(2).argmin(1) for part in np.array_split(order, 32)])
    places = np.zeros(1 << 24, np.uint8)
    places[_packed(order)] = nearest
    small = Image.fromarray(places[_packed(np.asarray(whole, np.int32))])
    small.putpalette(kept.astype(np.uint8).tobytes())
    written = io.BytesIO()
    small.save(written, "png", optimize=True, dpi=(dpi, dpi))
    return written.getvalue()


def _packed(colours: "np.ndarray[Any, np.dtype[np.int32]]") -> "np.ndarray[Any, np.dtype[np.int32]]":
    """A number for each colour."""
    packed: np.ndarray[Any, np.dtype[np.int32]] = (colours * np.array([1 << 16, 1 << 8, 1], np.int32)).sum(-1)
    return packed
