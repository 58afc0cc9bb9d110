"""Speed-ups and efficiencies from rows of steps, with intervals from the rounds that took turns."""

from dataclasses import replace

import pytest

from collbench.analysis.scaling.points import curves
from collbench.measurement import Failed, Result
from collbench.step_times import Series, StepPrediction, StepTimes
from collbench.steps import STRONG, WEAK, Step
from tests.conftest import case


def row(ranks: int, *seconds: float, products: int = 12, name: str = "mpi") -> StepTimes:
    """A row whose rounds of one series took so long a step; half of it computing."""
    series = tuple(Series((0.0,) * ranks, ((each / 2,),) * ranks, ((each,),) * ranks) for each in seconds)
    whole = case(ranks=ranks, step=Step(products, 64, "compute" if ranks == 1 else "sequential"))
    return StepTimes(whole, name, "cpu", series=series, rounds=(1,) * len(seconds))


def test_weak_efficiency_is_the_time_of_one_rank_over_that_of_all() -> None:
    """Round by round, so that a machine that gets slower changes nothing."""
    drift = [1.0 + 0.1 * number for number in range(8)]
    one, four = row(1, *drift), row(4, *(1.25 * each for each in drift))
    (curve,) = curves([one, four])
    assert curve.mode == WEAK
    assert curve.last.efficiency.value == pytest.approx(0.8)
    assert curve.last.efficiency.low == pytest.approx(0.8)
    assert curve.last.efficiency.high == pytest.approx(0.8)
    assert curve.speedup(curve.last).value == pytest.approx(3.2)


def test_strong_efficiency_counts_what_ranks_share() -> None:
    """Four ranks that take a third of the time are three times as fast."""
    (curve,) = curves([row(1, *[3.0] * 8), row(4, *[1.0] * 8, products=3)])
    assert curve.mode == STRONG
    assert curve.speedup(curve.last).value == pytest.approx(3)
    assert curve.last.efficiency.value == pytest.approx(0.75)


def test_the_mode_is_that_of_the_run_file_and_follows_from_the_work_where_an_old_one_does_not_say() -> None:
    """One product cannot be shared, so its strong scaling looks like a weak one."""
    one, two = row(1, *[1.0] * 8, products=1), row(2, *[1.0] * 8, products=1)
    assert [curve.mode for curve in curves([one, two])] == [WEAK]
    for mode in (WEAK, STRONG):
        (curve,) = curves([in_mode(one, mode), in_mode(two, mode)])
        assert curve.mode == mode
        assert in_mode(two, mode).case == two.case


def in_mode(result: StepTimes, mode: str) -> StepTimes:
    """The same, of a run file that says it."""
    assert result.case.step
    return replace(result, case=replace(result.case, step=replace(result.case.step, mode=mode)))


def test_products_that_ranks_cannot_share_evenly_are_counted_as_they_are() -> None:
    """Of 25 products two ranks make 12 each: half the time would be 96 % of the work."""
    (curve,) = curves([row(1, *[2.0] * 8, products=25), row(2, *[1.0] * 8, products=12)])
    assert curve.last.efficiency.value == pytest.approx(24 / 25)


def test_every_implementation_and_mode_has_a_curve() -> None:
    """All over the one rank alone of its own mode, which communicates by nobody's way."""
    weak = [row(1, *[1.0] * 8), row(2, *[2.0] * 8), row(2, *[1.5] * 8, name="auto")]
    strong = [row(1, *[1.1] * 8), row(2, *[1.0] * 8, products=6)]
    found = curves([*weak, *strong])
    assert [(curve.name, curve.mode) for curve in found] == [("mpi", WEAK), ("auto", WEAK), ("mpi", STRONG)]
    assert found[2].base.row is strong[0]


def test_a_row_without_a_time_is_no_point() -> None:
    """The others stay."""
    lost: Result = Failed(case(ranks=2, step=Step(12, 64)), "mpi", "cpu", "killed")
    (curve,) = curves([row(1, *[1.0] * 8), lost, row(4, *[2.0] * 8)])
    assert [point.ranks for point in curve.points] == [1, 4]
    assert curves([lost, row(4, *[2.0] * 8)]) == []


def test_few_rounds_have_no_interval() -> None:
    """Five can't tell with 95 % confidence."""
    (curve,) = curves([row(1, *[1.0] * 5), row(2, *[1.0] * 5)])
    assert not curve.last.efficiency.known


def test_a_prediction_has_its_band() -> None:
    """The slow end of a time is the low end of the efficiency."""
    one = StepPrediction(case(ranks=1, step=Step(0, 0, seconds=1.0)), "nccl", (1.0, 0, 0), 1.0, 1.0)
    many = StepPrediction(case(ranks=8, step=Step(0, 0, seconds=1.0)), "nccl", (1.0, 0.1, 0.15), 1.2, 2.0)
    (curve,) = curves([one, many])
    assert curve.mode == WEAK
    assert curve.last.efficiency.value == pytest.approx(0.8)
    assert curve.last.efficiency.low == pytest.approx(0.5)
    assert curve.last.efficiency.high == pytest.approx(1 / 1.2)
