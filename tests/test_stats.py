"""Order statistics, held against NumPy and against samples of known truth."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest

from collbench.stats import Estimate, median_interval, percentile, relative_halfwidth, student


def test_percentiles_are_numpys() -> None:
    for count, percent in product((1, 2, 7, 100), (0, 5, 50, 95, 99, 100)):
        samples = np.random.default_rng(count).exponential(size=count).tolist()
        assert percentile(samples, percent) == pytest.approx(np.percentile(samples, percent)), (count, percent)


@cache
def coverages(count: int) -> list[float]:
    """How often the median lies within `count` samples less 0, 1, ... of each end, exactly."""
    ways, outside, told = 1, 0, []
    for cut in range(count):
        outside += 2 * ways
        told.append(1 - outside / 2**count)
        ways = ways * (count - cut) // (cut + 1)
    return told


def test_the_interval_is_the_narrowest_that_covers_the_median_as_often_as_it_says() -> None:
    for confidence, count in product((0.5, 0.9, 0.95, 0.99, 0.999), (*range(1, 80), 500, 1000, 1001, 2000)):
        case = confidence, count
        low, high = median_interval([float(sample) for sample in reversed(range(count))], confidence)
        if low == -math.inf:
            assert (high, coverages(count)[0] < confidence) == (math.inf, True), case
            continue
        assert high == count - 1 - low, case
        assert coverages(count)[int(low)] >= confidence, case
        assert coverages(count)[int(low) + (1 if count <= 1000 else 2)] < confidence, case
    assert median_interval([1.0] * 5) == (-math.inf, math.inf), "in one case of sixteen all are on one side"
    assert relative_halfwidth([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]) == pytest.approx(0.3 / 1.3)


def test_student_is_the_tables() -> None:
    tables = {
        (0.95, 1): 6.3138, (0.95, 5): 2.0150, (0.95, 100): 1.6602,
        (0.9995, 1): 636.62, (0.9995, 5): 6.8688, (0.0005, 5): -6.8688, (0.9995, 100): 3.3905,
    }  # fmt: skip
    for (probability, freedom), value in tables.items():
        assert student(probability, freedom) == pytest.approx(value, rel=5e-5), (probability, freedom)


def test_an_estimate_says_what_all_of_its_interval_allows() -> None:
    for low, high, above, below, level in (
        (1.01, 1.04, True, False, True),
        (0.96, 0.99, False, True, True),
        (0.90, 0.99, False, True, False),
        (1.00, 1.06, False, False, False),
        (1 / 1.05, 1.05, False, False, True),
        (math.nan, math.nan, False, False, False),
        (-math.inf, math.inf, False, False, False),
    ):
        ratio = Estimate(1.02, low, high)
        assert (ratio.surely_above(1), ratio.surely_below(1), ratio.surely_level(0.05)) == (above, below, level), low
        assert ratio.holds(1) is (low <= 1 <= high), low
        assert ratio.known is math.isfinite(low), low


def test_an_estimate_is_written_with_the_ends_that_are_known_and_as_json_without_the_others() -> None:
    for estimate, text in (
        (Estimate(1.62, 1.58, 1.66), "1.62x (1.58 .. 1.66)"),
        (Estimate(1.62), "1.62x"),
        (Estimate(1.62, 1.58), "1.62x (at least 1.58)"),
        (Estimate(math.nan), ""),
    ):
        assert estimate.text(unit="x") == text
    assert Estimate(0.5, 0.25, 1.0).scaled(100).text("{:.0f}".format) == "50 (25 .. 100)"
    assert Estimate(1.5, 1.0, math.inf).fields("ratio") == {"ratio": 1.5, "low": 1.0, "high": None}
    samples = [5.0, 1.0, 4.0, 2.0, 3.0, 6.0]
    assert Estimate.of_median(samples) == (3.5, 1.0, 6.0)
    assert not Estimate.of_median(samples[:5]).known
