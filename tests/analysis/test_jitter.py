"""Who is late, what that costs, what the noise is like and what more ranks would pay, of steps that are made up."""

import math
from dataclasses import replace

import numpy as np
import pytest

from collbench.analysis.jitter import noise
from collbench.analysis.jitter.accusation import DOUBT, Finding, stretches, verdict
from collbench.analysis.jitter.judgement import verdicts
from collbench.analysis.jitter.lateness import Steps, behind_others, parts_of
from collbench.analysis.jitter.maximum import expected_maximum
from collbench.analysis.jitter.tails import remembered, tail
from collbench.note import Note
from collbench.step_times import Series, StepTimes
from collbench.steps import Step
from tests.analysis.made_up_steps import LEAVING, USUAL, disturbed, quiet, series, steps_of
from tests.conftest import case

TWO = Series((0.0, 0.0), ((1.0, 3.0), (2.0, 2.5)), ((2.5, 4.0), (2.25, 4.5)))
"""Rank 1 comes second to the first step, rank 0 to the second one."""


def test_arrivals_tell_who_made_whom_wait() -> None:
    """On one clock, step by step; a step lasts from the last leaving to the last leaving."""
    steps = Steps.of([TWO])
    assert steps.late.tolist() == [[-1.0, 0.5], [1.0, -0.5]]
    assert steps.waited.tolist() == [[1.0, 0.0], [0.0, 0.5]]
    assert steps.last.tolist() == [1, 0]
    assert steps.seconds.tolist() == [2.5, 2.0]
    assert steps.computing.tolist() == [[1.0, 0.5], [2.0, 0.25]]
    assert steps.last_share(1) == 0.5
    assert steps.cost(1) == 1.0 / 4.5
    assert steps.cost(0) == 0.5 / 4.5


def test_series_follow_each_other_without_what_was_between_them() -> None:
    """Their steps count from their own starts."""
    steps = Steps.of([TWO, TWO])
    assert steps.slices == (slice(0, 2), slice(2, 4))
    assert steps.seconds.tolist() == [2.5, 2.0] * 2
    assert (steps.count, steps.ranks) == (4, 2)


def test_a_rank_is_held_against_the_median_of_the_others() -> None:
    """Whatever their number, and whatever is equal; alone it is late for nobody."""
    generator = np.random.default_rng(1)
    for ranks in (2, 3, 4, 5, 8):
        moments = generator.integers(0, 4, (ranks, 50)).astype(float)
        expected = [moments[rank] - np.median(np.delete(moments, rank, axis=0), axis=0) for rank in range(ranks)]
        np.testing.assert_allclose(behind_others(moments), expected)
    assert behind_others(np.ones((1, 3))).tolist() == [[0.0] * 3]


def test_parts_are_about_as_long_as_wanted() -> None:
    """And leave nothing out."""
    assert list(parts_of(slice(10, 20), 3)) == [slice(10, 13), slice(13, 16), slice(16, 20)]
    assert list(parts_of(slice(0, 2), 5)) == [slice(0, 2)]


@pytest.mark.parametrize("factor", [1.2, 1.5])
def test_a_slow_rank_is_named_among_disturbed_ones(factor: float) -> None:
    """In nearly every run, and nobody but it."""
    named = 0
    for seed in range(20):
        computing = disturbed(np.random.default_rng((7, seed)), 2, 4000, share=0.2)
        computing[1] *= factor
        found = verdict([steps_of(part) for part in np.array_split(computing, 2, axis=1)])
        assert found.ranks(Finding.LATE) in ([1], [])
        named += found.ranks(Finding.LATE) == [1]
    assert named >= 19


def test_nobody_is_named_where_all_are_disturbed_alike() -> None:
    """However much, and although each disturbance lasts for tens of steps: in a hundred runs, one at the very most."""
    accused = 0
    for seed in range(100):
        share = (0.1, 0.4, 0.7)[seed % 3]
        computing = disturbed(np.random.default_rng((11, seed)), 2 + 2 * (seed % 2), 3000, share)
        accused += verdict([steps_of(computing)]).finding in (Finding.LATE, Finding.OFTEN)
    assert accused <= 100 * DOUBT


