"""Every kind of figure: drawn of its results, of each run by itself, of what was asked for, in one table of colours."""

from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from collbench.plots.kinds import PLAIN, PlotRequest, draw, kinds, lacking
from collbench.present import figures as palette
from collbench.results import PARTS, Failed
from tests.conftest import case
from tests.plots.made_up_runs import MADE_UP, run


@cache
def drawn(name: str, rows: str = "", *implementations: str) -> dict[str, Figure]:
    """The figures of one kind of the rows that are made up for a kind, by default its own."""
    made_up = [run(*MADE_UP[rows or name])]
    return dict(kinds()[name].figures(made_up, PlotRequest(implementations=implementations), str))


def test_every_kind_has_results_to_be_tried_on_and_a_place_among_the_others() -> None:
    assert set(kinds()) == set(MADE_UP)
    orders = [kind.order for kind in kinds().values()]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("name", kinds())
def test_a_run_is_drawn_by_its_kind_within_its_figures_and_by_no_other(name: str) -> None:
    assert drawn(name)
    for other in kinds():
        if other != name:
            assert not drawn(other, name), other
    for stem, figure in drawn(name).items():
        FigureCanvasAgg(figure).draw()
        whole = figure.bbox
        heading = figure._suptitle  # type: ignore[attr-defined]
        assert not heading or heading.get_window_extent().x1 <= whole.x1, heading.get_text()
        for legend in (*figure.legends, *(axes.legend_ for axes in figure.axes if axes.legend_)):
            box = legend.get_window_extent()
            assert whole.x0 <= box.x0 <= box.x1 <= whole.x1, stem
            assert whole.y0 <= box.y0 <= box.y1 <= whole.y1, stem
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            low, high = sorted(axis.get_view_interval())
            shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            labels = [label for label in shown if label.get_text() and label.get_visible()]
            assert not any("$" in label.get_text() for label in labels), "a formula would be seen as it is written"
            boxes = [label.get_window_extent() for label in labels]
            assert not any(one.overlaps(other) for one, other in pairwise(boxes)), [one.get_text() for one in labels]


@pytest.mark.parametrize("name", kinds())
def test_an_implementation_can_be_chosen_and_a_second_run_has_figures_of_its_own(name: str) -> None:
    assert drawn(name, "", MADE_UP[name][-1].implementation)
    assert not drawn(name, "", "nobody")
    if name != "curves":
        twice = [stem for stem, _ in kinds()[name].figures([run(*MADE_UP[name])] * 2, PLAIN, str)]
        assert twice == [*drawn(name), *(f"{stem}-2" for stem in drawn(name))]


def test_every_drawn_kind_is_written(tmp_path: Path) -> None:
    paths = draw([run(*MADE_UP["curves"], *MADE_UP["timeline"])], tmp_path, ("svg",))
    assert [path.stem for path in paths] == [*drawn("curves"), *drawn("timeline")]


def test_why_nothing_is_drawn_is_one_line() -> None:
    assert "its other rows say why" in lacking([run(Failed(case(), "mpi", "cpu", "hung"))])


def test_every_phase_has_a_colour_and_no_two_look_alike() -> None:
    assert set(palette.PHASES) == set(PARTS)
    for one, other in combinations(palette.PHASES.values(), 2):
        assert sum((a - b) ** 2 for a, b in zip(to_rgb(one), to_rgb(other), strict=True)) > 0.02, (one, other)
