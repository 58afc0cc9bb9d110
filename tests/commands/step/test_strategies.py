"""Strategies of synchronisation: real ranks learn what one rank would, and every wrong update is found."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collbench.cases import Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.commands.step.rows import Trained
from collbench.commands.step.strategies import choose, strategies
from collbench.commands.step.strategies.trainer import (
    Snapshot,
    batch,
    check_weights,
    first_weights,
    gradient,
    held_out,
    loss,
    plain_sgd,
    samples_of,
)
from collbench.commands.step.work import SgdJob
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import UsageError
from collbench.measure.session import Session
from collbench.results import Result
from collbench.runfile.store import read
from tests.conftest import ROOT, Command

SMALL = SgdJob(inputs=5, hidden=7, outputs=3, samples=24, batch=12)
JOB = SgdJob(inputs=6, hidden=16, outputs=3, samples=64, batch=32, steps=12, every=4, staleness=3)
TINY, RANKS = SgdJob(inputs=6, hidden=12, outputs=3, samples=32, batch=16, steps=4), 2


def test_the_gradient_is_what_differences_of_the_loss_say() -> None:
    draws = np.random.default_rng(4)
    weights = draws.normal(size=SMALL.weights)
    inputs, targets = draws.normal(size=(12, 5)), draws.normal(size=(12, 3))
    found = np.empty_like(weights)
    gradient(SMALL, weights, inputs, targets, found)
    for index in range(SMALL.weights):
        step = np.zeros(SMALL.weights)
        step[index] = 1e-6
        slope = (loss(SMALL, weights + step, inputs, targets) - loss(SMALL, weights - step, inputs, targets)) / 2e-6
        assert found[index] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_data_are_the_same_everywhere_and_only_weights_and_order_are_of_the_seed() -> None:
    other = replace(SMALL, seed=2)
    assert not np.array_equal(first_weights(SMALL), first_weights(other))
    assert np.array_equal(held_out(SMALL)[0], held_out(other)[0])
    assert not np.array_equal(samples_of(SMALL, 0)[0], samples_of(SMALL, 1)[0])
    both = [np.concatenate([batch(job, 0, step)[0] for step in (0, 1)]) for job in (SMALL, other)]
    assert not np.array_equal(*both)
    assert np.array_equal(*(np.sort(inputs.ravel()) for inputs in both))
    assert np.array_equal(batch(SMALL, 0, 2)[0], batch(SMALL, 0, 0)[0])


def test_weights_that_are_wrong_differ_or_lack_a_batch_are_found() -> None:
    expected = plain_sgd(TINY, RANKS)
    kept = [Snapshot(8, 1.0, expected.astype(np.float32))]
    assert check_weights(TINY, kept, (4, 4), (b"same", b"same"), expected) is None
    for value in (1.001, np.nan):
        weights = expected.astype(np.float32)
        weights[3] *= value
        found = check_weights(TINY, [Snapshot(8, 1.0, weights)], (4, 4), (b"same", b"same"), expected)
        assert found
        assert (found.index, found.wrong) == (3, 1)
    other = check_weights(TINY, kept, (4, 4), (b"same", b"other"), expected)
    assert other
    assert other.rank == 1
    for steps, last in (((4, 3), 8), ((4, 4), 7)):
        assert "instead of 8" in str(check_weights(TINY, [Snapshot(last, 1.0, kept[0].weights)], steps, (), expected))
    assert check_weights(TINY, [], (0, 0), (), expected)


def trained(ranks: int, *names: str, jobs: tuple[SgdJob, ...] = (JOB,), check_only: bool = False) -> list[Result]:
    sweep = Sweep(
        (COLLECTIVES["allreduce"],),
        (jobs[0].nbytes,),
        (DATATYPES["float"],),
        (REDUCTIONS["sum"],),
        ranks,
        names or tuple(strategies()),
        works=jobs,
        sampling=Sampling(check_only=check_only),
    )
    with Session("cpu", sweep, None, None) as session:
        return list(session.run())


def right(results: list[Result]) -> list[Trained]:
    for result in results:
        assert isinstance(result, Trained), result
        assert result.right, (result.implementation, result.wrong)
    return [result for result in results if isinstance(result, Trained)]


def losses(result: Trained) -> list[float]:
    return [point.loss for point in result.points]


def learns(results: dict[str, Trained], ranks: int) -> None:
    """Every update is right, as many batches are learnt by all strategies, and the loss falls."""
    assert set(results) == set(strategies())
    for name, result in results.items():
        assert sum(result.steps) == result.points[-1].batches == JOB.steps * ranks, name
        assert len(result.steps) == len(result.computing) == ranks, name
        assert result.points[-1].loss < 0.7 * result.points[0].loss, name
        assert result.points[0].loss == results["ring"].points[0].loss, name
        assert 0 < max(result.computing) < result.seconds, name


def test_every_strategy_trains_and_those_that_add_all_gradients_learn_what_one_rank_would() -> None:
    results = right(trained(2, jobs=(JOB, replace(JOB, every=1, staleness=0))))
    half = len(results) // 2
    usual, strict = ({result.implementation: result for result in part} for part in (results[:half], results[half:]))
    learns(usual, 2)
    weights, change = first_weights(JOB).astype(float), np.empty(JOB.weights)
    for step in range(JOB.steps):
        both = [batch(JOB, rank, step) for rank in (0, 1)]
        inputs, targets = (np.concatenate(part).astype(float) for part in zip(*both, strict=True))
        gradient(JOB, weights, inputs, targets, change)
        weights -= JOB.rate * change
    exact = loss(JOB, weights, *held_out(JOB))
    for name in ("ring", "library", "parameter-server"):
        assert usual[name].points[-1].loss == pytest.approx(exact, rel=1e-5), name
    assert losses(strict["local-sgd"]) == pytest.approx(losses(strict["ring"]), rel=1e-4)
    whole = [point.loss for point in strict["asynchronous"].points if point.batches % 2 == 0]
    assert whole == pytest.approx(losses(strict["ring"]), rel=1e-4)
    assert strict["asynchronous"].steps == (JOB.steps, JOB.steps)
    assert strict["asynchronous"].age == 0.5, "one of two updates comes second"


@pytest.mark.full
def test_every_strategy_trains_on_any_number_of_ranks_and_a_check_alone_trains_a_few_steps() -> None:
    for ranks in (1, 3, 4):
        learns({result.implementation: result for result in right(trained(ranks))}, ranks)
    (result,) = right(trained(2, "ring", check_only=True))
    assert result.steps == (4, 4)


@pytest.mark.machine
def test_a_slow_rank_makes_fewer_steps_where_nobody_waits_and_as_many_where_all_do() -> None:
    job = replace(JOB, hidden=64, batch=64, steps=40, staleness=1000, slow=((1, 60.0),))
    results = {result.implementation: result for result in right(trained(2, "ring", "asynchronous", jobs=(job,)))}
    quick, slow = results["asynchronous"].steps
    assert quick > 1.5 * slow
    assert results["ring"].steps == (40, 40)
    assert results["ring"].computing[1] > 2 * results["ring"].computing[0]
    late = replace(JOB, steps=5, staleness=1, slow=((1, 500.0),))
    (near,) = right(trained(2, "asynchronous", jobs=(replace(job, staleness=2),)))
    (result,) = right(trained(2, "asynchronous", jobs=(late,)))
    assert near.steps[0] - near.steps[1] <= 3
    assert sum(result.steps) == late.steps * 2
    assert result.steps[1] < result.steps[0], "the slow rank's last step was to be too late"
    assert 0.3 * result.seconds < result.computing[1] < result.seconds


SITE = """
import os
if "COLLBENCH_LINK" in os.environ and os.environ.get("PMI_RANK") == "1":
    import numpy as np
    from collbench.commands.step.strategies.trainer import Training, first_weights
    learn = Training.gradient
    def changed(self, weights, step, result):
        if step != 2:
            return learn(self, weights, step, result)
        BREAK
    Training.gradient = changed