def test_quiet_ranks_are_cleared() -> None:
    """All of them, since it is known how late they are."""
    found = verdict([steps_of(quiet(np.random.default_rng(3), 4, 2000))])
    assert found.finding is Finding.CLEAR
    assert found.ranks(Finding.CLEAR) == [0, 1, 2, 3]


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_one_long_bad_stretch_accuses_nobody(share: float) -> None:
    """Hundreds of steps in a row are one event, even where they are more than half."""
    computing = quiet(np.random.default_rng(4), 2, 4000)
    computing[1, : int(share * 4000)] *= 2
    found = verdict([steps_of(computing)])
    assert not {Finding.LATE, Finding.OFTEN} & {one.finding for one in found.testimonies}
    assert found.testimonies[0].finding is Finding.CLEAR


def test_a_rank_that_one_implementation_lets_go_late_is_not_accused() -> None:
    """With the other, which computes the same, it is not late."""
    computing = quiet(np.random.default_rng(5), 2, 2000)
    held = steps_of(computing, late_to_leave=np.array([0.0, 0.2 * USUAL]))
    assert verdict([held]).ranks(Finding.LATE) == [1]
    assert verdict([held, steps_of(computing)]).ranks(Finding.LATE) == []


def test_a_few_steps_say_nothing() -> None:
    """Though the rank was late in all of them."""
    computing = quiet(np.random.default_rng(6), 2, 40)
    computing[1] *= 3
    found = verdict([steps_of(computing, parts=4)])
    assert found.finding is Finding.UNCLEAR
    assert found.testimonies[1].interval == (-math.inf, math.inf)


def test_a_rank_that_is_late_now_and_then_is_named_as_such() -> None:
    """One step in twenty takes it five times as long: in the median it is on time, and yet it costs a fifth."""
    generator = np.random.default_rng(21)
    computing = quiet(generator, 4, 4000)
    computing[2, generator.random(4000) < 0.05] *= 5
    found = verdict([steps_of(computing)])
    assert found.ranks(Finding.OFTEN) == [2]
    assert found.ranks(Finding.LATE) == []
    assert found.ranks(Finding.CLEAR) == [0, 1, 3]


def test_several_slow_ranks_are_all_named() -> None:
    """Among many that are not."""
    computing = quiet(np.random.default_rng(8), 16, 2000)
    computing[[3, 11]] *= 1.3
    assert verdict([steps_of(computing)]).ranks(Finding.LATE) == [3, 11]


def test_stretches_last_longer_than_what_disturbs() -> None:
    """50 ms at least, whatever a step takes, and no part of two series."""
    steps = steps_of(quiet(np.random.default_rng(9), 2, 1600))
    places = stretches(steps)
    assert [place.start for place in places[1:]] == [place.stop for place in places[:-1]]
    assert min(steps.seconds[place].sum() for place in places) > 0.03
    assert {place.start for place in places} >= {own.start for own in steps.slices}


def test_a_percentile_has_an_interval_that_covers_it_or_is_not_told() -> None:
    """As often as it says, of independent samples; p99.9 needs 3,688 of them."""
    generator = np.random.default_rng(2)
    true = -math.log(0.01)
    known = [tail(generator.exponential(1.0, 1000), 99) for _ in range(200)]
    assert sum(one is not None and one.low <= true <= one.high for one in known) >= 185
    assert tail(np.arange(3600.0), 99.9) is None
    assert tail(generator.permutation(np.arange(4000.0)), 99.9)
    assert tail(np.zeros(0), 50) is None


def test_long_steps_that_come_together_count_once() -> None:
    """So a percentile far out is not known from one bad moment."""
    samples = np.ones(4000)
    samples[1000:1060] = 9 + np.arange(60) / 60
    assert tail(samples, 99) is None
    assert remembered((samples > 1).astype(float)) > 30
    assert tail(np.random.default_rng(1).permutation(samples), 99)


