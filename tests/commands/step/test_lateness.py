"""Figures of steps: what stands where, also of thousands of steps, and when nothing can be drawn."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from collbench.commands.step.figure import Binned, lateness_figures
from collbench.commands.step.rows import StepTimes
from collbench.commands.step.stragglers import StepArrays
from collbench.commands.step.work import Step
from collbench.plots.kinds import PLAIN, PlotRequest, kinds, lacking
from tests.commands.step.made_up_steps import MADE_UP, quiet, scaled, series
from tests.conftest import case
from tests.plots.made_up_runs import run


def times(ranks: int, steps: int, parts: int = 5, slow: int = 1) -> StepTimes:
    computing = quiet(np.random.default_rng(1), ranks, steps)
    computing[slow] *= 1.5
    made = tuple(series(part) for part in np.array_split(computing, parts, axis=1))
    return StepTimes(case(ranks=ranks, work=Step(10, 64)), "mpi", "cpu", made, clock=2e-6)


def test_a_column_is_the_mean_of_whole_steps_of_one_series() -> None:
    steps = StepArrays.of(times(2, 1003, parts=3).series)
    binned = Binned.of(steps)
    assert binned.size == 3
    assert len(binned.edges) == binned.late.shape[1] + 1
    assert (np.diff(binned.edges) > 0).all()
    assert binned.edges[-1] == pytest.approx(steps.seconds.sum())
    assert set(binned.joints) <= set(binned.edges.tolist())
    single = StepArrays.of(times(3, 20, parts=2).series)
    np.testing.assert_allclose(Binned.of(single).late, single.late)
    many = StepArrays.of(times(2, 1600, parts=2).series)
    np.testing.assert_allclose(Binned.of(many).late[:, 0], many.late[:, :4].mean(axis=1))


def test_who_is_late_is_red_and_has_the_longest_bar() -> None:
    ((stem, figure),) = lateness_figures(run(times(4, 500, slow=2)), PLAIN)
    assert stem == "lateness-allreduce-float-1024B-mpi"
    heat, last = figure.axes[:2]
    colours = heat.collections[0]
    assert np.asarray(colours.get_array()).reshape(4, -1).mean(axis=1).argmax() == 2
    assert colours.norm.vmin == -colours.norm.vmax  # type: ignore[operator]
    assert [bar.get_width() for bar in last.patches] == [0.0, 0.0, 1.0, 0.0]
    assert heat.get_ylabel() == "rank"
    assert heat.get_xlabel().startswith("time; ")
    assert "lateness in 500 steps" in figure.get_suptitle()
    assert "differ by at most 2 us" in figure.get_suptitle()


def test_no_lateness_is_drawn_of_what_was_not_timed_or_held_against_other_steps() -> None:
    alone, two, four = times(1, 20, slow=0), times(2, 20), times(4, 20)
    weak = replace(two, case=replace(two.case, work=Step(10, 64, mode="weak")))
    overlapped = replace(two, case=replace(two.case, work=Step(10, 64, "polled", 256)))
    untimed = StepTimes(case(work=Step(1, 32)), "mpi", "cpu", ())
    for results in ([alone], [two, four], [weak], [two, overlapped], [untimed]):
        assert not list(lateness_figures(run(*results), PLAIN)), results[-1].case.work
    assert list(lateness_figures(run(two, replace(two, implementation="auto")), PLAIN))
    assert not list(lateness_figures(run(two), PlotRequest(implementations=["auto"])))


def drawn(name: str, *implementations: str) -> list[Figure]:
    request = PlotRequest(implementations=implementations)
    return [figure for _, figure in kinds()[name].figures([run(*MADE_UP[name])], request, str)]


def test_what_is_held_against_others_stays_as_it_is_when_one_is_chosen() -> None:
    (both,), (alone,) = (drawn("scaling", *names) for names in ((), ("auto",)))
    curves = [[line.get_ydata() for line in one.axes[0].lines if line.get_label() == "auto"] for one in (both, alone)]
    assert [*map(list, curves[0])] == [*map(list, curves[1])]
    assert "mpi" not in [line.get_label() for line in alone.axes[0].lines]
    (every,), (ring,) = (drawn("losses", *names) for names in ((), ("ring",)))
    targets = [
        [line.get_ydata()[0] for line in one.axes[0].lines if line.get_linestyle() == ":"] for one in (every, ring)
    ]
    assert targets[0] == targets[1] != [], "a target is that of all styles"
    assert [text.get_text() for text in ring.legends[0].get_texts()] == ["ring"]


def test_why_nothing_is_drawn_of_steps_is_one_line() -> None:
    told = lacking([run(*scaled()[:1])])
    assert told.startswith("run.jsonl: scaling is drawn of steps on several numbers of ranks; lateness is drawn of ")
    assert "lateness is drawn of" in told
    assert "curves" not in told
    assert "\n" not in told
