"""Scatter between runs: what neighbouring sizes show of it."""

import math

import pytest

from collbench.analysis.compare.estimate import Estimate
from collbench.analysis.compare.scatter import Scatter, scatter

SIZES = tuple(8 * 4**step for step in range(13))


def test_scatter_is_that_of_neighbours_and_not_of_a_trend() -> None:
    """A change that grows with the size is no scatter; 10 % to and fro is."""
    trend = [(size, Estimate(0.1 * place, 0.01, 0.01, 20)) for place, size in enumerate(SIZES)]
    swings = [(size, Estimate(0.1 * (-1) ** place, 0.01, 0.01, 20)) for place, size in enumerate(SIZES)]
    assert scatter([trend]).everywhere == (0.0, len(SIZES) - 2)
    assert scatter([swings]).at(SIZES[0])[0] > 0.1
    assert scatter([trend[:2]]).at(SIZES[0]) == Scatter().at(8) == (0.0, 0)


def test_scatter_is_what_explains_three_quarters_of_the_distances() -> None:
    """1.5 s^2 + the errors' squares = d^2, or (d / 1.15)^2 near a size; a size counts once, whoever was measured."""
    logs = [0.0] * 5 + [0.2 * (-1) ** place for place in range(8)]  # nine distances of eleven are 0.3 or 0.4
    curve = [(size, Estimate(log, 0.1, 0.1, 20)) for size, log in zip(SIZES, logs, strict=True)]
    found = scatter([curve, curve])
    extra, places = found.everywhere
    assert places == len(SIZES) - 2
    assert extra == pytest.approx(math.sqrt((0.4**2 - 0.1**2 * 1.5) / 1.5), rel=1e-3)
    assert found.near[SIZES[-1]][0] == pytest.approx(math.sqrt((0.4**2 / 1.15**2 - 0.1**2 * 1.5) / 1.5), rel=1e-3)
    within = [(size, Estimate(0.1 * log, 0.1, 0.1, 20)) for size, log in zip(SIZES, logs, strict=True)]
    assert scatter([within]).everywhere[0] == 0.0  # errors explain as much


def test_sizes_that_are_rougher_than_the_others_have_wider_intervals() -> None:
    """Small messages may swing while large ones are steady; that all are not rough does not make these sure."""
    sizes = [8 << place for place in range(25)]
    logs = [0.1 * (-1) ** place if place < 5 else 0.0 for place in range(25)]
    found = scatter([[(size, Estimate(log, 0.01, 0.01, 20)) for size, log in zip(sizes, logs, strict=True)]])
    assert found.everywhere[0] < 0.01
    assert found.at(sizes[1])[0] > 0.1
    assert found.at(sizes[12]) == found.everywhere


def test_scatter_near_a_size_is_that_of_three_sizes_to_either_side() -> None:
    """As far as there are any; the first and the last have no middle to be held against."""
    curve = [(size, Estimate(0.0, 0.01, 0.01, 20)) for size in SIZES]
    near = scatter([curve, curve[:5]]).near
    assert [near[size] for size in SIZES] == [(0.0, places) for places in (3, 4, 5, 6, *[7] * 5, 6, 5, 4, 3)]


def test_scatter_may_be_of_any_size() -> None:
    """A size that is e times slower between two that are not: 1.5 s^2 = 2^2."""
    swings = [(size, Estimate((-1.0) ** place, 0.0, 0.0, 20)) for place, size in enumerate(SIZES)]
    assert scatter([swings]).everywhere[0] == pytest.approx(math.sqrt(2**2 / 1.5))


def test_three_quarters_of_the_distances_are_interpolated() -> None:
    """Of 0, 0.15, 0.3 and 0.45 that is 0.3375, whichever size is first and whatever its sign."""
    for signs in ((0, 1, -2, 3), (-3, 2, 0, -1)):
        curves = [
            [(8 * 4 ** (3 * which + place), Estimate(0.15 * sign * (place == 1), 0.01, 0.01, 20)) for place in range(3)]
            for which, sign in enumerate(signs)
        ]
        assert scatter(curves).everywhere == (pytest.approx(math.sqrt((0.3375**2 - 1.5e-4) / 1.5), rel=1e-4), 4)
