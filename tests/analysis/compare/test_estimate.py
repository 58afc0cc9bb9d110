"""Estimates of a ratio against their formulas: the block bootstrap, pairs of rounds, and scatter between sizes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from collbench.analysis import bootstrap
from collbench.analysis.bootstrap import (
    Floats,
    LogRatio,
    Paired,
    Scatter,
    _usual,
    log_medians,
    paired,
    pooled,
    scatter,
    separate,
)
from tests.analysis.compare.test_compare import noise

SIZES = tuple(8 * 4**step for step in range(13))


def test_a_resample_is_of_whole_blocks() -> None:
    for count in (40, 60, 61, 100):
        samples = np.exp(0.1 * np.random.default_rng(count).normal(size=count))
        medians, blocks = log_medians(samples, 3)
        assert blocks == bootstrap.block_count(samples), count
        divided = [np.log(samples[np.arange(count) * blocks // count == block]) for block in range(blocks)]
        drawn = bootstrap._drawn(blocks, 3).astype(int).T
        assert drawn.shape == (1000, blocks), count
        assert set(drawn.sum(axis=1)) == {blocks}, count
        centre = math.log(np.median(samples))
        for median, times in zip(medians[:40], drawn, strict=False):
            resample = np.concatenate([part for part, often in zip(divided, times, strict=True) for _ in range(often)])
            expected = centre + (np.median(resample) - centre) * math.sqrt(blocks / (blocks - 1))
            assert median == pytest.approx(expected, abs=1e-12), count
    samples = 1 + np.random.default_rng(0).permutation(5000) / 5000  # of so many, some order statistics do
    medians = np.exp(log_medians(samples, 0)[0])
    assert np.median(medians) == pytest.approx(1.5, abs=0.002)
    assert np.std(medians) == pytest.approx(0.5 / math.sqrt(5000), rel=0.25)


def test_blocks_last_as_long_as_samples_remember_which_is_the_autocorrelation_time_of_their_sides() -> None:
    def alternating(count: int) -> Floats:
        return 1 + 0.1 * (np.arange(count) % 2)

    for samples, blocks in (
        (alternating(5), 5),  # not more than there are samples
        (alternating(10), 7),  # at least seven
        (alternating(343), 49),  # the cube root of their number in a block
        (alternating(2000), 100),  # not more than a hundred
        (np.repeat(alternating(32), 8), 31),  # 256 samples that remember for 4.05 have 8.1 in a block
    ):
        assert bootstrap.block_count(samples) == blocks, len(samples)
    for sides, memory in (
        ("+-" * 8, 1.0),
        ("++--" * 4, 1 + 2 * 1 / 16),  # neighbours: 8 pairs alike, 7 not; the ones after them: 14 pairs, none alike
        ("+" * 8 + "-" * 8, 1 + 2 * (13 + 10 + 7) / 16),  # no further than a quarter of the samples
        ("0" * 16, 1.0),
    ):
        samples = np.array([5.0 + {"+": 1, "-": -1, "0": 0}[side] for side in sides])
        assert bootstrap.memory(samples) == pytest.approx(memory), sides


def test_a_bootstrapped_median_is_as_uncertain_as_a_median_and_more_so_where_samples_remember() -> None:
    drawn = np.exp(0.03 * np.random.default_rng(10).normal(size=(400, 60)))
    said = np.mean([np.std(log_medians(sample, 0)[0]) for sample in drawn[:50]])
    assert said == pytest.approx(np.std(np.log(np.median(drawn, axis=1))), rel=0.15)
    fresh, alike = (noise(np.random.default_rng(9), (200,), memory) for memory in (0.0, 0.9))
    assert bootstrap.memory(alike) > 3 > 1.5 > bootstrap.memory(fresh)
    repeated = np.repeat(fresh[:40], 5)  # two hundred samples that are forty
    assert np.std(log_medians(repeated, 0)[0]) > 1.5 * np.std(log_medians(fresh, 0)[0])
    one, other = (log_medians(drawn[0], stream)[0] for stream in (0, 1))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.15, "errors of both runs would cancel"


def samples(seed: int, count: int = 60) -> np.ndarray:
    """With a long tail, so that both sides of an error differ."""
    return 1e-6 * np.exp(0.1 * np.random.default_rng(seed).exponential(size=count))


def quantiles(medians: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def test_an_interval_is_students() -> None:
    for freedom, scattered, places, quantile in (
        (10.5, 0.0, 0, 2.2281),  # of 10 degrees
        (0.5, 0.0, 0, 12.7062),  # of 1, the fewest
        (10.0, 0.02, 5, 2.1604),  # two errors of 0.02: 4 / (1 / 10 + 1 / 5) = 13
        (10.0, 0.04, 2, 3.1824),  # (1 + 4)^2 / (1 / 10 + 16 / 2) = 3.09
    ):
        _, low, high = LogRatio(0.1, 0.01, 0.03, freedom).estimate(0.95, scattered, places)
        assert math.log(low) == pytest.approx(0.1 - quantile * math.hypot(0.01, scattered), abs=1e-5), freedom
        assert math.log(high) == pytest.approx(0.1 + quantile * math.hypot(0.03, scattered), abs=1e-5), freedom
    assert math.log(LogRatio(0.0, 0.1, 0.1, 10.5).estimate(0.90).high) == pytest.approx(0.18125, abs=1e-5)
    assert LogRatio(0.0, 0.0, 0.0, 8).estimate(0.95) == (1.0, 1.0, 1.0)


def test_separate_runs_have_the_errors_of_both() -> None:
    base, new = samples(1), 1.2 * samples(2)
    estimate = separate(tuple(base), tuple(new))
    (before, some), (after, others) = log_medians(base, 0), log_medians(new, 1)
    low, high = quantiles(after - before)
    assert estimate.log == pytest.approx(math.log(np.median(new) / np.median(base)))
    assert estimate.below == pytest.approx((estimate.log - low) / 1.96)
    assert estimate.above == pytest.approx((high - estimate.log) / 1.96)
    assert abs(estimate.below - estimate.above) > 0.05 * estimate.error
    assert estimate.freedom == some + others - 2
    # Every block holds as many of 1 as of 2, whose geometric mean is below their median.
    estimate = separate((1.0,) * 64, (1.0, 2.0) * 32)
    assert estimate.log == pytest.approx(math.log(1.5))
    assert estimate.above == 0.0 < estimate.below


def test_three_rounds_have_their_spread_and_their_centre() -> None:
    row = Paired((0.0, 0.1, 0.3), 1.0, 9)
    assert row.between == pytest.approx((0.2 / 0.954) ** 2 / 3)
    assert row.centre == pytest.approx(0.125)


def test_rounds_are_paired_and_what_is_left_in_them_is_resampled() -> None:
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
    found = paired(*rounds)
    logs = [math.log(np.median(new) / np.median(one)) for one, new in zip(*rounds, strict=True)]
    assert found.logs == pytest.approx(logs)
    assert found.within == pytest.approx(expected)
    assert found.freedom == blocks - 2


def rounds_that_differ(square: float, within: float = 1e-4, freedom: int = 99) -> Paired:
    """Two rounds, whose centre varies by `square` as far as they are apart."""
    row = Paired((0.0, 0.954 * math.sqrt(2 * square)), within, freedom)
    assert row.between == pytest.approx(square)
    return row


def test_rows_share_how_many_times_more_rounds_differ_than_samples_explain() -> None:
    usual = _usual(2)
    assert usual == pytest.approx((1.15035 * math.sqrt(2) / 0.954) ** 2, rel=0.06)  # Gauss's, of two rounds
    assert 1.0 < _usual(40) < 1.4
    rows = [rounds_that_differ(times * 1e-4 * usual) for times in (5, 1, 6, 3, 2)]
    assert [estimate.error for estimate in pooled(rows)] == pytest.approx([math.sqrt(5e-4)] * 5)
    calm = [rounds_that_differ(times * 1e-4 * usual) for times in (0.5, 0.2, 0.1)]
    assert [estimate.error for estimate in pooled(calm)] == pytest.approx([1e-2] * 3)  # never less than samples say
    calm = [rounds_that_differ(0.5e-4 * usual)] * 8  # beyond four times the usual variance a row keeps its own error
    for times, own in ((3.9, False), (4.1, True)):
        rough = rounds_that_differ(times * 1e-4 * usual)
        expected = math.sqrt(rough.between) if own else 1e-2
        assert pooled([*calm, rough])[-1].error == pytest.approx(expected), times


def test_degrees_of_freedom_are_those_of_all_rounds_or_of_the_samples() -> None:
    row = rounds_that_differ(1e-4)
    assert [estimate.freedom for estimate in pooled([row, row, replace(row, freedom=2)])] == [3, 3, 2]
    assert [(estimate.log, estimate.below) for estimate in pooled([row])] == [(row.centre, pooled([row])[0].above)]


def test_rounds_that_disagree_are_not_trusted_for_their_samples() -> None:
    row = paired(((1.0,), (1.1,), (1.2,), (1.0,), (1.3,)), ((1.0,), (1.2,), (1.1,), (1.3,), (1.1,)))
    assert row.within == 0.0
    assert pooled([row, rounds_that_differ(1e-4)])[0].error == pytest.approx(math.sqrt(row.between))
    base = [1.0 + 0.001 * step for step in range(60)]
    rounds = [base[:20], base[20:40], base[40:]]
    slower = [[seconds * factor for seconds in part] for part, factor in zip(rounds, (0.95, 1.05, 1.15), strict=True)]
    (estimate,) = pooled([paired(rounds, slower)])
    _, low, high = estimate.estimate(0.95)
    assert low < 0.95 < 1.15 < high


def curve(logs: Sequence[float], error: float = 0.01, first: int = 0) -> list[tuple[int, LogRatio]]:
    return [(8 * 4 ** (first + place), LogRatio(log, error, error, 20)) for place, log in enumerate(logs)]


def test_scatter_is_that_of_neighbours_and_explains_three_quarters_of_the_distances() -> None:
    trend = curve([0.1 * place for place in range(13)])
    assert scatter([trend]).everywhere == (0.0, 11)
    assert scatter([trend[:2]]).at(SIZES[0]) == Scatter().at(8) == (0.0, 0)
    swings = [(-1.0) ** place for place in range(13)]
    assert scatter([curve(swings, 0.0)]).everywhere[0] == pytest.approx(math.sqrt(2**2 / 1.5))
    assert scatter([curve(swings)]).everywhere[0] == pytest.approx(math.sqrt((2**2 - 1.5e-4) / 1.5))
    logs = [0.0] * 5 + [0.2 * (-1) ** place for place in range(8)]  # nine distances of eleven are 0.3 or 0.4
    found = scatter([curve(logs, 0.1)] * 2)
    assert found.everywhere == (pytest.approx(math.sqrt((0.4**2 - 0.1**2 * 1.5) / 1.5), rel=1e-3), 11)
    assert found.near[SIZES[-1]][0] == pytest.approx(math.sqrt((0.4**2 / 1.15**2 - 0.1**2 * 1.5) / 1.5), rel=1e-3)
    assert scatter([curve([0.1 * log for log in logs], 0.1)]).everywhere[0] == 0.0  # errors explain as much
    for signs in ((0, 1, -2, 3), (-3, 2, 0, -1)):  # of 0, 0.11, 0.22 and 0.33 that is 0.2475
        curves = [curve([0.0, 0.11 * sign, 0.0], first=3 * which) for which, sign in enumerate(signs)]
        expected = math.sqrt((0.2475**2 - 1.5e-4) / 1.5)
        assert scatter(curves).everywhere == (pytest.approx(expected, rel=1e-4), 4), signs


def test_sizes_that_are_rougher_than_the_others_have_wider_intervals() -> None:
    sizes = [8 << place for place in range(25)]
    logs = [0.1 * (-1) ** place if place < 5 else 0.0 for place in range(25)]
    found = scatter([[(size, LogRatio(log, 0.01, 0.01, 20)) for size, log in zip(sizes, logs, strict=True)]])
    assert found.everywhere[0] < 0.01
    assert found.at(sizes[1])[0] > 0.1
    assert found.at(sizes[12]) == found.everywhere
    near = scatter([curve([0.0] * 13), curve([0.0] * 5)]).near  # of three sizes to either side, as far as there are any
    assert [near[size] for size in SIZES] == [(0.0, places) for places in (3, 4, 5, 6, *[7] * 5, 6, 5, 4, 3)]
