"""What a step is, work by rank and by bucket, and what follows from its moments: lengths, and where time goes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.commands.step.rows import Series, StepTimes
from collbench.commands.step.work import BUCKET_UNIT, Step, buckets
from tests.commands.step.made_up_steps import LATE
from tests.conftest import case

STEP = Step(products=10, size=64)


def steps(*series: Series, **changes: object) -> StepTimes:
    return StepTimes(case(work=Step(1, 8)), "mpi", "cpu", series=series, **changes)  # type: ignore[arg-type]


def test_a_step_lasts_until_the_last_rank_is_done_and_its_time_is_of_three_parts() -> None:
    assert LATE.seconds == (9.5 - 0.0) / 2
    assert (LATE.begins(0), LATE.begins(1)) == ((0.0, 4.0), (0.5, 5.0))
    for rank, parts in {0: ((2 + 2) / 2, (1 + 2) / 2, (1 + 1) / 2), 1: ((2.5 + 3) / 2, 0.0, (2 + 1.5) / 2)}.items():
        assert LATE.parts(rank) == pytest.approx(parts), rank


MOMENTS = st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=20)


@settings(derandomize=True, max_examples=40)
@given(MOMENTS)
def test_the_parts_of_a_ranks_steps_are_all_of_its_time(lengths: list[tuple[float, ...]]) -> None:
    computed: list[list[float]] = [[], []]
    done: list[list[float]] = [[], []]
    for step in lengths:
        for rank in (0, 1):
            before = done[rank][-1] if done[rank] else 0.0
            computed[rank].append(before + step[2 * rank])
            done[rank].append(computed[rank][-1] + step[2 * rank + 1])
    series = Series((0.0, 0.0), *(tuple(map(tuple, moments)) for moments in (computed, done)))
    for rank in (0, 1):
        assert sum(series.parts(rank)) == pytest.approx(done[rank][-1] / len(lengths))
        assert series.parts(rank)[1] >= -1e-12


def test_a_row_has_a_sample_for_every_series_and_rounds_are_joined_in_order() -> None:
    row = steps(LATE, LATE)
    assert row.times == (4.75, 4.75)
    assert row.launches == 2
    assert row.right
    assert not steps(mismatch=None).right
    short = Series((0.0, 0.0), ((1.0,), (1.0,)), ((2.0,), (2.0,)))
    joined = steps(short).joined([row, steps(short)])
    assert joined.series == (LATE, LATE, short)
    assert joined.rounds == (2, 1)


@settings(derandomize=True, max_examples=40)
@given(st.integers(0, 1000), st.integers(1, 50), st.floats(1, 8))
def test_the_parts_of_a_step_are_all_of_its_products(products: int, parts: int, factor: float) -> None:
    step = Step(products, 64, slow=((1, factor),))
    for rank in (0, 1):
        shares = list(step.shares(parts, rank))
        assert len(shares) == parts
        assert sum(shares) == round(products * (factor if rank else 1))
        assert max(shares) - min(shares) <= 1


@settings(derandomize=True, max_examples=40)
@given(st.integers(1, 40_000), st.integers(0, 50_000))
def test_buckets_are_the_whole_array_piece_by_piece(elements: int, bucket: int) -> None:
    whole = case(nbytes=4 * elements, work=replace(STEP, bucket=bucket))
    end = 0
    for start, part in buckets(whole):
        assert start == end
        assert start % BUCKET_UNIT == 0
        assert part.nbytes > 0
        assert part == replace(whole, work=None, nbytes=part.nbytes)
        end = start + part.nbytes
    assert end == whole.nbytes


def test_what_is_one_block_for_every_rank_is_not_cut() -> None:
    whole = case("allgather", 4096, work=replace(STEP, bucket=128))
    assert buckets(whole) == [(0, replace(whole, work=None))]


def test_a_title_says_what_is_computed_and_how() -> None:
    titles: dict[str, Step | None] = {
        "2 ranks": None,
        "10 products of 64 x 64, sequential": STEP,
        "1 product of 64 x 64, sequential": Step(1, 64),
        "thread, buckets of 4 KiB": replace(STEP, bucket=4096, schedule="thread"),
        "rank 1 1.5 times as slow": replace(STEP, slow=((1, 1.5),)),
        "100 ms of computing, sequential": Step(0, 0, seconds=0.1),
    }
    for end, step in titles.items():
        assert case(work=step).title.endswith(end)
