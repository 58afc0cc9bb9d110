"""Who is late, what that costs, what the noise is like and what more ranks would pay, of steps that are made up."""

import math
import re
from dataclasses import replace

import numpy as np

from collbench.commands.step.rows import Series, StepTimes
from collbench.commands.step.section import STRAGGLERS
from collbench.commands.step.stragglers import (
    Finding,
    Floats,
    StepArrays,
    after_others,
    late_in_scaling,
    split,
    straggler_test,
    stretches,
    verdicts,
)
from collbench.commands.step.work import Step
from collbench.results import Note
from tests.commands.step.made_up_steps import LATER, USUAL, disturbed, late, quiet, ranks_that_are, series, steps_of
from tests.conftest import case

TWO = Series((0.0, 0.0), ((1.0, 3.0), (2.0, 2.5)), ((2.5, 4.0), (2.25, 4.5)))
"""Rank 1 comes second to the first step, rank 0 to the second one."""


def test_arrivals_tell_who_made_whom_wait() -> None:
    steps = StepArrays.of([TWO])
    assert steps.late.tolist() == [[-1.0, 0.5], [1.0, -0.5]]
    assert steps.waited.tolist() == [[1.0, 0.0], [0.0, 0.5]]
    assert steps.last.tolist() == [1, 0]
    assert steps.seconds.tolist() == [2.5, 2.0]
    assert steps.computing.tolist() == [[1.0, 0.5], [2.0, 0.25]]
    assert steps.last_share(1) == 0.5
    assert steps.cost(1) == 1.0 / 4.5
    assert steps.cost(0) == 0.5 / 4.5
    steps = StepArrays.of([TWO, TWO])  # whose steps count from their own starts
    assert steps.slices == (slice(0, 2), slice(2, 4))
    assert steps.seconds.tolist() == [2.5, 2.0] * 2
    assert (steps.count, steps.ranks) == (4, 2)
    generator = np.random.default_rng(1)
    for ranks in (2, 3, 4, 5, 8):
        moments = generator.integers(0, 4, (ranks, 50)).astype(float)
        expected = [moments[rank] - np.median(np.delete(moments, rank, axis=0), axis=0) for rank in range(ranks)]
        np.testing.assert_allclose(after_others(moments), expected)


def test_parts_and_stretches_leave_nothing_out() -> None:
    assert list(split(slice(10, 20), 3)) == [slice(10, 13), slice(13, 16), slice(16, 20)]
    assert list(split(slice(0, 2), 5)) == [slice(0, 2)]
    steps = steps_of(quiet(np.random.default_rng(9), 2, 1600))
    places = stretches(steps)
    assert [place.start for place in places[1:]] == [place.stop for place in places[:-1]]
    assert min(steps.seconds[place].sum() for place in places) > 0.03
    assert {place.start for place in places} >= {own.start for own in steps.slices}


def test_a_slow_rank_is_named_among_disturbed_ones_and_nobody_but_it() -> None:
    for factor in (1.2, 1.5):
        named = 0
        for seed in range(8):
            computing = disturbed(np.random.default_rng((7, seed)), 2, 4000, share=0.2)
            computing[1] *= factor
            found = straggler_test([steps_of(part) for part in np.array_split(computing, 2, axis=1)])
            assert ranks_that_are(Finding.LATE, found) in ([1], []), (factor, seed)
            named += ranks_that_are(Finding.LATE, found) == [1]
        assert named >= 7, factor


def test_nobody_is_named_where_all_are_disturbed_alike_or_one_long_stretch_is_bad() -> None:
    for seed in range(12):
        share = (0.1, 0.4, 0.7)[seed % 3]
        computing = disturbed(np.random.default_rng((11, seed)), 2 + 2 * (seed % 2), 3000, share)
        found = straggler_test([steps_of(computing)])
        assert not {Finding.LATE, Finding.OFTEN} & {one.finding for one in found}, seed
    for share in (0.3, 0.6):
        computing = quiet(np.random.default_rng(4), 2, 4000)
        computing[1, : int(share * 4000)] *= 2
        found = straggler_test([steps_of(computing)])
        assert not {Finding.LATE, Finding.OFTEN} & {one.finding for one in found}, share
        assert found[0].finding is Finding.CLEAR, share


def test_quiet_ranks_are_cleared_and_all_that_are_slow_are_named() -> None:
    found = straggler_test([steps_of(quiet(np.random.default_rng(3), 4, 2000))])
    assert ranks_that_are(Finding.CLEAR, found) == [0, 1, 2, 3]
    computing = quiet(np.random.default_rng(8), 16, 2000)
    computing[[3, 11]] *= 1.3
    assert ranks_that_are(Finding.LATE, straggler_test([steps_of(computing)])) == [3, 11]
    generator = np.random.default_rng(21)
    computing = quiet(generator, 4, 4000)
    computing[2, generator.random(4000) < 0.05] *= 5
    found = straggler_test([steps_of(computing)])
    assert ranks_that_are(Finding.OFTEN, found) == [2]
    assert ranks_that_are(Finding.LATE, found) == []
    assert ranks_that_are(Finding.CLEAR, found) == [0, 1, 3]


