"""Predicted steps: parts that add up, buckets that follow each other, waits for the slowest."""

import time
from statistics import NormalDist, fmean

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.model.network.on_network import network_curve
from collbench.model.steps import on_ranks, slowest, step_time
from collbench.step_times import StepPrediction
from collbench.steps import Step
from collbench.topology import files
from tests.conftest import case

SYSTEM = files.load("dgx-h100")
GIB = 2**30


def step(
    ranks: int, schedule: str = "sequential", nbytes: int = GIB, seconds: float = 0.1, bucket: int = 0
) -> StepPrediction:
    """What a step takes there."""
    return step_time(SYSTEM, case(nbytes=nbytes, ranks=ranks, step=Step(0, 0, schedule, bucket, (), seconds)), "nccl")


def test_one_after_the_other_adds_up() -> None:
    """Computing, waiting for the slowest, and the collective as it is predicted alone."""
    one = step(64)
    alone = network_curve(on_ranks(SYSTEM, 64), [case(nbytes=GIB, ranks=64)], "nccl")[0]
    assert one.computing() == 0.1
    assert one.exposed() == pytest.approx(alone.seconds)
    assert one.typical == pytest.approx(0.1 + one.waiting() + alone.seconds)
    assert one.band[0] < one.typical < one.band[1]


def test_a_rank_alone_only_computes() -> None:
    """It waits for nobody."""
    assert step(1).parts == (0.1, 0.0, 0.0)


@pytest.mark.parametrize("ranks", [8, 64, 1024])
def test_overlap_is_never_below_the_longer_part_nor_above_both(ranks: int) -> None:
    """Whichever buckets, but for what computing takes longer meanwhile."""
    parts = step(ranks, "compute"), step(ranks, "communicate")
    for part in (1, 4, 16):
        own = step(ranks, "stream", bucket=GIB // part)
        assert own.typical - own.waiting() >= max(one.typical for one in parts)
    several = step(ranks, "stream", bucket=GIB // 8)
    assert several.typical < step(ranks).typical


def test_a_bucket_goes_out_once_it_is_computed_and_the_one_before_has_arrived() -> None:
    """Where communicating is the longer part, only the first bucket's computing is exposed."""
    bucket = GIB // 8
    own = step(64, "stream", seconds=1e-6, bucket=bucket)
    alone = network_curve(on_ranks(SYSTEM, 64), [case(nbytes=bucket, ranks=64)], "nccl")[0].seconds
    assert own.typical == pytest.approx(8 * alone, rel=1e-3)


def test_the_slowest_of_many_is_as_late_as_many_draws_say() -> None:
    """Blom's formula against normally distributed computing times."""
    draws = np.random.default_rng(1).normal(1.0, 0.05, (4000, 64)).max(axis=1)
    assert slowest(64, 0.05) == pytest.approx(fmean(draws) - 1, rel=0.02)
    assert slowest(1, 0.05) == 0
    assert slowest(4096, 0.01) == pytest.approx(0.01 * NormalDist().inv_cdf((4096 - 0.375) / 4096.25))


def test_ranks_that_fill_no_whole_nodes_are_refused_with_those_that_do() -> None:
    """In one line."""
    with pytest.raises(UsageError, match="give 8 or 16"):
        on_ranks(SYSTEM, 12)
    assert on_ranks(SYSTEM, 4).ranks == 4
    assert on_ranks(SYSTEM, 100_000).ranks == 100_000


def test_a_hundred_thousand_gpus_take_no_second() -> None:
    """Of processor time: a whole curve up to there."""
    step(8)
    begun = time.process_time()
    times = [step(8 * 2**doubling).typical for doubling in range(14)]
    assert time.process_time() - begun < 1
    assert times == sorted(times)
