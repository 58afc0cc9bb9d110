"""The rule of the verdict, and the mean over sizes, with figures worked out by hand."""

import math
from collections.abc import Sequence

import pytest

from collbench.analysis.compare.verdicts import Row, Together, Verdict, together, verdict
from tests.conftest import case, measurement


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((0.96, 1.04), Verdict.SAME),
        ((1.01, 1.04), Verdict.SAME),  # surely not 1, but nobody minds
        ((1 / 1.05, 1.05), Verdict.SAME),
        ((1 / 1.06, 1.05), Verdict.INCONCLUSIVE),
        ((1 / 1.05, 1.06), Verdict.INCONCLUSIVE),
        ((0.8, 1.2), Verdict.INCONCLUSIVE),
        ((1.0, 1.2), Verdict.INCONCLUSIVE),
        ((0.8, 1.0), Verdict.INCONCLUSIVE),
        ((1.01, 1.2), Verdict.SLOWER),
        ((0.8, 0.99), Verdict.FASTER),
        ((-math.inf, math.inf), Verdict.INCONCLUSIVE),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side(interval: tuple[float, float], said: Verdict) -> None:
    """Within 5 % of equal, above, below, or neither."""
    assert verdict(interval, 0.05) is said


@pytest.mark.parametrize(
    ("ratio", "said", "regression"),
    [
        (1.2, Verdict.SLOWER, True),
        (1.05, Verdict.SLOWER, False),
        (1.02, Verdict.SLOWER, False),
        (1.2, Verdict.INCONCLUSIVE, False),
        (0.8, Verdict.FASTER, False),
    ],
)
def test_a_regression_is_slower_and_by_more_than_the_margin(ratio: float, said: Verdict, regression: bool) -> None:
    """Of a row and of all sizes together."""
    base = measurement()
    row = Row(base, base, base.typical, base.typical, ratio, (0.7, 1.3), said)
    assert row.regression(0.05) is regression
    assert Together(case().kind, "mpi", 4, ratio, (0.7, 1.3), said).regression(0.05) is regression


@pytest.mark.parametrize(
    ("ratio", "interval", "said", "hidden"),
    [
        (1.04, (0.9, 1.2), Verdict.INCONCLUSIVE, True),
        (0.97, (0.9, 1.05), Verdict.INCONCLUSIVE, False),
        (1.2, (1.1, 1.3), Verdict.SLOWER, False),  # it is no secret
        (1.03, (1.01, 1.3), Verdict.SLOWER, True),  # by less than the margin, perhaps
        (1.0, (math.nan, math.nan), Verdict.UNKNOWN, True),
    ],
)
def test_a_row_hides_a_regression_that_it_cannot_exclude(
    ratio: float, interval: tuple[float, float], said: Verdict, hidden: bool
) -> None:
    """Its interval reaches past the margin."""
    base = measurement()
    assert Row(base, base, base.typical, base.typical, ratio, interval, said).hides(0.05) is hidden


LINE = [0.01 * place for place in range(-7, 8, 2)]
LONG = [0.0001 * place for place in range(100)]


@pytest.mark.parametrize(
    ("logs", "looks", "quantile"),
    [
        # Neighbours on opposite sides: every size is a look of its own; t(0.975; 3).
        ([0.01, -0.01] * 2, 4.0, 3.182446),
        # Pairs: r = 1/8 + 1/8, so 8 sizes are worth 8 x 0.75 / 1.25 looks; t(0.975; 5).
        ([0.01, 0.01, -0.01, -0.01] * 2, 4.8, 2.570582),
        # A straight line: r = 105/168 + 1/8, worth 8/7, which counts as two; t(0.975; 4).
        (LINE, 2.0, 2.776445),
        # A long one: r is 0.9 at most, worth 100 x 0.1 / 1.9; t(0.975; 51).
        (LONG, 100 / 19, 2.007584),
    ],
    ids=["opposite", "in pairs", "a line", "a long line"],
)
def test_sizes_that_are_alike_are_worth_fewer_looks(logs: Sequence[float], looks: float, quantile: float) -> None:
    """Student's interval of the mean logarithm with as many looks as they are worth."""
    count = len(logs)
    curve = [(measurement(nbytes=8 << place % 20), log + 0.3) for place, log in enumerate(logs)]
    whole = together(curve, 0.95, 0.05)
    centre = sum(logs) / count
    spread = math.sqrt(sum((log - centre) ** 2 for log in logs) / (count - 1))
    assert whole.ratio == pytest.approx(math.exp(0.3 + centre))
    reach = quantile * spread / math.sqrt(looks)
    low, high = math.exp(0.3 + centre - reach), math.exp(0.3 + centre + reach)
    assert whole.interval == pytest.approx((low, high), rel=1e-6)
    assert (whole.sizes, whole.case, whole.implementation) == (count, case().kind, "mpi")
    assert whole.verdict is (Verdict.SLOWER if low > 1 else Verdict.INCONCLUSIVE)


def test_sizes_that_agree_exactly_leave_no_doubt() -> None:
    """No spread, no interval."""
    whole = together([(measurement(nbytes=8 << place), math.log(1.5)) for place in range(4)], 0.95, 0.05)
    assert whole.interval == pytest.approx((1.5, 1.5))
    assert whole.verdict is Verdict.SLOWER
