"""Figures of plans: bars as long as their steps."""

from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from collbench.commands.train.communication import PARTS as STEP_PARTS
from collbench.commands.train.rows import PlannedStep
from collbench.plots.kinds import PLAIN, kinds
from collbench.present import figures as palette
from tests.commands.train.made_up_plans import plan, ranked
from tests.plots.made_up_runs import run
from tests.plots.made_up_sweeps import labels as legend


def drawn(name: str, *rows: Any) -> Figure:
    ((_, figure),) = kinds()[name].figures([run(*rows)], PLAIN, str)
    return figure


def bars(figure: Figure) -> Iterator[list[Rectangle]]:
    pieces = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    for row in sorted({round(piece.get_y() + piece.get_height() / 2) for piece in pieces}):
        yield [piece for piece in pieces if round(piece.get_y() + piece.get_height() / 2) == row]


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def plans(rows: Any) -> list[PlannedStep]:
    return [row for row in rows if isinstance(row, PlannedStep)]


def test_a_bar_is_as_long_as_its_step_with_its_band_and_its_time_beside_it() -> None:
    rows = plans(ranked())
    figure = drawn("layouts", *rows)
    for row, pieces in zip(rows, bars(figure), strict=True):
        assert [piece.get_width() for piece in pieces] == pytest.approx([*row.parts.values()])
        ends = [piece.get_x() + piece.get_width() for piece in pieces]
        assert [piece.get_x() for piece in pieces[1:]] == pytest.approx(ends[:-1])
        assert ends[-1] == pytest.approx(row.typical)
    assert [tuple(line.get_xdata()) for line in figure.axes[0].lines] == [row.band for row in rows]
    for row, label in zip(rows, labels(figure), strict=True):
        assert row.implementation in label
        assert f"{row.typical:.3g} s, MFU 40%" in label
    assert len(legend(figure)) == len(STEP_PARTS)
    assert figure.axes[0].get_ylim()[0] > figure.axes[0].get_ylim()[1], "the first of the file is at the top"
    some = drawn("layouts", plan("layout", parts={"computing": 5.0, "loading": 0.0, "some_new_part": 1.0}))
    assert legend(some) == ["computing", "some new part"], "parts of no time are not in the legend"


def test_every_part_of_a_step_has_a_colour() -> None:
    assert set(palette.STEP_PARTS) == set(STEP_PARTS)
