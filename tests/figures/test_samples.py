"""`--view samples`: every sample of every row, with median and interval; and what has none says so in one line."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from collbench.figures import curves
from collbench.figures.kinds import Wanted
from collbench.figures.samples import spaced
from collbench.measurement import Measurement, Reported
from collbench.runs.file import Run, read
from tests.figures.test_curves import SIZES, case, predicted, run, sweep
from tests.figures.test_focus import COMMITTED


def drawn(*runs: Run, said: list[str] | None = None, **wanted: Any) -> dict[str, Figure]:
    say = [].append if said is None else said.append
    return dict(curves.figures(runs, Wanted(views=["samples"], **wanted), say))


def marked(axes: Axes, name: str) -> list[Any]:
    return [shape for shape in (*axes.lines, *axes.patches) if shape.get_label() == f"_{name}"]


def test_every_sample_is_a_point_over_the_median_of_its_row() -> None:
    """With the median and its 95 % interval across them, a row for each implementation, a panel for each size."""
    rows = sweep("nccl", "ring-ll", sizes=(64, 4096), samples=40)
    (figure,) = drawn(run(*rows)).values()
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["64 B, 40 samples a row", "4 KiB, 40 samples a row"]
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


def test_samples_far_outside_are_counted() -> None:
    """One of them does not make the others a line."""
    rows = sweep("nccl", sizes=(64,), samples=300)
    late = [replace(row, seconds=(*row.seconds, 50 * row.typical)) for row in rows]
    (figure,) = drawn(run(*late)).values()
    (axes,) = figure.axes
    assert axes.get_xlim()[1] < 2.1
    assert [text.get_text().partition(", ")[2] for text in axes.texts] == ["1 outside"]


def reported(seconds: float, samples: tuple[float, ...] = ()) -> Reported:
    return Reported(case(64), "nccl", "gpu", seconds, "mean of 20 operations", samples=samples)


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (run(reported(1e-6)), "the other tool printed no samples but mean of 20 operations"),
        (predicted("nccl"), "what is predicted has no samples"),
        (run(*sweep("nccl", samples=1)), "no row has two samples"),
    ],
    ids=["reported", "predicted", "one sample"],
)
def test_what_has_only_statistics_says_so_in_one_line(results: Run, why: str) -> None:
    """And gives no picture."""
    said: list[str] = []
    assert not drawn(results, said=said)
    (line,) = said
    assert line.startswith("samples not drawn for ")
    assert line.endswith(why)


def test_what_another_tool_printed_of_single_operations_is_drawn() -> None:
    """Its samples are as good as ours."""
    (figure,) = drawn(run(reported(1e-6, tuple(1e-6 + number * 1e-8 for number in range(9))))).values()
    (points,) = marked(figure.axes[0], "samples")
    assert len(points.get_xdata()) == 9


def test_of_many_sizes_some_are_drawn_and_the_others_counted() -> None:
    """From the first to the last."""
    said: list[str] = []
    sizes = tuple(2**exponent for exponent in range(3, 28))
    (figure,) = drawn(run(*sweep("nccl", sizes=sizes)), said=said).values()
    assert len(figure.axes) == 9
    titles = [axes.get_title(loc="left").partition(",")[0] for axes in figure.axes]
    assert (titles[0], titles[-1]) == ("8 B", "128 MiB")
    assert said == ["samples of 16 of 25 sizes not drawn for 2 sockets, 4 ranks"]
    assert spaced(SIZES, 99) == list(SIZES)


def test_every_topology_has_a_figure_of_its_own() -> None:
    """And every combination, by the names that tell the other views apart."""
    one, other = run(*sweep("nccl", sizes=(64,))), run(*sweep("nccl", sizes=(64,)), topology="PCIe")
    assert list(drawn(one, other)) == ["samples", "samples-2"]
    half = run(*(replace(row, case=case(64, dtype="half")) for row in sweep("nccl", sizes=(64,))))
    assert set(drawn(one, half)) == {"float-samples", "half-samples"}
    assert list(drawn(run(*sweep("nccl", "ring-ll")), implementations=["ring-ll"])) == ["samples"]


def test_nothing_lies_over_another_in_a_real_run() -> None:
    """Texts behind strips end before the next panel begins, and ticks have room."""
    (figure,) = drawn(read(COMMITTED)).values()
    figure.draw_without_rendering()
    count = {row.implementation for row in read(COMMITTED).results if isinstance(row, Measurement)}
    assert len(figure.axes[0].get_yticks()) == len(count)
    for axes in figure.axes:
        room = min(
            (other.get_window_extent().x0 for other in figure.axes if other.get_window_extent().x0 > axes.bbox.x1),
            default=figure.bbox.x1 + 1,
        )
        assert all(text.get_window_extent().x1 < room for text in axes.texts)
        low, high = axes.get_xlim()
        ticks = [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [label.get_window_extent() for label in ticks if label.get_text() and label.get_visible()]
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
