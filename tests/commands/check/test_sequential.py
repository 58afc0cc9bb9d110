"""The sequential test: what it decides, how sure it must be, and how often it is wrong."""

import math

import pytest

from collbench.commands.check.sequential import Decision, SequentialTest, deviations, median_variance
from tools.check_errors import MACHINES, shares

TEST = SequentialTest(slower=0.1)


def test_a_size_is_slow_or_as_expected_once_its_median_is_known_well_enough() -> None:
    sure, unsure = 0.01**2, 0.2**2
    expected = {
        (0.0, sure): Decision.AS_EXPECTED,
        (-0.5, sure): Decision.AS_EXPECTED,
        (math.log(1.1), sure): Decision.SLOW,
        (math.log(2.0), sure): Decision.SLOW,
        (math.log1p(0.1) / 2, sure): Decision.UNDECIDED,
        (0.0, unsure): Decision.UNDECIDED,
        (math.log(1.1), unsure): Decision.UNDECIDED,
    }
    for (centre, variance), decision in expected.items():
        assert TEST.decide(centre, variance) is decision, (centre, variance)


def test_more_sizes_make_it_harder_to_call_any_of_them_slow() -> None:
    centre, variance = math.log(1.1), 0.031**2
    assert TEST.decide(centre, variance) is Decision.SLOW
    assert SequentialTest(slower=0.1, sizes=100).decide(centre, variance) is Decision.UNDECIDED


def test_an_expectation_with_an_error_tells_what_is_beyond_its_resolution_only() -> None:
    error = 0.4
    resolution = TEST.resolution(error)
    assert 2.5 < math.exp(resolution) < 6
    assert TEST.decide(math.log(1.05), 0.0, error) is Decision.AS_EXPECTED
    assert TEST.decide(1.01 * resolution, 1e-6, error) is Decision.SLOW
    assert TEST.decide(resolution / 2, 1e-6, error) is Decision.UNDECIDED


def test_rounds_that_were_disturbed_do_not_make_a_size_noisy() -> None:
    calm = [0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01]
    quiet, disturbed = deviations([calm, [*calm[:5], 1.5, 2.0]])
    assert quiet < 0.03
    assert disturbed < 0.06
    assert deviations([[3 * log for log in calm]])[0] > quiet


def test_the_variance_of_a_median_falls_with_the_rounds_of_both_sides() -> None:
    assert median_variance(0.1, 4) == pytest.approx(math.pi / 2 * 0.01 / 4)
    assert median_variance(0.1, 4, math.inf) == median_variance(0.1, 4)
    assert median_variance(0.1, 4, 4) == 2 * median_variance(0.1, 4)


def test_checks_with_the_noise_of_published_repeats_are_hardly_ever_wrong() -> None:
    """Small numbers of what docs/checking.md has; draws are always the same."""
    for machine in MACHINES:
        healthy = shares(machine, {}, trials=20)
        assert healthy["FAIL"] <= 0.05, machine.name
        everywhere = shares(machine, dict.fromkeys(machine.noise, 1.3), trials=5)
        assert everywhere["FAIL"] == 1.0, machine.name
        last = list(machine.noise)[-1]
        assert shares(machine, {last: 1.2}, trials=10)["OK"] <= 0.05, machine.name
