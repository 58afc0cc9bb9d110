"""The verdict of a curve from those of its sizes."""

from collections.abc import Sequence

from collbench.analysis.check import Status, judge_rounds
from collbench.analysis.expectations import expect_run
from collbench.analysis.sequential import Decision, SequentialTest
from collbench.results import Measurement
from tests.conftest import measurement

SIZES = [8 * 8**power for power in range(7)]


def rounds(*ratios: float, nbytes: int) -> list[Measurement]:
    """Rounds of a size, each so many times as long as a microsecond."""
    return [measurement(seconds=(ratio * 1e-6,), nbytes=nbytes) for ratio in ratios]


def verdict(odd: Sequence[float]) -> tuple[Status, Decision]:
    """That of a curve whose other sizes are as expected, and of the odd size."""
    steady = (0.99, 1.0, 1.01) * 4
    known = [row for nbytes in SIZES for row in rounds(*steady, nbytes=nbytes)]
    rows = [row for nbytes in SIZES[:-1] for row in rounds(*steady, nbytes=nbytes)]
    rows += rounds(*odd, nbytes=SIZES[-1])
    (curve,) = judge_rounds(rows, expect_run("a run", known), SequentialTest(slower=0.2))
    return curve.status, curve.sizes[-1].decision


def test_a_size_that_is_not_known_well_is_no_matter_unless_it_seems_slow() -> None:
    assert verdict((0.99, 1.0, 1.01)) == (Status.OK, Decision.AS_EXPECTED)
    assert verdict((0.8, 1.05, 1.4)) == (Status.OK, Decision.UNDECIDED)
    assert verdict((1.0, 1.25, 1.6)) == (Status.UNKNOWN, Decision.UNDECIDED)
    assert verdict((1.29, 1.3, 1.31)) == (Status.FAIL, Decision.SLOW)


def test_a_size_that_was_measured_once_warns_and_many_fail() -> None:
    assert verdict((1.6,)) == (Status.WARN, Decision.SLOW)
    known = [row for nbytes in SIZES for row in rounds(1.0, nbytes=nbytes)]
    rows = [row for nbytes in SIZES for row in rounds(1.6, nbytes=nbytes)]
    (curve,) = judge_rounds(rows, expect_run("a run", known), SequentialTest(slower=0.2))
    assert curve.status is Status.FAIL
