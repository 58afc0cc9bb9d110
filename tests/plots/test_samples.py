"""`--view samples`: every sample of every row, with median and interval; and what has none says so in one line."""

from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from collbench.plots import curves
from collbench.plots.kinds import PlotRequest
from collbench.results import Reported
from collbench.runfile.store import Run
from tests.plots.made_up_sweeps import case, predicted, run, sweep, title


def drawn(*runs: Run, said: list[str] | None = None, **request: Any) -> dict[str, Figure]:
    say = [].append if said is None else said.append
    return dict(curves.figures(runs, PlotRequest(views=["samples"], **request), say))


def marked(axes: Axes, name: str) -> list[Any]:
    return [shape for shape in (*axes.lines, *axes.patches) if shape.get_label() == f"_{name}"]


def reported(seconds: float, samples: tuple[float, ...] = ()) -> Reported:
    return Reported(case(64), "nccl", "gpu", seconds, "mean of 20 operations", samples=samples)


def test_every_sample_is_a_point_over_the_median_of_its_row() -> None:
    rows = sweep("nccl", "ring-ll", sizes=(64, 4096), samples=40)
    (figure,) = drawn(run(*rows)).values()
    assert [*map(title, figure.axes)] == ["64 B, 40 samples a row", "4 KiB, 40 samples a row"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    for axes, size in zip(figure.axes, (64, 4096), strict=True):
        for number, name in enumerate(names):
            (row,) = (row for row in rows if row.implementation == name and row.case.nbytes == size)
            (points,) = (line for line in marked(axes, "samples") if abs(line.get_ydata().mean() - number) < 0.1)
            assert list(points.get_xdata()) == pytest.approx([second / row.typical for second in row.seconds])
            interval = marked(axes, "interval")[number]
            ends = (interval.get_x(), interval.get_x() + interval.get_width())
            assert ends == pytest.approx(tuple(end / row.typical for end in row.interval))
            assert list(marked(axes, "median")[number].get_xdata()) == [1, 1]


def test_what_has_only_statistics_says_so_in_one_line() -> None:
    for results, why in (
        (run(reported(1e-6)), "the other tool printed no samples but mean of 20 operations"),
        (predicted("nccl"), "what is predicted has no samples"),
        (run(*sweep("nccl", samples=1)), "no row has two samples"),
    ):
        said: list[str] = []
        assert not drawn(results, said=said)
        (line,) = said
        assert line.startswith("samples not drawn for ")
        assert line.endswith(why)
    (figure,) = drawn(run(reported(1e-6, tuple(1e-6 + number * 1e-8 for number in range(9))))).values()
    (points,) = marked(figure.axes[0], "samples")
    assert len(points.get_xdata()) == 9
