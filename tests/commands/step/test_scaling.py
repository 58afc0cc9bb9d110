"""Scaling from rows of steps: speed-ups and efficiencies, the verdict, and remedies."""

from dataclasses import replace

import pytest

from collbench.commands.step import scaling
from collbench.commands.step.rows import Series, StepParts, StepPrediction, StepTimes
from collbench.commands.step.work import STRONG, WEAK, Step, step_of
from collbench.results import Failed, Result
from tests.conftest import case


def row(ranks: int, *seconds: float, products: int = 12, name: str = "mpi") -> StepTimes:
    """A row whose rounds of one series took so long a step; half of it computing."""
    series = tuple(Series((0.0,) * ranks, ((each / 2,),) * ranks, ((each,),) * ranks) for each in seconds)
    whole = case(ranks=ranks, work=Step(products, 64, "compute" if ranks == 1 else "sequential"))
    return StepTimes(whole, name, "cpu", series=series, rounds=(1,) * len(seconds))


def test_efficiency_is_the_time_of_one_rank_over_that_of_all_and_counts_what_they_share() -> None:
    drift = [1.0 + 0.1 * number for number in range(8)]
    one, four = row(1, *drift), row(4, *(1.25 * each for each in drift))
    (curve,) = scaling.curves([one, four])
    assert curve.mode == WEAK
    assert curve.last.efficiency.value == pytest.approx(0.8)
    assert curve.last.efficiency.low == pytest.approx(0.8)
    assert curve.last.efficiency.high == pytest.approx(0.8)
    assert curve.speedup(curve.last).value == pytest.approx(3.2)
    (curve,) = scaling.curves([row(1, *[3.0] * 8), row(4, *[1.0] * 8, products=3)])
    assert curve.mode == STRONG
    assert curve.speedup(curve.last).value == pytest.approx(3)
    assert curve.last.efficiency.value == pytest.approx(0.75)
    (curve,) = scaling.curves([row(1, *[2.0] * 8, products=25), row(2, *[1.0] * 8, products=12)])
    assert curve.last.efficiency.value == pytest.approx(24 / 25)


def test_where_no_row_can_be_compared_there_is_no_answer() -> None:
    rows = [row(1, *[1.0] * 8), row(2, *[1.0] * 8)]
    assert scaling.answer(rows)[0].startswith("without overlap, mpi, weak: 2 ranks give ")
    assert scaling.answer(rows[:1]) == []


def test_the_mode_is_that_of_the_run_file_and_follows_from_the_work_where_an_old_one_does_not_say() -> None:
    one, two = row(1, *[1.0] * 8, products=1), row(2, *[1.0] * 8, products=1)
    assert [curve.mode for curve in scaling.curves([one, two])] == [WEAK]
    for mode in (WEAK, STRONG):
        (curve,) = scaling.curves([in_mode(one, mode), in_mode(two, mode)])
        assert curve.mode == mode
        assert in_mode(two, mode).case == two.case


def in_mode(result: StepTimes, mode: str) -> StepTimes:
    return replace(result, case=replace(result.case, work=replace(step_of(result.case), mode=mode)))


def test_every_implementation_and_mode_has_a_curve_of_what_has_times() -> None:
    weak = [row(1, *[1.0] * 8), row(2, *[2.0] * 8), row(2, *[1.5] * 8, name="auto")]
    strong = [row(1, *[1.1] * 8), row(2, *[1.0] * 8, products=6)]
    found = scaling.curves([*weak, *strong])
    assert [(curve.name, curve.mode) for curve in found] == [("mpi", WEAK), ("auto", WEAK), ("mpi", STRONG)]
    assert found[2].base.row is strong[0]
    lost: Result = Failed(case(ranks=2, work=Step(12, 64)), "mpi", "cpu", "killed")
    (curve,) = scaling.curves([row(1, *[1.0] * 8), lost, row(4, *[2.0] * 8)])
    assert [point.ranks for point in curve.points] == [1, 4]
    assert scaling.curves([lost, row(4, *[2.0] * 8)]) == []
    (curve,) = scaling.curves([row(1, *[1.0] * 5), row(2, *[1.0] * 5)])
    assert not curve.last.efficiency.known


