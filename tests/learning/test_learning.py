"""Gradients are those of the loss within a bound that sees mistakes, and every wrong update of weights is found."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from collbench.cases import Job
from collbench.learning.data import Data, lessons
from collbench.learning.network import gradient, loss
from collbench.learning.rounding import bounded_gradient
from collbench.learning.trail import (
    Averaged,
    Copied,
    Kept,
    Part,
    Stepped,
    Weights,
    first_flaw,
    known_weights,
    miscounted,
    rate_of,
    shared,
)
from collbench.results import WeightMismatch

SMALL = Job(inputs=5, hidden=7, outputs=3, samples=24, batch=12)


def test_the_gradient_is_what_differences_of_the_loss_say() -> None:
    """In float64, weight by weight, by central differences."""
    draws = np.random.default_rng(4)
    weights = draws.normal(size=SMALL.weights)
    inputs, wanted = draws.normal(size=(12, 5)), draws.normal(size=(12, 3))
    told = np.empty_like(weights)
    gradient(SMALL, weights, inputs, wanted, told)
    for index in range(SMALL.weights):
        step = np.zeros(SMALL.weights)
        step[index] = 1e-6
        slope = (loss(SMALL, weights + step, inputs, wanted) - loss(SMALL, weights - step, inputs, wanted)) / 2e-6
        assert told[index] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_float32_stays_within_the_bound_also_when_its_products_come_in_another_order() -> None:
    for job, seed in ((SMALL, 1), (SMALL, 2), (Job(), 3), (Job(hidden=33, batch=100), 4)):
        for scale in (1, 100):
            weights = (scale * Data(replace(job, seed=seed)).first).astype(np.float32)
            inputs, wanted = lessons(replace(job, seed=seed), 0).batch(seed)
            exact, bound = bounded_gradient(job, weights, (inputs, wanted))
            for rows in (slice(None), slice(None, None, -1)):
                told = np.empty_like(weights)
                gradient(job, weights, inputs[rows], wanted[rows], told)
                assert (np.abs(told - exact) <= bound).all(), (job, scale)


def test_the_bound_is_far_below_what_a_lost_contribution_changes() -> None:
    """A tenth of the gradient of one sample of 192 in most weights; and one weight that is off by a thousandth."""
    job = Job()
    weights, (inputs, wanted) = Data(job).first, lessons(job, 0).batch(0)
    exact, bound = bounded_gradient(job, weights, (inputs, wanted))
    without = np.empty_like(weights)
    gradient(job, weights, inputs[1:], wanted[1:], without)
    assert (np.abs(without - exact) > bound).mean() > 0.9
    assert np.median(np.abs(exact) / bound) > 100


def test_data_are_the_same_everywhere_and_only_weights_and_order_are_of_the_seed() -> None:
    one, other = Data(SMALL), Data(replace(SMALL, seed=2))
    assert not np.array_equal(one.first, other.first)
    assert np.array_equal(one.held_out[0], other.held_out[0])
    assert not np.array_equal(one.of_rank(0)[0], one.of_rank(1)[0])
    batches = [np.concatenate([lessons(job, 0).batch(step)[0] for step in (0, 1)]) for job in (one.job, other.job)]
    assert not np.array_equal(*batches)
    assert np.array_equal(*(np.sort(batch.ravel()) for batch in batches))
    assert np.array_equal(lessons(SMALL, 0).batch(2)[0], lessons(SMALL, 0).batch(0)[0])


JOB = Job(inputs=6, hidden=12, outputs=3, samples=32, batch=16, steps=4)
RANKS = 2
Change = Callable[[int, list[Weights], list[Weights]], None]


def learnt(weights: Weights, rank: int, step: int) -> Weights:
    result = np.empty_like(weights)
    gradient(JOB, weights, *lessons(JOB, rank).batch(step), result)
    return result


def synchronous(change: Change = lambda step, made, weights: None) -> list[list[Kept]]:
    """Trails of two ranks that add all gradients after every step; `change` may spoil gradients and weights."""
    weights, trails = Data(JOB).first.copy(), [[], []]  # type: ignore[var-annotated]
    for step in range(JOB.steps):
        before = step * RANKS
        made, held = [learnt(weights, rank, step) for rank in range(RANKS)], [weights]
        change(step, made, held)
        weights = held[0] - rate_of(JOB, RANKS) * (made[0] + made[1])
        parts = tuple(Part(rank, step, before) for rank in range(RANKS))
        trails[0].append(Kept(before + RANKS, float(step), weights.copy(), Stepped(before, parts, RANKS)))
        trails[1].append(Kept((1, step + 1), float(step), weights.copy(), Copied(before + RANKS)))
    return trails


def flaw(trails: list[list[Kept]], behind: int = 0) -> WeightMismatch | None:
    """As a run finds it."""
    every = [(rank, kept) for rank, trail in enumerate(trails) for kept in trail]
    counted = miscounted(JOB, RANKS, shared(trails), behind)
    return counted or first_flaw(JOB, every, known_weights(JOB, trails))


def test_a_wrong_update_is_found_where_it_is_and_a_right_one_has_no_flaw() -> None:
    """The third one, by rank 0, and nothing before it."""
    assert flaw(synchronous()) is None

    def one_element(made: list[Weights], weights: list[Weights]) -> None:
        made[0][5] *= 1.01

    def not_a_number(made: list[Weights], weights: list[Weights]) -> None:
        made[0][3] = np.nan

    spoils: dict[str, Callable[[list[Weights], list[Weights]], None]] = {
        "a lost contribution": lambda made, weights: made[1].fill(0),
        "a doubled contribution": lambda made, weights: np.multiply(made[1], 2, out=made[1]),
        "one element": one_element,
        "not a number": not_a_number,
        "another batch": lambda made, weights: np.copyto(made[1], learnt(weights[0], 1, 3)),
        "stale weights": lambda made, weights: np.copyto(made[1], learnt(Data(JOB).first, 1, 2)),
        "forgotten weights": lambda made, weights: weights.__setitem__(0, Data(JOB).first),
    }
    for name, spoil in spoils.items():
        found = flaw(synchronous(lambda step, made, held, spoil=spoil: spoil(made, held) if step == 2 else None))  # type: ignore[misc]
        assert found, name
        assert (found.rank, found.update) == (0, "6"), name
        assert "rank 0, update 6" in str(found), name


def test_a_rank_that_holds_other_weights_by_one_bit_is_found() -> None:
    trails = synchronous()
    trails[1][1].weights[0] = np.nextafter(trails[1][1].weights[0], np.float32(9))
    found = flaw(trails)
    assert found
    assert (found.rank, found.update, found.wrong) == (1, "(1, 2)", 1)


def test_a_wrong_average_is_found_and_one_of_weights_that_nobody_has() -> None:
    one, other = Data(JOB).first, Data(replace(JOB, seed=2)).first
    known = {(0, 1): one, (1, 1): other}
    mean = np.float32(0.5) * (one + other)
    origin = Averaged(((0, 1), (1, 1)))
    assert first_flaw(JOB, [(0, Kept(2, 0.0, mean, origin))], known) is None
    found = first_flaw(JOB, [(0, Kept(2, 0.0, one, origin))], known)
    assert found
    assert found.wrong > JOB.weights / 2
    assert "which nobody has" in str(first_flaw(JOB, [(0, Kept(2, 0.0, mean, origin))], {}))


def test_updates_that_are_missing_twice_or_out_of_order_are_found() -> None:
    whole = shared(synchronous())
    assert "instead of 8" in str(miscounted(JOB, RANKS, whole[:3], 0))
    assert "step 3 of rank 0 after 1 steps of it" in str(miscounted(JOB, RANKS, [whole[0], *whole[2:]], 0))
    assert "step 1 of rank 0 after 1 steps of it" in str(miscounted(JOB, RANKS, [whole[0], *whole], 0))


def test_weights_that_are_too_old_are_found() -> None:
    """Rank 0 makes its second step on weights that lack rank 1's first: allowed one step behind, not none."""
    weights = Data(JOB).first
    order = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 2), (0, 2, 4), (1, 2, 4), (0, 3, 6), (1, 3, 6)]
    common = [
        Kept(place + 1, 0.0, weights, Stepped(place, (Part(rank, step, read),), RANKS))
        for place, (rank, step, read) in enumerate(order)
    ]
    assert miscounted(JOB, RANKS, common, 1) is None
    assert "rank 0 on weights that are too old" in str(miscounted(JOB, RANKS, common, 0))
