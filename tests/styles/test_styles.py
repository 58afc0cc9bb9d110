"""Styles of synchronisation on real ranks: right, alike where they must be, and wrong where one is broken."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collbench.cases import Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import Unsupported, UsageError
from collbench.jobs import Job
from collbench.learning.data import Data, lessons
from collbench.learning.network import gradient, loss
from collbench.measure.session import Session
from collbench.measurement import Result, Skipped
from collbench.runs.file import read
from collbench.styles import choose, styles
from collbench.trained import Trained
from tests.cli.test_sweep import ranks_of, wait_for
from tests.conftest import Command

JOB = Job(inputs=6, hidden=16, outputs=3, samples=64, batch=32, steps=12, every=4, staleness=3)
Start = Callable[..., subprocess.Popen[str]]


def trained(job: Job, ranks: int, *names: str, seeds: int = 1, **more: object) -> list[Result]:
    """What real ranks make of it."""
    jobs = tuple(replace(job, seed=seed) for seed in range(1, seeds + 1))
    sweep = Sweep(
        (COLLECTIVES["allreduce"],),
        (job.nbytes,),
        (DATATYPES["float"],),
        (REDUCTIONS["sum"],),
        ranks,
        names or tuple(styles()),
        jobs=jobs,
        sampling=Sampling(**more),  # type: ignore[arg-type]
    )
    with Session("cpu", sweep, None, None) as session:
        return list(session.run())


def of(results: list[Result]) -> dict[str, Trained]:
    """By style, all of them right."""
    for result in results:
        assert isinstance(result, Trained), result
        assert result.right, result.wrong
    return {result.implementation: result for result in results if isinstance(result, Trained)}


def losses(result: Trained) -> list[float]:
    """Of all points."""
    return [point.loss for point in result.points]


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_every_style_trains_on_any_number_of_ranks(ranks: int) -> None:
    """More of them than cores too: every update is right, as many batches are learnt, and the loss falls."""
    results = of(trained(JOB, ranks))
    assert set(results) == set(styles())
    for result in results.values():
        assert sum(result.steps) == result.points[-1].batches == JOB.steps * ranks
        assert len(result.steps) == len(result.computing) == ranks
        assert result.points[-1].loss < 0.7 * result.points[0].loss
        assert result.points[0].loss == results["ring"].points[0].loss
        assert 0 < max(result.computing) < result.seconds


def test_a_gradient_that_comes_too_late_is_no_computing_that_counts() -> None:
    """The others wait for the slowest rank, whose last gradient nobody needs: all that counts lies before the end."""
    job = replace(JOB, steps=5, staleness=1, slow=((1, 500.0),))
    (result,) = of(trained(job, 2, "asynchronous")).values()
    assert sum(result.steps) == job.steps * 2
    assert result.steps[1] < result.steps[0], "the slow rank's last step was to be too late"
    assert 0.3 * result.seconds < result.computing[1] < result.seconds


def test_who_adds_all_gradients_after_every_step_learns_what_one_rank_would_with_all_samples() -> None:
    """Two ranks with two batches are one with a batch of both; in float64, but for rounding."""
    results = of(trained(JOB, 2, "ring", "library", "parameter-server", "hierarchical"))
    weights, change = Data(JOB).first.astype(float), np.empty(JOB.weights)
    for step in range(JOB.steps):
        both = [lessons(JOB, rank).batch(step) for rank in (0, 1)]
        inputs, wanted = (np.concatenate(part).astype(float) for part in zip(*both, strict=True))
        gradient(JOB, weights, inputs, wanted, change)
        weights -= JOB.rate * change
    for result in results.values():
        assert result.points[-1].loss == pytest.approx(loss(JOB, weights, *Data(JOB).held_out), rel=1e-5)


def test_averages_after_every_step_and_no_staleness_are_synchronous() -> None:
    """Point by point, but for rounding; an asynchronous rank's updates between two steps of all are its own."""
    results = of(trained(replace(JOB, every=1, staleness=0), 2, "ring", "local-sgd", "asynchronous"))
    wanted = losses(results["ring"])
    assert losses(results["local-sgd"]) == pytest.approx(wanted, rel=1e-4)
    whole = [point.loss for point in results["asynchronous"].points if point.batches % 2 == 0]
    assert whole == pytest.approx(wanted, rel=1e-4)
    assert results["asynchronous"].steps == (JOB.steps, JOB.steps)
    assert results["asynchronous"].age == 0.5  # one of two updates comes second


def test_a_slow_rank_makes_fewer_steps_where_nobody_waits_and_as_many_where_all_do() -> None:
    """And computes longer; the bound on staleness holds it near the others."""
    job = replace(JOB, hidden=64, batch=64, steps=40, staleness=1000, slow=((1, 60.0),))
    results = of(trained(job, 2, "ring", "asynchronous"))
    quick, slow = results["asynchronous"].steps
    assert quick > 1.5 * slow
    assert results["ring"].steps == (40, 40)
    assert results["ring"].computing[1] > 2 * results["ring"].computing[0]
    near = of(trained(replace(job, staleness=2), 2, "asynchronous"))["asynchronous"].steps
    assert near[0] - near[1] <= 3


def test_groups_of_any_size_are_the_same_sum() -> None:
    """Also one that is no divisor of the ranks, and one larger than all of them."""
    runs = [of(trained(replace(JOB, group=group, steps=4), 3, "hierarchical"))["hierarchical"] for group in (1, 2, 9)]
    for run in runs:
        assert losses(run) == pytest.approx(losses(runs[0]), rel=1e-4)


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


