"""The registry of figures: every kind is drawn of its results, of each run by itself, and of what was asked for."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from collbench.figures.kinds import PLAIN, Wanted, draw, kinds, lacking
from collbench.measurement import Failed
from tests.conftest import case
from tests.figures.made_up_runs import MADE_UP, run, scaled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

RANKED = ("layouts", "memory", "pipeline")
TOO = {"wires": ("curves",), **dict.fromkeys(RANKED, RANKED)}  # messages of narrow wires have curves
BY_RUN = [name for name in kinds() if name != "curves"]


def stems(name: str, *implementations: str, runs: int = 1) -> list[str]:
    """Names of the figures of one kind."""
    shown = Wanted(implementations=implementations)
    told: list[str] = []
    return [stem for stem, _ in kinds()[name].figures([run(*MADE_UP[name])] * runs, shown, told.append)]


def test_every_kind_has_results_to_be_tried_on() -> None:
    """A new one fails here first."""
    assert set(kinds()) == set(MADE_UP)
    orders = [kind.order for kind in kinds().values()]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("name", kinds())
def test_a_run_is_drawn_by_its_kind(tmp_path: Path, name: str) -> None:
    """And by no other, but for those that are drawn of the same rows."""
    drawn = {path.stem for path in draw([run(*MADE_UP[name])], tmp_path, ("svg",))}
    assert drawn == {*stems(name), *(stem for other in TOO.get(name, ()) for stem in stems(other))}
    assert stems(name)


def laid_out(name: str) -> "Iterator[Figure]":
    """The figures of a kind, with every text where it will be."""
    for _, figure in kinds()[name].figures([run(*MADE_UP[name])], PLAIN, str):
        FigureCanvasAgg(figure).draw()
        yield figure


def ticks(figure: "Figure") -> "Iterator[list[Text]]":
    """The labels that are seen along every axis."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            yield [label for label in shown if label.get_text() and label.get_visible()]


@pytest.mark.parametrize("name", kinds())
def test_labels_of_ticks_are_plain_text_and_leave_each_other_room(name: str) -> None:
    """Names may hold dollar signs, so no text is read as a formula; a formula would be seen as it is written."""
    for figure in laid_out(name):
        for labels in ticks(figure):
            assert not any("$" in label.get_text() for label in labels)
            boxes = [label.get_window_extent() for label in labels]
            assert not any(one.overlaps(other) for one, other in pairwise(boxes)), [one.get_text() for one in labels]


@pytest.mark.parametrize("name", kinds())
def test_legends_lie_within_their_figure(name: str) -> None:
    for figure in laid_out(name):
        whole = figure.bbox
        for legend in (*figure.legends, *(axes.legend_ for axes in figure.axes if axes.legend_)):
            box = legend.get_window_extent()
            assert whole.x0 <= box.x0 <= box.x1 <= whole.x1, [text.get_text() for text in legend.get_texts()]
            assert whole.y0 <= box.y0 <= box.y1 <= whole.y1


@pytest.mark.parametrize("name", kinds())
def test_titles_lie_within_their_figure(name: str) -> None:
    """What stands above all panels, also of a machine with a long name."""
    for _, figure in kinds()[name].figures([run(*MADE_UP[name])], PLAIN, str):
        FigureCanvasAgg(figure).draw()
        title = figure._suptitle  # type: ignore[attr-defined]
        assert not title or title.get_window_extent().x1 <= figure.bbox.x1, title.get_text()


@pytest.mark.parametrize("name", BY_RUN)
def test_the_figures_of_a_second_run_have_names_of_their_own(name: str) -> None:
    """So none is written over another."""
    once = stems(name)
    assert stems(name, runs=2) == once + [f"{stem}-2" for stem in once]


@pytest.mark.parametrize("name", kinds())
def test_an_implementation_can_be_chosen(name: str) -> None:
    """One that is there is drawn, also where what it is held against is of another; one that is not leaves nothing."""
    last = MADE_UP[name][-1].implementation if name != "wires" else "narrow-topk"
    assert stems(name, last)
    assert not stems(name, "nobody")


def test_what_is_held_against_others_stays_as_it_is_when_one_is_chosen() -> None:
    """The curve of a scaling keeps its base, which is of the first implementation."""
    ((_, both),) = kinds()["scaling"].figures([run(*scaled())], PLAIN, str)
    ((_, one),) = kinds()["scaling"].figures([run(*scaled())], Wanted(implementations=["auto"]), str)
    (whole,) = (line for line in both.axes[0].lines if line.get_label() == "auto")
    (alone,) = (line for line in one.axes[0].lines if line.get_label() == "auto")
    assert list(alone.get_ydata()) == list(whole.get_ydata())
    assert "mpi" not in [line.get_label() for line in one.axes[0].lines]


def test_a_target_is_that_of_all_styles_drawn_or_not() -> None:
    """So that pictures of one style and of all can be laid side by side."""
    ((_, all_),) = kinds()["losses"].figures([run(*MADE_UP["losses"])], PLAIN, str)
    ((_, one),) = kinds()["losses"].figures([run(*MADE_UP["losses"])], Wanted(implementations=["ring"]), str)
    labels = [figure.axes[2].get_ylabel() for figure in (all_, one)]
    assert labels[0] == labels[1]
    assert [tick.get_text() for tick in one.axes[2].get_yticklabels()] == ["ring"]


def test_why_nothing_is_drawn_is_one_line() -> None:
    """What the kinds that could be meant want; or that no row is right."""
    told = lacking([run(*scaled()[:1])])
    assert told.startswith("run.jsonl: scaling is drawn of steps on several numbers of ranks; overlap is drawn of ")
    assert "lateness is drawn of" in told
    assert "curves" not in told
    assert "\n" not in told
    assert "its other rows say why" in lacking([run(Failed(case(), "mpi", "cpu", "hung"))])
