"""Figures of plans: bars as long as their steps, the line that no memory may pass, efficiency, cost, and pipelines."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from matplotlib.patches import Rectangle

from collbench.figures import palette
from collbench.figures.bars import MOST_BARS
from collbench.figures.kinds import PLAIN, kinds, lacking
from collbench.planned import Pipeline, PlannedStep
from collbench.training.footprint import PARTS as MEMORY_PARTS
from collbench.training.stepping import PARTS as STEP_PARTS
from collbench.training.timeline import makespan, schedule
from tests.figures.made_up_plans import GIB, PIPELINES, compared, grown, paid, plan, ranked
from tests.figures.made_up_runs import run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def drawn(name: str, *rows: Any) -> "Figure":
    """The one figure of a kind."""
    ((_, figure),) = kinds()[name].figures([run(*rows)], PLAIN, str)
    return figure


def bars(figure: "Figure") -> Iterator[list[Rectangle]]:
    """The pieces of every bar, from the top."""
    pieces = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    for row in sorted({round(piece.get_y() + piece.get_height() / 2) for piece in pieces}):
        yield [piece for piece in pieces if round(piece.get_y() + piece.get_height() / 2) == row]


def texts(figure: "Figure") -> list[str]:
    """In its panel."""
    return [text.get_text() for text in figure.axes[0].texts]


def legend(figure: "Figure") -> list[str]:
    """What it tells apart."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def labels(figure: "Figure") -> list[str]:
    """Along y."""
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def test_every_part_has_a_colour_of_its_own() -> None:
    """Within a step, and within a memory."""
    for parts, colours in ((STEP_PARTS, palette.STEP_PARTS), (MEMORY_PARTS, palette.MEMORY_PARTS)):
        assert set(parts) == set(colours)
        assert len({colours[part] for part in parts}) == len(parts)


@pytest.mark.parametrize(("name", "rows"), [("layouts", ranked()), ("interconnects", compared())])
def test_a_bar_is_as_long_as_its_step(name: str, rows: list[PlannedStep]) -> None:
    """In the order of the file, its pieces end to end, with its band and its time behind it."""
    figure = drawn(name, *rows)
    for row, pieces in zip(rows, bars(figure), strict=True):
        assert [piece.get_width() for piece in pieces] == pytest.approx([*row.parts.values()])
        ends = [piece.get_x() + piece.get_width() for piece in pieces]
        assert [piece.get_x() for piece in pieces[1:]] == pytest.approx(ends[:-1])
        assert ends[-1] == pytest.approx(row.typical)
    bands = [tuple(line.get_xdata()) for line in figure.axes[0].lines]
    assert bands == [row.band for row in rows]
    assert [words.split(",")[0] for words in texts(figure)] == [f"{row.typical:.3g} s" for row in rows]
    assert len(legend(figure)) == len(STEP_PARTS)
    assert figure.axes[0].get_ylim()[0] > figure.axes[0].get_ylim()[1]


def test_parts_of_no_time_are_not_in_the_legend() -> None:
    """A part that a newer version named is."""
    figure = drawn("layouts", plan("layout", parts={"computing": 5.0, "loading": 0.0, "some_new_part": 1.0}))
    assert legend(figure) == ["computing", "some new part"]


def test_a_system_is_held_against_the_fastest() -> None:
    """By the time of a token, since steps may differ in their tokens."""
    rows = [
        plan("interconnect", system="a", seconds=4.0),
        plan("interconnect", system="b", seconds=10.0, tokens=2.0**21),
    ]
    assert labels(drawn("interconnects", *rows)) == ["a", "b"]
    assert [words.rpartition(", ")[2] for words in texts(drawn("interconnects", *rows))] == ["MFU 40%", "1.25x"]
    twice = drawn("interconnects", *rows, plan("interconnect", "dp64", system="b", gpus=128))
    assert labels(twice)[0] == "a, 64 GPUs"
    assert labels(twice)[2] == "b, dp64, 128 GPUs"


def test_more_layouts_than_can_be_read_are_not_drawn() -> None:
    """And the title says so."""
    figure = drawn("layouts", *(plan("layout", f"dp{place}") for place in range(40)))
    assert len(labels(figure)) == MOST_BARS
    assert f"the first {MOST_BARS} of 40" in title(figure)


def title(figure: "Figure") -> str:
    """Above all panels."""
    return str(figure._suptitle.get_text())  # type: ignore[attr-defined]


def test_what_tells_layouts_apart_is_said() -> None:
    """Systems and GPUs where they differ; else they stand in the title."""
    rows = [plan("layout"), plan("layout", gpus=128), plan("layout", system="dgx-a100")]
    assert labels(drawn("layouts", *rows))[2].endswith("full, dgx-a100, 64 GPUs")
    assert "64 GPUs, predicted" in title(drawn("layouts", rows[0]))
    assert "64 GPUs" not in title(drawn("layouts", *rows[:2]))


def test_memory_stands_against_what_a_gpu_has() -> None:
    """In GiB, with its share; without any known memory nothing is drawn."""
    figure = drawn("memory", *ranked())
    rows = [row for row in ranked() if isinstance(row, PlannedStep)]
    for row, pieces in zip(rows, bars(figure), strict=True):
        assert sum(piece.get_width() for piece in pieces) == pytest.approx(row.needed / GIB)
    assert [line.get_xdata()[0] for line in figure.axes[0].lines] == [80.0]  # type: ignore[index]
    assert "it has 80 GiB" in texts(figure)
    assert "55%" in texts(figure)
    assert not [*kinds()["memory"].figures([run(plan("layout", memory={}))], PLAIN, str)]


