"""The network's gradient is the derivative of its loss, and its rounding stays within a bound that sees mistakes."""

from dataclasses import replace

import numpy as np
import pytest

from collbench.jobs import Job
from collbench.learning.data import Data, lessons
from collbench.learning.network import gradient, loss, outputs, parts
from collbench.learning.rounding import bounded_gradient

JOB = Job(inputs=5, hidden=7, outputs=3, samples=24, batch=12)


def test_the_gradient_is_what_differences_of_the_loss_say() -> None:
    """In float64, weight by weight, by central differences."""
    draws = np.random.default_rng(4)
    weights = draws.normal(size=JOB.weights)
    inputs, wanted = draws.normal(size=(12, 5)), draws.normal(size=(12, 3))
    told = np.empty_like(weights)
    gradient(JOB, weights, inputs, wanted, told)
    for index in range(JOB.weights):
        step = np.zeros(JOB.weights)
        step[index] = 1e-6
        slope = (loss(JOB, weights + step, inputs, wanted) - loss(JOB, weights - step, inputs, wanted)) / 2e-6
        assert told[index] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_the_gradient_in_float64_is_the_one_that_bounds_come_with() -> None:
    """Computed in another order of operations."""
    weights = Data(JOB).first
    inputs, wanted = lessons(JOB, 1).batch(3)
    told = np.empty(JOB.weights)
    gradient(JOB, weights.astype(float), inputs.astype(float), wanted.astype(float), told)
    exact, _ = bounded_gradient(JOB, weights, (inputs, wanted))
    assert np.allclose(told, exact, rtol=1e-6, atol=1e-9)  # 1 / 12 is rounded to float32 in one of them


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("job", [JOB, Job(), Job(hidden=33, batch=100)], ids=["small", "default", "odd"])
def test_float32_stays_within_the_bound_also_when_its_products_come_in_another_order(job: Job, seed: int) -> None:
    """With weights as they are at first, and a hundred times as large; a reversed batch adds in another order."""
    for scale in (1, 100):
        weights = (scale * Data(replace(job, seed=seed)).first).astype(np.float32)
        inputs, wanted = lessons(replace(job, seed=seed), 0).batch(seed)
        exact, bound = bounded_gradient(job, weights, (inputs, wanted))
        for rows in (slice(None), slice(None, None, -1)):
            told = np.empty_like(weights)
            gradient(job, weights, inputs[rows], wanted[rows], told)
            assert (np.abs(told - exact) <= bound).all()


def test_the_bound_is_far_below_what_a_lost_contribution_changes() -> None:
    """A tenth of the gradient of one sample of 192 in most weights; and one weight that is off by a thousandth."""
    job = Job()
    weights, (inputs, wanted) = Data(job).first, lessons(job, 0).batch(0)
    exact, bound = bounded_gradient(job, weights, (inputs, wanted))
    without = np.empty_like(weights)
    gradient(job, weights, inputs[1:], wanted[1:], without)
    assert (np.abs(without - exact) > bound).mean() > 0.9
    assert np.median(np.abs(exact) / bound) > 100


def test_layers_are_views_of_the_flat_weights() -> None:
    """In order, all of them."""
    weights = np.arange(JOB.weights, dtype=np.float32)
    assert [part.shape for part in parts(JOB, weights)] == list(JOB.shapes)
    assert np.array_equal(np.concatenate([part.ravel() for part in parts(JOB, weights)]), weights)
    parts(JOB, weights)[3][:] = -1
    assert (weights[-3:] == -1).all()
    assert outputs(JOB, weights, np.zeros((2, 5), np.float32)).shape == (2, 3)


def test_data_are_the_same_everywhere_and_only_weights_and_order_are_the_seed_s() -> None:
    """Ranks learn from samples of their own, none of which is held out."""
    one, other = Data(JOB), Data(replace(JOB, seed=2))
    assert not np.array_equal(one.first, other.first)
    assert np.array_equal(one.held_out[0], other.held_out[0])
    assert not np.array_equal(one.of_rank(0)[0], one.of_rank(1)[0])
    batches = [np.concatenate([lessons(job, 0).batch(step)[0] for step in (0, 1)]) for job in (one.job, other.job)]
    assert not np.array_equal(*batches)
    assert np.array_equal(*(np.sort(batch.ravel()) for batch in batches))
    assert np.array_equal(lessons(JOB, 0).batch(2)[0], lessons(JOB, 0).batch(0)[0])
