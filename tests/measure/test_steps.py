"""Steps on real ranks: every schedule with every implementation is right, and a fault in either part is seen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.algorithms import choose
from collbench.cases import Sampling, Step, Sweep
from collbench.measure.interleave import Starts
from collbench.measure.schedules import SCHEDULES, overlapping
from collbench.results import Result
from collbench.results.collectives import Failed, Skipped
from collbench.results.steps import COMMUNICATED, COMPUTED, StepTimes
from tests.test_cases import sweep

QUICK = Sampling(iters=2, region=1e-3)
STEP = Step(3, 32, bucket=1024)


def stepped(*steps: Step, implementations: tuple[str, ...] = ("mpi",), nbytes: int = 4000, **changes: object) -> Sweep:
    """A sweep of one size on two ranks."""
    fields = {"steps": steps, "implementations": implementations, "sampling": QUICK} | changes
    return replace(sweep(nbytes), **fields)  # type: ignore[arg-type]


def measured(wanted: Sweep) -> list[Result]:
    """What ranks make of it."""
    with Starts("cpu", wanted) as ranks:
        return list(ranks.run())


def test_every_schedule_is_right_and_what_ranks_did_is_kept_bucket_by_bucket() -> None:
    names = [name for name, one in SCHEDULES.items() if "cpu" in one.platforms]
    results = measured(stepped(*(replace(STEP, schedule=name) for name in names)))
    assert len(results) == len(names)
    for name, result in zip(names, results, strict=True):
        assert isinstance(result, StepTimes), result
        assert result.right, (name, result.wrong)
        if name in ("sequential", *overlapping("cpu")):
            sent = [one for one in result.activities if one.what == COMMUNICATED]
            every = {(rank, bucket) for rank in (0, 1) for bucket in range(4)}
            assert {(one.rank, one.bucket) for one in sent} == every, name
            done = [one for one in result.activities if one.what == COMPUTED]
            ready = {(one.rank, one.bucket): one.start + one.seconds for one in done}
            assert all(ready.get((one.rank, one.bucket), 0.0) <= one.start + 1e-9 for one in sent), name
            assert min(one.start for one in result.activities) == 0, name


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_step_is_right_whoever_communicates_and_however() -> None:
    names = choose("all,narrow", "cpu")
    for schedule in (name for name, one in SCHEDULES.items() if "cpu" in one.platforms):
        results = measured(stepped(replace(STEP, schedule=schedule), implementations=names))
        assert [result for result in results if not isinstance(result, Skipped)], schedule
        for result in results:
            assert isinstance(result, StepTimes | Skipped), result
            if isinstance(result, StepTimes):
                assert result.right, result.wrong
                assert result.launches >= 1
            else:
                assert "non-blocking" in result.reason or "one-shot" in result.implementation


@pytest.mark.machine
def test_a_slow_rank_computes_longer_and_the_other_waits() -> None:
    (result,) = measured(stepped(Step(20, 128, slow=((1, 10.0),)), sampling=Sampling(iters=5, region=0.02)))
    assert isinstance(result, StepTimes)
    quickest = [min(series.computing(rank) for series in result.series) for rank in (0, 1)]
    assert quickest[1] > 2 * quickest[0]
    assert sum(series.waiting(0) for series in result.series) > 0


SITE = """
import os
if "COLLBENCH_LINK" in os.environ and os.environ.get("PMI_RANK") == "1":
    {fault}
"""
FORGETS = """
    import numpy
    whole, made = numpy.matmul, []
    def matmul(*arguments, **named):
        made.append(1)
        return named["out"] if len(made) == 4 else whole(*arguments, **named)
    numpy.matmul = matmul
"""
DROPS = """
    from collbench.cases import Case
    whole = Case.buckets
    Case.buckets = lambda case: [(0 if place == 1 else start, part) for place, (start, part) in enumerate(whole(case))]
"""
DIES = """
    import signal
    from collbench.platforms.cpu.platform import CpuProducts
    whole, calls = CpuProducts.enqueue, []
    def enqueue(self, rank, count):
        calls.append(1)
        if len(calls) == 9 and not os.path.exists(os.environ["DIED"]):
            open(os.environ["DIED"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        whole(self, rank, count)
    CpuProducts.enqueue = enqueue
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the second rank do something else than it should."""

    def install(fault: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(SITE.format(fault=fault.strip()))
        root = Path(__file__).parents[2]
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")
        monkeypatch.setenv("DIED", str(tmp_path / "died"))

    return install


def test_a_product_left_out_or_a_bucket_that_lies_elsewhere_is_wrong_and_has_no_time(
    faulty: Callable[[str], None],
) -> None:
    for fault, word in ((FORGETS, "matrix products"), (DROPS, "element")):
        faulty(fault)
        (result,) = measured(stepped(STEP))
        assert isinstance(result, StepTimes), fault
        assert word in result.wrong, fault
        assert not result.series, fault


def test_a_rank_that_is_killed_costs_a_row_which_names_the_signal(faulty: Callable[[str], None]) -> None:
    faulty(DIES)
    results = measured(stepped(STEP, replace(STEP, products=4)))
    assert [type(result) for result in results] == [Failed, StepTimes]
    assert "signal 9" in str(results[0].reason)  # type: ignore[union-attr]