@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN)
def test_a_rank_that_cheats_once_makes_every_style_wrong(here: Command, tmp_path: Path, code: str) -> None:
    """One step of twelve of one rank; the row says where, and the exit status is 1."""
    (tmp_path / "sitecustomize.py").write_text(SITE.replace("BREAK", code))
    words = ("--seeds", "1", "--steps", "12", "--every", "4", "--style", "ring,local-sgd,asynchronous")
    paths = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])))
    options = ("--on", "cpu", "--ranks", "2", "--slow-rank", "0:3", "--out", "out")
    done = here("styles", *words, *options, PYTHONPATH=paths)
    results = {result.implementation: result for result in read(tmp_path / "out").results}
    unseen = {"asynchronous"} if code.startswith("weights") else set()  # whose weights are the server's
    assert {name for name, result in results.items() if result.wrong} == set(results) - unseen, done.stdout
    assert len(results) == 3
    assert "WRONG: " in done.stdout
    assert done.returncode == 1


def test_a_wrong_average_is_wrong(here: Command, tmp_path: Path) -> None:
    """By a part in ten thousand."""
    site = "import os\nif 'COLLBENCH_LINK' in os.environ:\n    from collbench.learning import trail\n"
    site += "    import numpy as np\n    trail.share_of = lambda ranks: np.float32(1.0001 / ranks)\n"
    (tmp_path / "sitecustomize.py").write_text(site)
    words = ("--seeds", "1", "--steps", "4", "--style", "ring,local-sgd", "--out", "out")
    paths = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    done = here("styles", "--on", "cpu", "--ranks", "2", *words, PYTHONPATH=paths)
    assert {result.implementation: bool(result.wrong) for result in read(tmp_path / "out").results} == {
        "ring": False,
        "local-sgd": True,
    }, done.stdout


NO_LOCK = """
    from contextlib import nullcontext
    import time
    from collbench.learning import seat
    from collbench.platforms.cpu.monitor import Monitor
    Monitor.held = lambda self: nullcontext()
    Monitor.until = lambda self, met, patience: met() or time.sleep(1e-3) or self.until(met, patience)
    keep = seat.Memory.keep
    seat.Memory.keep = lambda self, weights: time.sleep(2e-3) or keep(self, weights)
"""
NO_BOUND = """
    from collbench.platforms.cpu.monitor import Monitor
    Monitor.until = lambda self, met, patience: True
"""


@pytest.mark.parametrize(
    ("code", "words"), [(NO_LOCK, "rank"), (NO_BOUND, "too old")], ids=["without its lock", "without its bound"]
)
def test_asynchronous_training_is_wrong(here: Command, tmp_path: Path, code: str, words: str) -> None:
    """Where two change the weights at once, and where a rank runs away from a slow one."""
    (tmp_path / "sitecustomize.py").write_text(f"import os\nif 'COLLBENCH_LINK' in os.environ:{code}")
    paths = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    options = ("--seeds", "1", "--steps", "40", "--staleness", "2", "--slow-rank", "1:5", "--out", "out")
    done = here("styles", "--on", "cpu", "--ranks", "2", "--style", "asynchronous", *options, PYTHONPATH=paths)
    (result,) = read(tmp_path / "out").results
    assert words in result.wrong, done.stdout
    assert done.returncode == 1


def test_a_killed_rank_costs_one_row(start: Start, tmp_path: Path) -> None:
    """The others are measured by fresh ranks; a style that waits without MPI notices too."""
    words = ("--on", "cpu", "--ranks", "2", "--seeds", "2", "--steps", "150", "--style", "ring,asynchronous")
    process = start("styles", *words, "--slow-rank", "1:8", "--out", "out")
    path = tmp_path / "out" / "run.jsonl"
    wait_for(lambda: path.exists() and '"kind": "training"' in path.read_text())
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    process.wait(90)
    rows = read(tmp_path / "out").results
    assert len(rows) == 4
    assert [row.outcome.value for row in rows].count("failed") == 1
    assert [row.outcome.value for row in rows].count("ok") == 3
    (reason,) = (row.reason for row in rows if row.outcome.value == "failed")  # type: ignore[attr-defined]
    peers = "process_vm_readv failed (errno 3)"  # where the other was just reading its memory, and ends first
    assert "ended by signal 9" in reason or peers in reason


def test_on_gpus_every_style_is_skipped_with_the_reason() -> None:
    """Nothing is silently absent."""
    for style in styles().values():
        with pytest.raises(Unsupported, match=r"computed by NumPy, so .* runs on cpu only"):
            style.refuse("gpu")


def test_styles_are_chosen_by_name() -> None:
    """In the order of tables."""
    assert choose("all") == tuple(styles())
    assert choose("asynchronous, ring") == ("ring", "asynchronous")
    for words in ("tree", "ring,ring", ""):
        with pytest.raises(UsageError, match="choose from: all, library"):
            choose(words)


def test_a_check_alone_trains_a_few_steps() -> None:
    """As sampling says for collectives."""
    (result,) = trained(JOB, 2, "ring", check_only=True)
    assert isinstance(result, Trained)
    assert result.steps == (4, 4)
    assert not isinstance(result, Skipped)