"""
BROKEN = {
    "a contribution is lost": "learn(self, weights, step, result); result *= self.job.steps != 12",
    "a contribution is doubled": "learn(self, weights, step, result); result *= 1 + (self.job.steps == 12)",
    "stale weights": "learn(self, first_weights(self.job), step, result)",
    "another batch": "learn(self, weights, step + 1, result)",
    "weights beside the gradient": "learn(self, weights, step, result); weights[3] += 1e-3",
}


def cheats(here: Command, folder: Path, code: str) -> None:
    """One step of one rank makes every strategy wrong, and the exit status is 1."""
    (folder / "sitecustomize.py").write_text(SITE.replace("BREAK", code))
    paths = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""), str(ROOT)))
    words = ("--ranks", "2", "--seeds", "1", "--steps", "12", "--staleness", "2")
    out = str(len(list(folder.iterdir())))
    done = here(
        "step", "strategies", *words, "--strategy", "ring,local-sgd,asynchronous", "--out", out, PYTHONPATH=paths
    )
    results = read(folder / out).results
    unseen = {"asynchronous"} if "weights[3]" in code else set()  # whose weights are the server's
    assert len(results) == 3
    wrong = {result.implementation for result in results if isinstance(result, Trained) and result.wrong}
    assert wrong == {"ring", "local-sgd", "asynchronous"} - unseen, (code, done.stdout)
    assert "WRONG: " in done.stdout
    assert done.returncode == 1


def test_a_rank_that_leaves_a_contribution_out_once_makes_every_strategy_wrong(here: Command, tmp_path: Path) -> None:
    cheats(here, tmp_path, BROKEN["a contribution is lost"])


@pytest.mark.full
def test_a_rank_that_cheats_once_in_any_way_makes_every_strategy_wrong(here: Command, tmp_path: Path) -> None:
    for code in BROKEN.values():
        cheats(here, tmp_path, code)


def test_strategies_are_chosen_by_name() -> None:
    assert choose("all") == tuple(strategies())
    assert choose("asynchronous, ring") == ("ring", "asynchronous")
    for words in ("tree", "ring,ring", ""):
        with pytest.raises(UsageError, match="choose from: all, library"):
            choose(words)
