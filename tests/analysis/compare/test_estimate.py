"""Estimates of a ratio against their formulas, term by term."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from collbench.analysis.compare.bootstrap import log_medians
from collbench.analysis.compare.estimate import Estimate, Paired, _usual, paired, pooled, separate


def samples(seed: int, count: int = 60) -> np.ndarray:
    """With a long tail, so that both sides of an error differ."""
    return 1e-6 * np.exp(0.1 * np.random.default_rng(seed).exponential(size=count))


def quantiles(medians: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


@pytest.mark.parametrize(
    ("freedom", "scatter", "places", "quantile"),
    [
        (10.5, 0.0, 0, 2.2281),  # of 10 degrees
        (0.5, 0.0, 0, 12.7062),  # of 1, the fewest
        (10.0, 0.02, 5, 2.1604),  # two errors of 0.02: 4 / (1 / 10 + 1 / 5) = 13
        (10.0, 0.04, 2, 4.3027),  # (1 + 4)^2 / (1 / 10 + 16 / 2) = 3.09, t of 3 is 3.1824
    ],
)
def test_an_interval_is_students(freedom: float, scatter: float, places: int, quantile: float) -> None:
    """Of either side with what no sample shows; degrees of freedom are Satterthwaite's."""
    quantile = 3.1824 if places == 2 else quantile
    low, high = Estimate(0.1, 0.01, 0.03, freedom).interval(0.95, scatter, places)
    assert math.log(low) == pytest.approx(0.1 - quantile * math.hypot(0.01, scatter), abs=1e-5)
    assert math.log(high) == pytest.approx(0.1 + quantile * math.hypot(0.03, scatter), abs=1e-5)


def test_an_interval_is_as_wide_as_its_confidence() -> None:
    """Student's t of 10 at 90 % is 1.8125; no error at all has no width."""
    assert math.log(Estimate(0.0, 0.1, 0.1, 10.5).interval(0.90)[1]) == pytest.approx(0.18125, abs=1e-5)
    assert Estimate(0.0, 0.0, 0.0, 8).interval(0.95) == (1.0, 1.0)


def test_separate_runs_have_the_errors_of_both() -> None:
    """Half of what covers 95 % of the resampled ratios, to either side, whose draws are independent."""
    base, new = samples(1), 1.2 * samples(2)
    estimate = separate(tuple(base), tuple(new))
    (before, some), (after, others) = log_medians(base, 0), log_medians(new, 1)
    low, high = quantiles(after - before)
    assert estimate.log == pytest.approx(math.log(np.median(new) / np.median(base)))
    assert estimate.below == pytest.approx((estimate.log - low) / 1.96)
    assert estimate.above == pytest.approx((high - estimate.log) / 1.96)
    assert abs(estimate.below - estimate.above) > 0.05 * estimate.error
    assert estimate.freedom == some + others - 2


def test_an_error_is_never_less_than_none() -> None:
    """Every block holds as many of 1 as of 2, whose geometric mean is below their median."""
    estimate = separate((1.0,) * 64, (1.0, 2.0) * 32)
    assert estimate.log == pytest.approx(math.log(1.5))
    assert estimate.above == 0.0 < estimate.below


def test_rounds_are_as_far_from_each_other_as_half_their_pairs() -> None:
    """0.1, 0.2 and 0.3 apart; 0.954 of the standard deviation is what half the pairs of normal rounds are within."""
    assert Paired((0.0, 0.1, 0.3), 1.0, 9).between == pytest.approx((0.2 / 0.954) ** 2 / 3)


def test_the_centre_of_rounds_is_the_median_of_the_means_of_any_two() -> None:
    """Of any one too: 0, 0.05, 0.1, 0.15, 0.2, 0.3."""
    assert Paired((0.0, 0.1, 0.3), 1.0, 9).centre == pytest.approx(0.125)


def test_rounds_are_paired_and_what_is_left_in_them_is_resampled() -> None:
    """Over their own medians, all rounds of a half at once, each half by itself; a round costs a degree of freedom."""
    sizes = ((60, 90, 75), (75, 60, 90))
    halves = [samples(3, 225), 1.1 * samples(4, 225)]
    rounds = [
        [half[first:last] for first, last in pairwise(np.cumsum([0, *counts]))]
        for half, counts in zip(halves, sizes, strict=True)
    ]
    expected, blocks = 0.0, 0
    for stream, half in enumerate(rounds):
        drawn, some = log_medians(np.concatenate([stretch / np.median(stretch) for stretch in half]), stream)
        low, high = quantiles(drawn)
        expected += ((high - low) / 3.92) ** 2 * 225 / 222
        blocks += some
    found = paired(halves[0], halves[1], sizes)
    assert found.logs == pytest.approx(
        [math.log(np.median(new) / np.median(one)) for one, new in zip(*rounds, strict=True)]
    )
    assert found.within == pytest.approx(expected)
    assert found.freedom == blocks - 2


