"""Styles of synchronisation on real ranks: right, alike where they must be, and wrong where one is broken."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collbench.cases import Job, Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import Unsupported, UsageError
from collbench.learning.data import Data, lessons
from collbench.learning.network import gradient, loss
from collbench.measure.session import Session
from collbench.results import Result, Trained
from collbench.runfile.store import read
from collbench.styles import choose, styles
from tests.conftest import Command

JOB = Job(inputs=6, hidden=16, outputs=3, samples=64, batch=32, steps=12, every=4, staleness=3)


def trained(ranks: int, *names: str, jobs: tuple[Job, ...] = (JOB,), check_only: bool = False) -> list[Result]:
    """What real ranks make of it: a result for each job and style."""
    sweep = Sweep(
        (COLLECTIVES["allreduce"],),
        (jobs[0].nbytes,),
        (DATATYPES["float"],),
        (REDUCTIONS["sum"],),
        ranks,
        names or tuple(styles()),
        jobs=jobs,
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
    """Every update is right, as many batches are learnt by all styles, and the loss falls."""
    assert set(results) == set(styles())
    for name, result in results.items():
        assert sum(result.steps) == result.points[-1].batches == JOB.steps * ranks, name
        assert len(result.steps) == len(result.computing) == ranks, name
        assert result.points[-1].loss < 0.7 * result.points[0].loss, name
        assert result.points[0].loss == results["ring"].points[0].loss, name
        assert 0 < max(result.computing) < result.seconds, name


def test_every_style_trains_and_those_that_add_all_gradients_learn_what_one_rank_would() -> None:
    results = right(trained(2, jobs=(JOB, replace(JOB, every=1, staleness=0))))
    half = len(results) // 2
    usual, strict = ({result.implementation: result for result in part} for part in (results[:half], results[half:]))
    learns(usual, 2)
    weights, change = Data(JOB).first.astype(float), np.empty(JOB.weights)
    for step in range(JOB.steps):
        both = [lessons(JOB, rank).batch(step) for rank in (0, 1)]
        inputs, wanted = (np.concatenate(part).astype(float) for part in zip(*both, strict=True))
        gradient(JOB, weights, inputs, wanted, change)
        weights -= JOB.rate * change
    exact = loss(JOB, weights, *Data(JOB).held_out)
    for name in ("ring", "library", "parameter-server", "hierarchical"):
        assert usual[name].points[-1].loss == pytest.approx(exact, rel=1e-5), name
    assert losses(strict["local-sgd"]) == pytest.approx(losses(strict["ring"]), rel=1e-4)
    whole = [point.loss for point in strict["asynchronous"].points if point.batches % 2 == 0]
    assert whole == pytest.approx(losses(strict["ring"]), rel=1e-4)
    assert strict["asynchronous"].steps == (JOB.steps, JOB.steps)
    assert strict["asynchronous"].age == 0.5, "one of two updates comes second"


def test_groups_of_any_size_are_the_same_sum() -> None:
    runs = right(trained(3, "hierarchical", jobs=tuple(replace(JOB, group=group, steps=4) for group in (1, 2, 9))))
    for run in runs:
        assert losses(run) == pytest.approx(losses(runs[0]), rel=1e-4), run.case


@pytest.mark.full
def test_every_style_trains_on_any_number_of_ranks_and_a_check_alone_trains_a_few_steps() -> None:
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
    from collbench.learning import seat, trail
    from collbench.learning.data import Data
    from collbench import styles
    learn = seat.Seat.learn
    def changed(self, weights, step, result):
        learn(self, weights, step, result)
        if step == 2 and self.job.steps == 12:
            BREAK
    seat.Seat.learn = changed
"""
BROKEN = {
    "a contribution is lost": "result[:] = 0",
    "a contribution is doubled": "result *= 2",
    "stale weights": "learn(self, Data(self.job).first, step, result)",
    "another batch": "learn(self, weights, step + 1, result)",
    "weights beside the gradient": "weights[3] += 1e-3",
}


def cheats(here: Command, folder: Path, code: str) -> None:
    """One step of twelve of one rank makes every style wrong; the row says where, and the exit status is 1."""
    (folder / "sitecustomize.py").write_text(SITE.replace("BREAK", code))
    paths = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])))
    words = ("--on", "cpu", "--ranks", "2", "--seeds", "1", "--steps", "12", "--every", "4", "--staleness", "2")
    out = str(len(list(folder.iterdir())))
    done = here("styles", *words, "--style", "ring,local-sgd,asynchronous", "--out", out, PYTHONPATH=paths)
    results = read(folder / out).results
    unseen = {"asynchronous"} if code.startswith("weights") else set()  # whose weights are the server's
    assert len(results) == 3
    wrong = {result.implementation for result in results if isinstance(result, Trained) and result.wrong}
    assert wrong == {"ring", "local-sgd", "asynchronous"} - unseen, (code, done.stdout)
    assert "WRONG: " in done.stdout
    assert done.returncode == 1


def test_a_rank_that_leaves_a_contribution_out_once_makes_every_style_wrong(here: Command, tmp_path: Path) -> None:
    cheats(here, tmp_path, BROKEN["a contribution is lost"])


@pytest.mark.full
def test_a_rank_that_cheats_once_in_any_way_makes_every_style_wrong(here: Command, tmp_path: Path) -> None:
    for code in BROKEN.values():
        cheats(here, tmp_path, code)


def test_on_gpus_every_style_is_skipped_with_the_reason() -> None:
    for style in styles().values():
        with pytest.raises(Unsupported, match=r"computed by NumPy, so .* runs on cpu only"):
            style.refuse("gpu")


def test_styles_are_chosen_by_name() -> None:
    assert choose("all") == tuple(styles())
    assert choose("asynchronous, ring") == ("ring", "asynchronous")
    for words in ("tree", "ring,ring", ""):
        with pytest.raises(UsageError, match="choose from: all, library"):
            choose(words)