def test_a_tick_is_found_with_its_period() -> None:
    """A tenth of a step longer every 20 ms, in series of a quarter of a second, beside other noise."""
    generator = np.random.default_rng(10)
    computing = quiet(generator, 2, 4000)
    when = np.cumsum(computing.max(axis=0) + LEAVING)
    computing[0, np.flatnonzero(np.diff(when // 0.02) > 0)] *= 1.1
    found = noise.period(steps_of(computing))
    assert found
    assert found.seconds == pytest.approx(0.02, rel=0.02)
    assert found.strength > found.chance


def test_noise_without_a_period_has_none() -> None:
    """Neither independent steps nor disturbances that last: at most one of 20 is taken for a period."""
    found = 0
    for seed in range(20):
        generator = np.random.default_rng((12, seed))
        computing = (quiet if seed % 2 else disturbed)(generator, 2, 2000)
        found += noise.period(steps_of(computing, parts=8)) is not None
    assert found <= 1
    assert noise.period(steps_of(quiet(np.random.default_rng(1), 2, 100), parts=10)) is None


def test_autocorrelation_says_for_how_long_steps_are_alike() -> None:
    """1 with itself, what an autoregressive process has with the next, and unknown without any variation."""
    generator = np.random.default_rng(13)
    values = np.zeros(4000)
    for place, shock in enumerate(generator.standard_normal(3999), 1):
        values[place] = 0.6 * values[place - 1] + shock
    computing = np.tile(USUAL * (1 + 0.01 * values), (2, 1))
    first, second, third = noise.autocorrelation(steps_of(computing, parts=4), 2)
    assert (first, second, third) == (1.0, pytest.approx(0.6, abs=0.06), pytest.approx(0.36, abs=0.08))
    alike = Steps.of([Series((0.0, 0.0), ((1.0, 3.0), (1.0, 3.0)), ((2.0, 4.0), (2.0, 4.0)))])
    assert math.isnan(noise.autocorrelation(alike, 1)[1])


def test_the_slowest_of_many_is_predicted_from_a_few() -> None:
    """Heavy tails and all: what a few ranks showed holds for 64, 512, with the interval that is told."""
    generator = np.random.default_rng(14)

    def drawn(ranks: int, steps: int) -> np.ndarray:  # type: ignore[type-arg]
        return USUAL * (1 + 0.05 * generator.pareto(2.5, (ranks, steps)))

    covered = 0
    for ranks in (8, 64, 512):
        measured = float(drawn(ranks, 4000).max(axis=0).mean())
        for _ in range(10):
            one = expected_maximum(drawn(4, 4000), ranks)
            assert not one.at_least
            covered += one.low <= measured <= one.high
    assert covered >= 24


def test_a_normal_would_promise_too_little() -> None:
    """Which is why none is assumed."""
    samples = USUAL * (1 + 0.05 * np.random.default_rng(15).pareto(2.5, (4, 4000)))
    blom = samples.mean() + samples.std() * 3.04  # of 512 (G. Blom, 1958)
    assert expected_maximum(samples, 512).value - USUAL > 1.5 * (blom - USUAL)


def test_the_expectation_is_exact_for_what_is_drawn() -> None:
    """One draw is the mean, two of the numbers 1 to 4 have 3.125; equal samples have no other maximum."""
    assert expected_maximum(np.arange(1.0, 5.0), 1).value == pytest.approx(2.5)
    assert expected_maximum(np.arange(1.0, 5.0), 2).value == pytest.approx(3.125)
    assert expected_maximum(np.full(100, 2.0), 9) == expected_maximum(np.full(100, 2.0), 9)
    assert expected_maximum(np.full(100, 2.0), 9).high == pytest.approx(2.0)


def test_what_lies_beyond_the_samples_is_a_lower_bound() -> None:
    """With a third as many draws as samples, the largest decides."""
    samples = np.random.default_rng(16).exponential(1.0, 900)
    assert not expected_maximum(samples, 300).at_least
    assert expected_maximum(samples, 301).at_least


def test_stretches_that_are_alike_widen_the_interval() -> None:
    """As many samples in long stretches tell less."""
    generator = np.random.default_rng(17)
    alone = generator.exponential(1.0, 4000)
    together = np.repeat(generator.exponential(1.0, 40), 100)
    wide, narrow = (expected_maximum(samples, 8) for samples in (together, alone))
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


@pytest.mark.parametrize("paced", [False, True])
def test_nobody_is_accused_where_the_host_made_the_ranks_wait(paced: bool) -> None:
    """Whoever it serves last is late, in every step; rows of which that is not so still say who is."""
    computing = quiet(np.random.default_rng(3), 2, 800)
    computing[1] *= 1.5
    steps = tuple(series(part) for part in np.array_split(computing, 16, axis=1))
    asked = case(step=Step(20, 64))
    row = StepTimes(case=asked, implementation="nccl", platform="gpu", series=steps, note=Note(paced=paced))
    (said,) = verdicts([row])
    assert said.startswith("inconclusive: the GPUs waited for the host" if paced else "rank 1 is late: last in 100%")
    sure = replace(row, implementation="two-shot", note=Note())
    assert verdicts([row, sure])[0].startswith("rank 1 is late")
