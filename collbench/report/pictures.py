"""Figures that stand in the page as pictures: those that `collbench plot` draws of a run, with few colours."""

import base64
from typing import NamedTuple

from collbench.errors import CollbenchError
from collbench.plots.kinds import PLAIN, Named, kinds
from collbench.report.anchors import Anchors
from collbench.runfile.store import Run


class Picture(NamedTuple):
    """A figure as the page holds it: an address that holds all of it, what it shows, and its place."""

    address: str
    words: str
    anchor: str


def pictures(run: Run, rows: tuple[type, ...], room: int, anchors: Anchors) -> tuple[list[Picture], int]:
    """Figures that are drawn of such rows alone: as many as have room, in bytes, and how many are left out."""
    from collbench.plots.embedded import small_png

    drawn: list[Picture] = []
    left_out = 0
    for stem, figure in _figures(run, rows):
        address = f"data:image/png;base64,{base64.b64encode(small_png(figure)).decode()}"
        room -= len(address)
        if room >= 0:
            drawn.append(Picture(address, stem, anchors.new("figure", stem)))
        left_out += room < 0
    return drawn, left_out


def _figures(run: Run, rows: tuple[type, ...]) -> Named:
    """By the names of their files."""
    for kind in kinds().values():
        if set(kind.rows) <= set(rows):
            try:
                yield from kind.figures([run], PLAIN, lambda reason: None)
            except CollbenchError:  # what cannot be drawn has its tables
                continue
