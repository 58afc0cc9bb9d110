"""Which lines of a figure have a colour: the few that a reader looks for first; the rest stay in grey behind them.

The rule: the libraries that others are compared with, then whoever is fastest at some size, those at most sizes first,
then those that are nearest to the fastest over all sizes.  What a library reports of itself and what is predicted
counts with the line that was measured, since both share one colour.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from collbench.algorithms import is_library
from collbench.plots.panels import Drawn, Line, Panel, line_of
from collbench.plots.styles import COLOURED


def coloured(panels: Sequence[Panel], most: int = COLOURED) -> set[Line]:
    """The lines with a colour: at most `most` of what was measured, each with what is predicted of it."""
    lines = {line for panel in panels for line, _ in panel.points}
    behind = {one: _behind(one, panels) for one in {_own(line) for line in lines}}
    wins = {one: sum(1 for ratio in ratios if ratio == 1.0) for one, ratios in behind.items()}

    def place(one: Line) -> tuple[bool, int, float, Line]:
        far = fmean(map(math.log, behind[one])) if behind[one] else math.inf
        return not is_library(one.implementation), -wins[one], far, one

    chosen = set(sorted((one for one in behind if not markers(panels, one)), key=place)[:most])
    return {line for line in lines if _own(line) in chosen or markers(panels, _own(line))}


def markers(panels: Iterable[Panel], line: Line) -> bool:
    """Whether all of it lies on other lines: each of its results is by another implementation, drawn beside it.

    So it is with `auto`, whose rows say which rung it picked.  It needs no line of its own, only marks on those.
    """
    own = [(panel, row) for panel in panels for row in panel.results if _own(line_of(row)) == _own(line)]
    return bool(own) and all(_beside(panel, row) for panel, row in own)


def _beside(panel: Panel, row: Drawn) -> bool:
    """Whether what this row picked has a point of that size in the panel, as far measured or predicted as the row."""
    other = Line(row.note.picked, line_of(row).predicted)
    return any(line._replace(library="") == other and size == row.case.nbytes for line, size in panel.points)


def _own(line: Line) -> Line:
    return line._replace(predicted=False)


def _behind(one: Line, panels: Sequence[Panel]) -> list[float]:
    """Its time over the least of all that were measured, or else predicted, for the same case: 1 where it wins."""
    return [ratio for panel in panels for ratio in _ratios(one, panel)]


def _ratios(one: Line, panel: Panel) -> Iterator[float]:
    points = panel.points
    fastest: dict[tuple[bool, int], float] = {}
    for (line, size), row in points.items():
        if not row.note.picked:
            fastest[line.predicted, size] = min(row.typical, fastest.get((line.predicted, size), math.inf))
    for (line, size), row in points.items():
        if _own(line) == one and (line.predicted, size) in fastest and row.typical > 0:
            yield max(1.0, row.typical / fastest[line.predicted, size])
