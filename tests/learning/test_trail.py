"""What ranks did to weights is held against what they must be: every mistake that a style can make is found."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from collbench.flaws import Unlearned
from collbench.jobs import Job
from collbench.learning.data import Data, lessons
from collbench.learning.network import gradient
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


def flaw(trails: list[list[Kept]], behind: int = 0) -> Unlearned | None:
    """As a run finds it."""
    every = [(rank, kept) for rank, trail in enumerate(trails) for kept in trail]
    counted = miscounted(JOB, RANKS, shared(trails), behind)
    return counted or first_flaw(JOB, every, known_weights(JOB, trails))


def test_what_is_right_has_no_flaw() -> None:
    """Every update of every rank."""
    assert flaw(synchronous()) is None


def lost(step: int, made: list[Weights], weights: list[Weights]) -> None:
    if step == 2:
        made[1][:] = 0


def doubled(step: int, made: list[Weights], weights: list[Weights]) -> None:
    if step == 2:
        made[1] *= 2


def one_element(step: int, made: list[Weights], weights: list[Weights]) -> None:
    if step == 2:
        made[0][5] *= 1.01


def another_batch(step: int, made: list[Weights], weights: list[Weights]) -> None:
    if step == 2:
        made[1][:] = learnt(weights[0], 1, 3)


def stale(step: int, made: list[Weights], weights: list[Weights]) -> None:
    if step == 2:
        made[1][:] = learnt(Data(JOB).first, 1, 2)


def forgotten(step: int, made: list[Weights], weights: list[Weights]) -> None:
    if step == 2:
        weights[0] = Data(JOB).first


def not_a_number(step: int, made: list[Weights], weights: list[Weights]) -> None:
    if step == 2:
        made[0][3] = np.nan


@pytest.mark.parametrize("change", [lost, doubled, one_element, another_batch, stale, forgotten, not_a_number])
def test_a_wrong_update_is_found_where_it_is(change: Change) -> None:
    """The third one, by rank 0, and nothing before it."""
    found = flaw(synchronous(change))
    assert found
    assert (found.rank, found.update) == (0, "6")
    assert "rank 0, update 6" in str(found)


def test_a_rank_that_holds_other_weights_is_found() -> None:
    """By one bit."""
    trails = synchronous()
    trails[1][1].weights[0] = np.nextafter(trails[1][1].weights[0], np.float32(9))
    found = flaw(trails)
    assert found
    assert (found.rank, found.update, found.wrong) == (1, "(1, 2)", 1)


def test_a_wrong_average_is_found() -> None:
    """Of two ranks' weights, one counted twice."""
    one, other = Data(JOB).first, Data(replace(JOB, seed=2)).first
    known = {(0, 1): one, (1, 1): other}
    mean = np.float32(0.5) * (one + other)
    origin = Averaged(((0, 1), (1, 1)))
    assert first_flaw(JOB, [(0, Kept(2, 0.0, mean, origin))], known) is None
    found = first_flaw(JOB, [(0, Kept(2, 0.0, one, origin))], known)
    assert found
    assert found.wrong > JOB.weights / 2


def test_updates_that_are_missing_twice_or_out_of_order_are_found() -> None:
    """Although each of those that are there is right by itself."""
    whole = shared(synchronous())
    assert "instead of 8" in str(miscounted(JOB, RANKS, whole[:3], 0))
    assert "step 3 of rank 0 after 1 steps of it" in str(miscounted(JOB, RANKS, [whole[0], *whole[2:]], 0))
    assert "step 1 of rank 0 after 1 steps of it" in str(miscounted(JOB, RANKS, [whole[0], *whole], 0))


def test_weights_that_nobody_has_are_named() -> None:
    """An update that says it was made of some."""
    kept = Kept(2, 0.0, Data(JOB).first, Averaged(((0, 1), (1, 1))))
    assert "which nobody has" in str(first_flaw(JOB, [(0, kept)], {}))


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
