"""What overlap hides, from rows that took turns, with intervals from their rounds."""

import pytest

from collbench.commands.step.overlap import COSTS, HELPS, INCONCLUSIVE, overlaps, verdicts
from collbench.commands.step.rows import Series, StepParts, StepPrediction, StepTimes
from collbench.commands.step.work import Step
from tests.conftest import case


def row(schedule: str, *seconds: float, computing: float = 0.0, bucket: int = 0, name: str = "mpi") -> StepTimes:
    """Rounds of one series, whose steps took so long; so many seconds of it computing."""
    series = tuple(Series((0.0, 0.0), ((computing,),) * 2, ((each,),) * 2) for each in seconds)
    whole = case(nbytes=4096, work=Step(8, 64, schedule, bucket))
    return StepTimes(whole, name, "cpu", series=series, rounds=(1,) * len(seconds))


PARTS = [
    row("compute", *[6.0] * 8, computing=6.0),
    row("communicate", *[4.0] * 8),
    row("sequential", *[10.0] * 8, computing=6.0),
]


def test_what_is_hidden_is_counted_from_one_after_the_other_to_the_longer_part() -> None:
    (one,) = overlaps([*PARTS, row("thread", *[7.0] * 8, computing=6.6, bucket=1024)])
    assert one.hidden.value == pytest.approx(0.75)
    assert one.exposed.value == pytest.approx(1.0)
    assert one.gain.value == pytest.approx(10 / 7)
    assert one.slowdown.value == pytest.approx(1.1)
    assert one.bound == 6.0
    assert one.verdict == HELPS
    drift = [1.0 + 0.2 * number for number in range(8)]
    rows = [row("compute", *(6 * each for each in drift)), row("communicate", *(4 * each for each in drift))]
    rows += [row("sequential", *(10 * each for each in drift)), row("thread", *(7 * each for each in drift))]
    (one,) = overlaps(rows)
    assert one.gain.low == pytest.approx(10 / 7)
    assert one.hidden.high == pytest.approx(0.75)


def test_overlap_that_costs_time_says_so_and_a_gain_that_may_be_a_loss_is_inconclusive() -> None:
    (one,) = overlaps([*PARTS, row("thread", *[11.0] * 8, computing=8.0)])
    assert one.verdict == COSTS
    assert one.hidden.value == pytest.approx(-0.25)

    wide = [8.0, 12.0, 9.0, 11.0, 8.5, 11.5, 9.5, 10.5]
    (one,) = overlaps([*PARTS, row("thread", *wide, computing=6.0)])
    assert one.verdict == INCONCLUSIVE
    few = [row("compute", *[6.0] * 3), row("communicate", *[4.0] * 3), row("sequential", *[10.0] * 3)]
    (other,) = overlaps([*few, row("thread", *[7.0] * 3)])
    assert other.verdict == INCONCLUSIVE


def test_of_a_prediction_where_nothing_is_hidden_the_share_is_0_without_a_sign() -> None:
    def predicted(schedule: str, seconds: float, bucket: int = 0) -> StepPrediction:
        whole = case(nbytes=4096, work=Step(8, 64, schedule, bucket))
        return StepPrediction(whole, "nccl", StepParts(seconds, 0.0, 0.0), seconds, seconds)

    parts = [predicted("compute", 6), predicted("communicate", 4), predicted("sequential", 10)]
    rows = [predicted("stream", 7, 256), predicted("stream", 8, 512), predicted("stream", 10, 1024)]
    found = overlaps([*parts, *rows])
    assert found[2].hidden.scaled(100).text(unit="%") == "0%"
    (line,) = verdicts([*parts, *rows])
    assert "stream with buckets of 256 B is fastest" in line


def test_an_implementation_is_held_against_its_own_parts_and_without_all_of_them_nothing_can_be_said() -> None:
    own = [row("communicate", *[1.0] * 8, name="auto"), row("sequential", *[7.0] * 8, name="auto")]
    found = overlaps([*PARTS, *own, row("thread", *[6.5] * 8, name="auto")])
    assert found[0].sequential is own[1]
    assert found[0].compute is PARTS[0]

    for left_out in range(3):
        parts = [one for place, one in enumerate(PARTS) if place != left_out]
        assert overlaps([*parts, row("thread", *[7.0] * 8)]) == []