def test_a_prediction_has_its_band() -> None:
    one = StepPrediction(case(ranks=1, work=Step(0, 0, seconds=1.0)), "nccl", StepParts(1.0, 0, 0), 1.0, 1.0)
    many = StepPrediction(case(ranks=8, work=Step(0, 0, seconds=1.0)), "nccl", StepParts(1.0, 0.1, 0.15), 1.2, 2.0)
    (curve,) = scaling.curves([one, many])
    assert curve.mode == WEAK
    assert curve.last.efficiency.value == pytest.approx(0.8)
    assert curve.last.efficiency.low == pytest.approx(0.5)
    assert curve.last.efficiency.high == pytest.approx(1 / 1.2)


def test_remedies_take_away_what_they_are_for() -> None:
    found = {remedy.words: remedy.efficiency for remedy in scaling.remedies(1.0, (1.3, 0.4, 0.9), "cpu")}
    for words, seconds in (
        ("a batch 4 times", (4 * 1.3 + 4 * 0.4 + 0.9) / 4),
        ("accumulation of 4", (4 * 1.3 + 2 * 0.4 + 0.9) / 4),
        ("a wire datatype half as wide", 2.15),
        ("an interconnect twice as fast", 2.15),
        ("no late rank", 2.2),
    ):
        assert [found[name] for name in found if name.startswith(words)] == [pytest.approx(1 / seconds)], words


def test_the_whole_interval_decides() -> None:
    for estimate, word in (
        (scaling.Estimate(0.8, 0.76, 0.84), scaling.HEALTHY),
        (scaling.Estimate(0.6, 0.5, 0.7), scaling.POOR),
        (scaling.Estimate(0.8, 0.7, 0.9), scaling.INCONCLUSIVE),
        (scaling.Estimate(0.9, float("-inf"), float("inf")), scaling.INCONCLUSIVE),
    ):
        assert scaling.judged(estimate) == word, estimate


def predicted(computing: float, waiting: float, exposed: float) -> list[StepPrediction]:
    alone = StepPrediction(case(ranks=1, work=Step(0, 0, seconds=1.0)), "nccl", StepParts(1.0, 0, 0), 1.0, 1.0)
    total = computing + waiting + exposed
    step = Step(0, 0, seconds=1.0)
    return [
        alone,
        StepPrediction(case(ranks=4, work=step), "nccl", StepParts(computing, waiting, exposed), total, total),
    ]


def test_a_healthy_scaling_is_one_sentence_and_a_poor_one_says_what_would_help_most() -> None:
    (curve,) = scaling.curves(predicted(1.0, 0.05, 0.2))
    said = scaling.verdict(curve)
    assert said[0].startswith("nccl, weak: 4 ranks give 3.2x (3.2 .. 3.2): 80%, healthy (healthy from 75%)")
    assert "16% of the step is communication, 4% waiting" in said[0]
    assert not any("would raise" in line for line in said)
    (curve,) = scaling.curves(predicted(1.0, 0.0, 1.0))
    assert scaling.verdict(curve)[0].count("50%, poor")
    assert "overlap (at most 100%)" in scaling.verdict(curve)[-1]
    (slow,) = scaling.curves(predicted(1.0, 1.0, 0.1))
    assert scaling.verdict(slow)[-1].startswith("would raise efficiency: no late rank (at most 91%)")


def test_more_ranks_that_do_less_are_said() -> None:
    (curve,) = scaling.curves([row(1, *[1.0] * 8), row(2, *[3.0] * 8)])
    assert any("less work per second than one" in line for line in scaling.verdict(curve))


def test_no_remedy_promises_more_than_all_of_the_ranks_nor_less_than_there_was() -> None:
    for remedy in scaling.remedies(1.0, (1.3, 0.4, 0.9), "cpu"):
        assert 1 / 2.6 < remedy.efficiency <= 1, remedy.words
    (curve,) = scaling.curves(predicted(1.0, 0.0, 1.0))  # where nobody waits, no rank is late
    assert "no late rank" not in [remedy.words for remedy in scaling.helpful_remedies(curve)]
    for platform, words in (
        ("cpu", "cores and memory of their own for all ranks"),
        ("gpu", "a GPU for every rank, none slowed down by power or heat"),
        ("elsewhere", "resources of a lone rank for every rank"),
    ):
        alone, four = (replace(one, platform=platform) for one in (row(1, *[1.0] * 8), row(4, *[4.0] * 8)))
        (curve,) = scaling.curves([alone, four])
        assert words in [remedy.words for remedy in scaling.helpful_remedies(curve)], platform
