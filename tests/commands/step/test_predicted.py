"""Predicted steps: parts that add up, overlap between its bounds, and more ranks that take longer."""

from itertools import pairwise

import pytest

from collbench.commands.step.predicted import step_time
from collbench.commands.step.rows import StepPrediction
from collbench.commands.step.work import Step
from collbench.model.predict import network_curve, on_ranks
from collbench.topology.files import load
from tests.conftest import case

H100 = load("dgx-h100")
GIB = 2**30


def step(ranks: int, schedule: str = "sequential", seconds: float = 0.1, bucket: int = 0) -> StepPrediction:
    plan = Step(0, 0, schedule, bucket, (), seconds)
    return step_time(H100, case(nbytes=GIB, ranks=ranks, work=plan), "nccl")


def test_one_after_the_other_adds_up_and_a_rank_alone_only_computes() -> None:
    one = step(64)
    alone = network_curve(on_ranks(H100, 64), [case(nbytes=GIB, ranks=64)], "nccl")[0]
    assert one.parts == pytest.approx((0.1, one.parts[1], alone.seconds))
    assert one.typical == sum(one.parts)
    assert one.band[0] < one.typical < one.band[1]
    assert step(1).parts == (0.1, 0.0, 0.0)


def test_overlap_is_never_below_the_longer_part_nor_above_both() -> None:
    for ranks in (8, 64, 1024):
        longer = max(step(ranks, "compute").typical, step(ranks, "communicate").typical)
        for part in (1, 4, 16):
            own = step(ranks, "stream", bucket=GIB // part)
            assert own.typical - own.parts[1] >= longer, (ranks, part)
        assert step(ranks, "stream", bucket=GIB // 8).typical < step(ranks).typical, ranks
    whole = step(64, "stream")  # a bucket goes out when all is computed, so nothing slows computing
    assert whole.parts[0] == 0.1
    assert step(64, "stream", bucket=GIB // 2).parts[0] > 0.1
    bucket = GIB // 8
    own = step(64, "stream", seconds=1e-6, bucket=bucket)
    alone = network_curve(on_ranks(H100, 64), [case(nbytes=bucket, ranks=64)], "nccl")[0].seconds
    assert own.typical == pytest.approx(8 * alone, rel=1e-3)


def test_steps_of_more_ranks_take_longer() -> None:
    times = [step(8 * 2**doubling).typical for doubling in range(14)]
    # Within a hundredth: where more nodes make NCCL change to a better algorithm, the step may gain.
    assert all(later > 0.99 * earlier for earlier, later in pairwise(times))
    assert times[-1] > times[0]
