"""What a step is: work by rank and by bucket, and the words for it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.cases import BUCKET_UNIT, Case
from collbench.steps import Step, flops_of
from tests.conftest import case

STEP = Step(products=10, size=64)


@given(st.integers(0, 1000), st.integers(1, 50), st.floats(1, 8))
def test_the_parts_of_a_step_are_all_of_its_products(products: int, parts: int, factor: float) -> None:
    """None differs by more than one from another, also on a rank that is slow."""
    step = Step(products, 64, slow=((1, factor),))
    for rank in (0, 1):
        shares = list(step.shares(parts, rank))
        assert len(shares) == parts
        assert sum(shares) == step.products_of(rank)
        assert max(shares) - min(shares) <= 1
    assert step.products_of(1) == round(products * factor)


@given(st.integers(1, 40_000), st.integers(0, 50_000))
def test_buckets_are_the_whole_array_piece_by_piece(elements: int, bucket: int) -> None:
    """One behind the other, aligned, none empty."""
    whole = case(nbytes=4 * elements, step=replace(STEP, bucket=bucket))
    end = 0
    for start, part in whole.buckets():
        assert start == end
        assert start % BUCKET_UNIT == 0
        assert part.nbytes > 0
        assert part == replace(whole, step=None, nbytes=part.nbytes)
        end = start + part.nbytes
    assert end == whole.nbytes


def test_what_is_one_block_for_every_rank_is_not_cut() -> None:
    """An all-gather's buffers start at other places than its pieces would."""
    whole = case("allgather", 4096, step=replace(STEP, bucket=128))
    assert whole.buckets() == [(0, replace(whole, step=None))]


def titles() -> Iterator[tuple[Step | None, str]]:
    """Steps, and what the title of their case ends with."""
    yield None, "2 ranks"
    yield STEP, "10 products of 64 x 64, sequential"
    yield Step(1, 64), "1 product of 64 x 64, sequential"
    yield replace(STEP, bucket=4096, schedule="thread"), "thread, buckets of 4 KiB"
    yield replace(STEP, slow=((1, 1.5),)), "rank 1 1.5 times as slow"
    yield Step(0, 0, seconds=0.1), "100 ms of computing, sequential"


@pytest.mark.parametrize(("step", "end"), list(titles()))
def test_a_title_says_what_is_computed_and_how(step: Step | None, end: str) -> None:
    """And nothing more than that of a collective where there is no step."""
    assert case(step=step).title.endswith(end)


def test_cases_of_different_steps_are_of_different_kinds() -> None:
    """Or they would be drawn as one curve."""
    kinds = {one.kind for one in (case(), case(step=STEP), case(step=replace(STEP, products=11)))}
    assert len(kinds) == 3
    alike: set[Case] = {case(step=replace(STEP, schedule=name)).kind_of_step for name in ("compute", "sequential")}
    assert len(alike) == 1


def test_a_product_multiplies_and_adds_once_for_each_of_its_terms() -> None:
    """2 n^3."""
    assert flops_of(3, 100) == 6e6
    assert STEP.flops == 10 * 2 * 64**3
