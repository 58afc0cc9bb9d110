"""Figures as pictures that stand in a page."""

import io
from typing import TYPE_CHECKING

from collbench.figures.styles import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI, _COLOURS = 110, 64


def small_png(figure: "Figure") -> bytes:
    """The bytes of a PNG with few colours, so that it is small; the same figure gives the same bytes."""
    from PIL import Image  # Matplotlib brings it along

    whole, small = io.BytesIO(), io.BytesIO()
    with style():
        figure.savefig(whole, format="png", dpi=_DPI)
    whole.seek(0)
    with Image.open(whole) as picture:
        picture.convert("RGB").quantize(_COLOURS).save(small, "png", optimize=True)
    return small.getvalue()
