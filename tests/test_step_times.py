"""What follows from the moments of steps: lengths, and where their time goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.step_times import Series, StepTimes
from collbench.steps import Step
from tests.conftest import case

LATE = Series(begun=(0.0, 0.5), computed=((2.0, 6.0), (3.0, 8.0)), done=((4.0, 9.0), (5.0, 9.5)))
"""Rank 1 computes last in both steps, a second and two after rank 0."""


def steps(*series: Series, **changes: object) -> StepTimes:
    """A row of these."""
    return StepTimes(case(step=Step(1, 8)), "mpi", "cpu", series=series, **changes)  # type: ignore[arg-type]


def test_a_step_lasts_until_the_last_rank_is_done() -> None:
    """From the first moment of the first rank, over the number of steps."""
    assert LATE.seconds == (9.5 - 0.0) / 2


def test_a_rank_begins_a_step_when_it_is_done_with_the_one_before() -> None:
    """And the first when the series begins."""
    assert LATE.begins(0) == (0.0, 4.0)
    assert LATE.begins(1) == (0.5, 5.0)


def test_who_has_computed_waits_for_whoever_has_not() -> None:
    """What is communicated after that is exposed."""
    assert LATE.computing(0) == pytest.approx((2 + 2) / 2)
    assert LATE.waiting(0) == pytest.approx((1 + 2) / 2)
    assert LATE.exposed(0) == pytest.approx((1 + 1) / 2)
    assert LATE.computing(1) == pytest.approx((2.5 + 3) / 2)
    assert LATE.waiting(1) == pytest.approx(0.0)
    assert LATE.exposed(1) == pytest.approx((2 + 1.5) / 2)


MOMENTS = st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=20)


@given(MOMENTS)
def test_the_parts_of_a_ranks_steps_are_all_of_its_time(lengths: list[tuple[float, ...]]) -> None:
    """However ranks come and go."""
    computed: list[list[float]] = [[], []]
    done: list[list[float]] = [[], []]
    for step in lengths:
        for rank in (0, 1):
            before = done[rank][-1] if done[rank] else 0.0
            computed[rank].append(before + step[2 * rank])
            done[rank].append(computed[rank][-1] + step[2 * rank + 1])
    series = Series((0.0, 0.0), *(tuple(map(tuple, moments)) for moments in (computed, done)))
    for rank in (0, 1):
        parts = series.computing(rank) + series.waiting(rank) + series.exposed(rank)
        assert parts == pytest.approx(done[rank][-1] / len(lengths))
        assert series.waiting(rank) >= -1e-12


def test_a_row_has_a_sample_for_every_series() -> None:
    """And as many launches as a series has steps."""
    row = steps(LATE, LATE)
    assert row.times == (4.75, 4.75)
    assert row.launches == 2
    assert row.right
    assert not steps(mismatch=None).right


def test_rounds_are_joined_in_order() -> None:
    """With how many series each had."""
    short = Series((0.0, 0.0), ((1.0,), (1.0,)), ((2.0,), (2.0,)))
    joined = steps(short).joined([steps(LATE, LATE), steps(short)])
    assert joined.series == (LATE, LATE, short)
    assert joined.rounds == (2, 1)
