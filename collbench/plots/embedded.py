"""Figures as pictures that stand in a page."""

from typing import TYPE_CHECKING

from collbench.plots.pictures import encoded
from collbench.plots.styles import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI, _COLOURS = 110, 64


def small_png(figure: "Figure") -> bytes:
    """The bytes of a PNG with few colours, so that it is small; the same figure gives the same bytes."""
    with style():
        return encoded(figure, _DPI, _COLOURS)