def rounds_that_differ(square: float, within: float = 1e-4, freedom: int = 99) -> Paired:
    """Two rounds, whose centre varies by `square` as far as they are apart."""
    row = Paired((0.0, 0.954 * math.sqrt(2 * square)), within, freedom)
    assert row.between == pytest.approx(square)
    return row


def test_what_rounds_usually_differ_by_is_three_quarters_of_a_normal_distribution() -> None:
    """Of two, with Gauss's 1.1503 sqrt(2) / 0.954; of many, their distances are those of all normal samples."""
    assert _usual(2) == pytest.approx((1.15035 * math.sqrt(2) / 0.954) ** 2, rel=0.06)
    assert 1.0 < _usual(40) < 1.4


def test_rows_share_how_many_times_more_rounds_differ_than_samples_explain() -> None:
    """Three quarters of the rows do so by no more than five times, which is taken for all: 1, 3 and 5 times, and 6."""
    usual = _usual(2)
    rows = [rounds_that_differ(times * 1e-4 * usual) for times in (5, 1, 6, 3, 2)]
    assert [estimate.error for estimate in pooled(rows)] == pytest.approx([math.sqrt(5e-4)] * 5)
    calm = [rounds_that_differ(times * 1e-4 * usual) for times in (0.5, 0.2, 0.1)]
    assert [estimate.error for estimate in pooled(calm)] == pytest.approx([1e-2] * 3)  # never less than samples say


def test_a_row_that_is_far_rougher_than_the_others_keeps_its_own_error() -> None:
    """Beyond four times the usual variance."""
    usual = _usual(2)
    calm = [rounds_that_differ(0.5e-4 * usual)] * 8
    for times, own in ((3.9, False), (4.1, True)):
        rough = rounds_that_differ(times * 1e-4 * usual)
        assert pooled([*calm, rough])[-1].error == pytest.approx(math.sqrt(rough.between) if own else 1e-2)


def test_degrees_of_freedom_are_those_of_all_rounds_or_of_the_samples() -> None:
    """Whichever are fewer: 3 rows of 2 rounds are 3."""
    row = rounds_that_differ(1e-4)
    assert [estimate.freedom for estimate in pooled([row, row, replace(row, freedom=2)])] == [3, 3, 2]
    assert [(estimate.log, estimate.below) for estimate in pooled([row])] == [(row.centre, pooled([row])[0].above)]


def test_rounds_of_one_sample_are_known_from_each_other_only() -> None:
    """What is left of a sample over itself is nothing."""
    row = paired((1.0, 1.1, 1.2, 1.0, 1.3), (1.0, 1.2, 1.1, 1.3, 1.1), ((1,) * 5, (1,) * 5))
    assert row.within == 0.0
    assert pooled([row])[0].error == pytest.approx(math.sqrt(row.between))
    assert pooled([row, rounds_that_differ(1e-4)])[0].error == pytest.approx(math.sqrt(row.between))


def test_one_row_with_rounds_that_differ_is_not_trusted_for_its_many_samples() -> None:
    """Three rounds that disagree by a tenth say nothing of 5 %, whatever their samples say."""
    base = [1.0 + 0.001 * step for step in range(60)]
    new = [seconds * factor for seconds, factor in zip(base, [0.95] * 20 + [1.05] * 20 + [1.15] * 20, strict=True)]
    (estimate,) = pooled([paired(base, new, ((20,) * 3, (20,) * 3))])
    low, high = estimate.interval(0.95)
    assert low < 0.95
    assert high > 1.15


def test_rows_learn_from_each_other_how_much_rounds_differ() -> None:
    """Rounds that differ three times as much as samples explain widen all rows; also the one that looks calm."""
    generator = np.random.default_rng(12)
    rough = [Paired(tuple(0.03 * generator.normal(size=4)), 0.01**2 / 4, 20) for _ in range(12)]
    calm = Paired((0.0, 0.001, -0.001, 0.0), 0.01**2 / 4, 20)
    assert pooled([*rough, calm])[-1].error > 2 * pooled([calm])[0].error


def test_a_round_that_was_disturbed_in_one_half_does_not_spoil_the_rest() -> None:
    """A neighbour came and went; pairing cannot cancel that, but five rounds of six agree."""
    logs = (0.10, 0.11, 0.09, 0.80, 0.10, 0.105)
    (estimate,) = pooled([Paired(logs, 0.01**2 / 6, 20)])
    assert estimate.log == pytest.approx(0.10, abs=0.02)
    assert estimate.interval(0.95)[0] > 1.05
