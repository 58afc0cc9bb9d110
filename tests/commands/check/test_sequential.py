"""The sequential test: what it decides, how sure it must be, and how often it is wrong."""

import math
import random
from dataclasses import replace
from itertools import chain

import pytest

from collbench.analysis.judgement import Word
from collbench.analysis.sequential import FEWEST, SequentialTest, deviations, median_variance, usual_slower
from collbench.commands.check.expectations import expect_run
from collbench.commands.check.judge import judge_rounds
from collbench.commands.check.library import OF_A_BASELINE, SURE
from collbench.results import Measurement
from tests.conftest import measurement

TEST = SequentialTest(slower=0.1)


def test_a_size_is_slow_or_as_expected_once_its_median_is_known_well_enough() -> None:
    sure, unsure = 0.01**2, 0.2**2
    expected = {
        (0.0, sure): Word.OK,
        (-0.5, sure): Word.OK,
        (math.log(1.1), sure): Word.SLOW,
        (math.log(2.0), sure): Word.SLOW,
        (math.log1p(0.1) / 2, sure): Word.UNKNOWN,
        (0.0, unsure): Word.UNKNOWN,
        (math.log(1.1), unsure): Word.UNKNOWN,
    }
    for (centre, variance), decision in expected.items():
        assert TEST.decide(centre, variance) is decision, (centre, variance)


def test_more_sizes_make_it_harder_to_call_any_of_them_slow() -> None:
    centre, variance = math.log(1.1), 0.031**2
    assert TEST.decide(centre, variance) is Word.SLOW
    assert SequentialTest(slower=0.1, sizes=100).decide(centre, variance) is Word.UNKNOWN


def test_an_expectation_with_an_error_tells_what_is_beyond_its_resolution_only() -> None:
    error = 0.4
    resolution = TEST.resolution(error)
    assert 2.5 < math.exp(resolution) < 6
    assert TEST.decide(math.log(1.05), 0.0, error) is Word.OK
    assert TEST.decide(1.01 * resolution, 1e-6, error) is Word.SLOW
    assert TEST.decide(resolution / 2, 1e-6, error) is Word.UNKNOWN


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


SMALL, LARGE = "small", "large"
SIZES = {8 * 8**power: SMALL if power < 5 else LARGE for power in range(9)}
# By regime: what a start does to all sizes, to each of them, and how often and by how much a size takes longer.
# Fitted to repeats of published sweeps of a GPU node, of several nodes, and of two cores.
NOISE = {
    "gpu": ({SMALL: (0.006, 0.0065, 0.025, 0.07), LARGE: (0.0015, 0.0009, 0.006, 0.10)}, 0.01, 8),
    "nodes": ({SMALL: (0.03, 0.007, 0.11, 0.28), LARGE: (0.003, 0.0015, 0.04, 0.12)}, 0.01, 8),
    "cpu": ({SMALL: (0.01, 0.04, 0.05, 0.10), LARGE: (0.02, 0.06, 0.05, 0.10)}, 0.02, 30),
}


def drawn(machine: str, slower: dict[str, float], rounds: int, draw: random.Random) -> list[list[Measurement]]:
    """Rounds of one run; `slower` has by regime how many times as long operations take."""
    noise, day, _ = NOISE[machine]
    platform = "cpu" if machine == "cpu" else "gpu"
    days = {nbytes: draw.gauss(0, day) for nbytes in SIZES}
    run = []
    for _ in range(rounds):
        shared = {regime: draw.gauss(0, start) for regime, (start, *_) in noise.items()}
        rows = []
        for nbytes, regime in SIZES.items():
            _, core, often, longer = noise[regime]
            log = days[nbytes] + shared[regime] + draw.gauss(0, core)
            if draw.random() < often:
                log += draw.expovariate(1 / longer)
            seconds = (1e-6 + nbytes / 1e11) * slower.get(regime, 1.0) * math.exp(log)
            rows.append(replace(measurement("nccl", nbytes=nbytes, seconds=(seconds,)), platform=platform))
        run.append(rows)
    return run


def checked(machine: str, slower: dict[str, float], draw: random.Random) -> Word:
    """The verdict of a check, which goes on until it is sure, against an earlier run of the same machine."""
    most = NOISE[machine][2]
    test = SequentialTest(usual_slower("cpu" if machine == "cpu" else "gpu"))
    expectation = expect_run("", chain(*drawn(machine, {}, min(OF_A_BASELINE, most), draw)))
    run = drawn(machine, slower, most, draw)
    for count in range(FEWEST, most + 1):
        curve = judge_rounds(chain(*run[:count]), expectation, test)[0]
        undecided = any(size.word is Word.UNKNOWN for size in curve.sizes)
        if count >= SURE if curve.word is Word.SLOW else not undecided:
            break
    return curve.word


def test_checks_with_the_noise_of_published_repeats_are_hardly_ever_wrong() -> None:
    for machine in NOISE:
        draw = random.Random(1)
        assert [checked(machine, {}, draw) for _ in range(20)].count(Word.SLOW) <= 1, machine
        assert {checked(machine, {SMALL: 1.3, LARGE: 1.3}, draw) for _ in range(5)} == {Word.SLOW}, machine
        assert Word.OK not in {checked(machine, {LARGE: 1.2}, draw) for _ in range(10)}, machine
