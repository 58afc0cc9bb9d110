"""Order statistics, held against NumPy and against samples of known truth."""

import math

import numpy as np
import pytest

from collbench.stats import median_interval, percentile, relative_halfwidth, student


@pytest.mark.parametrize("percent", [0, 5, 50, 95, 99, 100])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_percentiles_are_numpys(percent: float, count: int) -> None:
    """Linear interpolation between order statistics."""
    samples = np.random.default_rng(count).exponential(size=count).tolist()
    assert percentile(samples, percent) == pytest.approx(np.percentile(samples, percent))


@pytest.mark.parametrize("count", [6, 9, 25, 100, 1500])
def test_the_interval_covers_the_median_as_often_as_it_says(count: int) -> None:
    """For a skewed distribution too: at least 95 % of the time, and not always, so that it is no wider than needed."""
    generator = np.random.default_rng(7)
    inside = 0
    trials = 1500
    for _ in range(trials):
        low, high = median_interval(generator.lognormal(0, 1, count).tolist())
        inside += low <= 1 <= high
    assert 0.94 <= inside / trials <= 0.992


def test_five_samples_have_no_interval() -> None:
    """All five lie on one side of the median in one case of sixteen."""
    assert median_interval([1.0] * 5) == (-math.inf, math.inf)
    assert median_interval([1.0] * 6) == (1.0, 1.0)


def test_the_halfwidth_is_relative_to_the_median() -> None:
    """Samples ten times as large have the same."""
    samples = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    assert relative_halfwidth(samples) == pytest.approx(0.3 / 1.3)
    assert relative_halfwidth([10 * sample for sample in samples]) == pytest.approx(0.3 / 1.3)


def test_student_is_the_tables() -> None:
    """95th percentiles for 1, 2, 5, 12 and 100 degrees of freedom."""
    for freedom, value in ((1, 6.314), (2, 2.920), (5, 2.015), (12, 1.782), (100, 1.660)):
        assert student(0.95, freedom) == pytest.approx(value, rel=0.003)