def test_efficiency_is_drawn_with_its_band_and_levels() -> None:
    """Against the fewest GPUs, on an axis of doublings."""
    axes = drawn("efficiency", *grown()).axes[0]
    curves = [line for line in axes.lines if len(line.get_xdata()) == 11]  # type: ignore[arg-type]
    assert [line.get_label() for line in curves] == ["dgx-h100", "dgx-a100"]
    assert list(curves[0].get_xdata()) == [8 * 2**power for power in range(1, 12)]
    assert list(curves[0].get_ydata()) == pytest.approx([0.96**power for power in range(11)])
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(1 / 0.9)
    assert band[:, 1].min() == pytest.approx(0.96**10 / 1.2)
    level = {round(float(line.get_ydata()[0]), 2) for line in axes.lines if len(line.get_xdata()) == 2}  # type: ignore[index, arg-type]
    assert level == {1.0, 0.9, 0.8, 0.7}
    assert axes.get_xscale() == "log"
    assert not [*kinds()["efficiency"].figures([run(grown()[0])], PLAIN, str)]


def test_costs_lie_where_they_are_with_the_front_as_a_line() -> None:
    """Days along x, money along y, and how many GPUs; without prices nothing is drawn."""
    figure = drawn("pareto", *paid())
    rows = [row for row in paid() if isinstance(row, PlannedStep)]
    line, first, second = figure.axes[0].lines
    assert list(line.get_xdata()) == sorted(row.seconds / 86400 for row in rows[:4])
    assert list(first.get_ydata()) == [row.cost for row in rows[:4]]
    assert list(second.get_xdata()) == [row.seconds / 86400 for row in rows[4:]]
    assert second.get_linestyle() == "None"
    assert sorted(texts(figure)) == sorted(["64", "128", "256", "512"] * 2)
    assert "time of the run, days" in figure.axes[0].get_xlabel()
    unknown = drawn("pareto", *(replace(row, total=0.0) for row in rows))
    assert "time of the step, s" in unknown.axes[0].get_xlabel()
    assert not [*kinds()["pareto"].figures([run(plan("cost"))], PLAIN, str)]


@pytest.mark.parametrize("share", [1.0, 1.0001, 3.0, 1e9])
def test_time_has_ticks_however_far_costs_lie_apart(share: float) -> None:
    """One at least, eight at most."""
    rows = [plan("cost", price=1.0, seconds=seconds, low=0.0) for seconds in (0.37, 0.37 * share)]
    axes = drawn("pareto", *rows).axes[0]
    low, high = axes.get_xlim()
    assert 1 <= len([tick for tick in axes.get_xticks() if low <= tick <= high]) <= 8


def pieces(axes: "Axes") -> int:
    """Of all stages."""
    return sum(len(spans.get_paths()) for spans in axes.collections)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_drawn_as_it_is_scheduled(name: str) -> None:
    """All of its pieces, or those of fewer micro-batches and stages, as it says."""
    pipeline = PIPELINES[name]
    figure = drawn("pipeline", plan("layout", name, pipeline=pipeline))
    axes = figure.axes[0]
    assert name in title(figure)
    length = makespan(schedule(pipeline))
    work = pipeline.micro_batches * (pipeline.forward + pipeline.backward)
    assert f"of which a stage idles {1 - work / length:.1%}" in axes.get_title(loc="left")
    if pipeline.stages > 16:
        assert len(labels(figure)) == 17
        assert labels(figure)[8] == "..."
        assert labels(figure)[-1] == "stage 64"
        assert pieces(axes) == 16 * 2 * 128
        assert "as if there were 128 micro-batches" in axes.get_xlabel()
    else:
        assert pieces(axes) == len(schedule(pipeline))
        assert axes.get_xlim()[1] == pytest.approx(length)
        assert axes.get_xlabel() == "time"


def test_the_first_layout_with_stages_is_the_one_drawn() -> None:
    """Of those that can be run and seen."""
    figure = drawn("pipeline", *ranked())
    assert "tp8 pp4 v2 dp2 mb1 zero1" in title(figure)
    impossible = [
        Pipeline(1, 1, 8, 0.02, 0.04, 0.0),
        Pipeline(2**20, 1, 8, 0.02, 0.04, 0.0),
        Pipeline(4, 2, 6, 0.02, 0.04, 0.0),
        Pipeline(4, 1, 6, 0.0, 0.0, 0.0),
    ]
    rows = [plan("layout", pipeline=pipeline) for pipeline in impossible]
    assert not [*kinds()["pipeline"].figures([run(*rows)], PLAIN, str)]


def test_micro_batches_behind_the_middle_keep_their_numbers() -> None:
    """Where some are left out the last is still the last."""
    short = drawn("pipeline", plan("layout", pipeline=Pipeline(4, 1, 40, 0.02, 0.04, 0.0)))
    numbers = {int(number) for number in texts(short)}
    assert numbers == {*range(1, 9), *range(33, 41)}


def test_a_run_of_plans_that_no_figure_suits_is_told_what_figures_need() -> None:
    """In one line."""
    told = lacking([run(plan("scale"))])
    assert "efficiency is drawn of plans on several numbers of GPUs" in told
    assert "\n" not in told
