"""Figures written as files, each whole or not at all, and as pictures for a page.

PNGs have a palette, which makes them a third of the size.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collbench.errors import unlinked
from collbench.plots.axes import Figure
from collbench.plots.style import SCREEN, UNDATED, Style, style

_UNFIT = re.compile(r"[/\\\x00]+")  # characters that no file name may have
_LONGEST_NAME = 200
_COLOURS = 255  # of a palette; one more stays free
_PAGE_DPI, _PAGE_COLOURS = 110, 64


def save(figure: Figure, folder: Path, stem: str, formats: Sequence[str], plot_style: Style = SCREEN) -> list[Path]:
    """Write a figure, drawn with that plot style, as STEM.FORMAT in each of the formats, and return the files.

    The folder is made if it does not exist.
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


def save_as(figure: Figure, path: Path, plot_style: Style = SCREEN) -> list[Path]:
    """Write a figure into that file, in the format that its name ends in, and return the file."""
    return save(figure, path.parent, path.stem, [path.suffix[1:]], plot_style)


def page_png(figure: Figure) -> bytes:
    """Return the bytes of a small PNG, with few colours, that stands in a page."""
    with style():
        return png(figure, _PAGE_DPI, _PAGE_COLOURS)


def page_svg(figure: Figure) -> str:
    """Return an SVG that stands in a page: the element alone, as text; the same figure gives the same text."""
    drawn = io.StringIO()
    with style():
        figure.savefig(drawn, format="svg", metadata=UNDATED["svg"])
    text = drawn.getvalue()
    return text[text.index("<svg") :]


def png(figure: Figure, dpi: int, colours: int = _COLOURS) -> bytes:
    """Return the bytes of a PNG with at most so many colours; the same figure gives the same bytes.

    The commonest colours stay as they are, so areas keep theirs; each of the other colours, which smooth edges, becomes
    the nearest of those.
    """
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, format="raw", dpi=dpi)
    width, height = (int(dpi * inches + 1e-8) for inches in figure.get_size_inches())
    whole = Image.frombytes("RGBA", (width, height), drawn.getvalue()).convert("RGB")
    numbers = np.asarray(whole, np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    found, place_of, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    every = found[:, None] >> np.array([16, 8, 0]) & 255
    palette = every[np.argsort(-counts, kind="stable")[:colours]]
    nearest = np.concatenate([((part[:, None] - palette) ** 2).sum(2).argmin(1) for part in np.array_split(every, 32)])
    small = Image.fromarray(nearest.astype(np.uint8)[place_of].reshape(numbers.shape))
    small.putpalette(palette.astype(np.uint8).tobytes())
    written = io.BytesIO()
    small.save(written, "png", optimize=True, dpi=(dpi, dpi))
    return written.getvalue()