def test_nobody_is_accused_of_what_one_implementation_does_or_of_a_few_steps() -> None:
    computing = quiet(np.random.default_rng(5), 2, 2000)
    held = steps_of(computing, late_to_leave=np.array([0.0, 0.2 * USUAL]))
    assert ranks_that_are(Finding.LATE, straggler_test([held])) == [1]
    assert ranks_that_are(Finding.LATE, straggler_test([held, steps_of(computing)])) == []
    computing = quiet(np.random.default_rng(6), 2, 40)
    computing[1] *= 3
    found = straggler_test([steps_of(computing, parts=4)])
    assert ranks_that_are(Finding.UNCLEAR, found) == [0, 1]
    assert found[1].late.interval == (-math.inf, math.inf)


def scaled_row(computing: Floats, name: str = "mpi") -> StepTimes:
    """Series of a step in eight rounds, as those of several numbers of ranks that take turns."""
    ranks, steps = computing.shape
    rounds = tuple(map(len, np.array_split(range(steps), 8)))
    own = tuple(series(step) for step in np.split(computing, steps, axis=1))
    return StepTimes(case(ranks=ranks, work=Step(20, 64, mode="weak")), name, "cpu", own, rounds=rounds)


def test_a_scaling_names_who_is_late_where_that_is_sure_and_nobody_of_few_steps_or_after_a_late_start() -> None:
    for seed in range(20):
        computing = disturbed(np.random.default_rng((5, seed)), 2, 1200).reshape(2, 100, 12).sum(axis=2)
        assert late_in_scaling([scaled_row(computing)]) == [""], seed
    computing = quiet(np.random.default_rng(6), 2, 100) * 12
    even = scaled_row(computing, "auto")
    computing[1] *= 1.5
    slow = scaled_row(computing)
    first, second = late_in_scaling([slow, replace(slow, implementation="ring")])
    assert first.startswith("rank 1 is late: last in 100% of the steps")
    assert first == second
    assert late_in_scaling([slow, even]) == ["", ""], "all curves accuse together"
    assert late_in_scaling([scaled_row(5 * computing[:, :16])]) == [""], "sixteen stretches are too few"
    assert late_in_scaling([LATER]) == [""]
    begun = tuple(
        replace(one, begun=(0.0, 0.5), computed=(one.computed[0], (one.computed[1][0] + 0.5,)), done=((1.0,), (1.0,)))
        for one in even.series
    )
    assert late_in_scaling([replace(even, series=begun)]) == [""], "who leaves the meeting late computes no longer"


def test_nobody_is_accused_where_the_host_made_the_ranks_wait() -> None:
    computing = quiet(np.random.default_rng(3), 2, 800)
    computing[1] *= 1.5
    steps = tuple(series(part) for part in np.array_split(computing, 16, axis=1))
    row = StepTimes(case=case(work=Step(20, 64)), implementation="nccl", platform="gpu", series=steps)
    paced, sure = replace(row, note=Note(paced=True)), replace(row, implementation="two-shot")
    assert verdicts([row])[0].startswith("rank 1 is late: last in 100%")
    assert verdicts([paced])[0].startswith("inconclusive: the GPUs waited for the host")
    assert verdicts([paced, sure])[0].startswith("rank 1 is late")


def test_where_nobody_is_late_the_latest_is_named_without_blame() -> None:
    computing = quiet(np.random.default_rng(3), 4, 2000)
    computing[2] *= 1.002
    steps = tuple(series(part) for part in np.array_split(computing, 16, axis=1))
    row = StepTimes(case=case(ranks=4, work=Step(20, 64)), implementation="nccl", platform="gpu", series=steps)
    (line,) = verdicts([row])
    arrays = StepArrays.of(steps)
    latest = max(range(4), key=arrays.last_share)
    assert re.fullmatch(rf"no straggler; rank {latest} is last most often, by \d+\.\d% of a step", line)


def test_sections_name_the_late_rank() -> None:
    said = "\n".join(STRAGGLERS.conclusion(late(ranks=2)[:1]))
    assert re.search(r"^ +1 +\d+% +[\d.]+% \(.*%\) ", said, re.MULTILINE), "how late the rank is, as a share of a step"


def test_lateness_is_a_share_of_a_step() -> None:
    computing = quiet(np.random.default_rng(3), 2, 800)
    computing[1] *= 1.5
    row, slow = (
        StepTimes(
            case=case(work=Step(20, 64)),
            implementation=f"{scale}",
            platform="cpu",
            series=tuple(series(part) for part in np.array_split(scale * computing, 16, axis=1)),
        )
        for scale in (1, 10)
    )
    (line,) = verdicts([row, slow])
    assert re.search(r", by (29|3\d)\.\d% \(.* of a step; ", line), line
