"""Steps on real ranks: every schedule with every implementation is right, and a fault in either part is seen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.algorithms import choose
from collbench.cases import Sampling, Sweep
from collbench.commands.step.rows import StepTimes
from collbench.commands.step.schedules import SCHEDULES, Parts, overlapping
from collbench.commands.step.work import Step
from collbench.measure.interleave import Starts
from collbench.platforms.interface import Prepared
from collbench.results import Result
from collbench.results.collectives import Failed, Skipped
from tests.conftest import ROOT, case
from tests.test_cases import sweep

QUICK = Sampling(iters=2, region=1e-3)
STEP = Step(3, 32, bucket=1024)


def stepped(*steps: Step, implementations: tuple[str, ...] = ("mpi",), nbytes: int = 4000, **changes: object) -> Sweep:
    fields = {"works": steps, "implementations": implementations, "sampling": QUICK} | changes
    return replace(sweep(nbytes), **fields)  # type: ignore[arg-type]


def measured(wanted: Sweep) -> list[Result]:
    with Starts("cpu", wanted) as ranks:
        return list(ranks.run())


def test_every_schedule_is_right() -> None:
    names = [name for name, one in SCHEDULES.items() if "cpu" in one.platforms]
    results = measured(stepped(*(replace(STEP, schedule=name) for name in names)))
    assert len(results) == len(names)
    for name, result in zip(names, results, strict=True):
        assert isinstance(result, StepTimes), result
        assert result.right, (name, result.wrong)


class Log:
    """A platform with a rank that notes what it computes and sends: products are numbers, buckets are texts."""

    def __init__(self) -> None:
        self.done: list[int | str] = []
        self.products: Any = SimpleNamespace(
            enqueue=lambda rank, count: self.done.append(count),
            moment=lambda rank: 0.0,
            hand_over=lambda rank: None,
            take_over=lambda rank: None,
        )
        self.platform: Any = SimpleNamespace(
            local=[0],
            clock=SimpleNamespace(moment=lambda rank: 0.0),
            compute=SimpleNamespace(queued=False, join_streams=lambda: None),
        )

    def bucket(self, name: str) -> Prepared:
        pending: Any = SimpleNamespace(begin=lambda: self.done.append(name), finish=lambda: None)
        return Prepared(lambda launches: self.done.append(name), pending=pending)


def test_a_bucket_goes_out_once_its_products_are_computed() -> None:
    for schedule in ("sequential", *overlapping("cpu")):
        log = Log()
        wanted = case(work=Step(10, 32, schedule))
        step = SCHEDULES[schedule].prepare(
            Parts(wanted, log.platform, log.products, [log.bucket(name) for name in "abcd"])
        )
        step()
        assert [one for one in log.done if isinstance(one, str)] == list("abcd")
        for number, name in enumerate("abcd", 1):
            before = log.done[: log.done.index(name)]
            assert sum(one for one in before if isinstance(one, int)) >= 10 * number // 4, schedule


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
    quickest = [min(series.parts(rank)[0] for series in result.series) for rank in (0, 1)]
    assert quickest[1] > 2 * quickest[0]
    assert sum(series.parts(0)[1] for series in result.series) > 0


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
    from collbench.commands.step import measured, work
    whole = work.buckets
    def dropped(case):
        return [(0 if place == 1 else start, part) for place, (start, part) in enumerate(whole(case))]
    measured.buckets = dropped
"""
DIES = """
    import signal
    from collbench.platforms.cpu.platform import CpuProducts
    whole, calls = CpuProducts.enqueue, []
    def enqueue(self, rank, count):
        calls.append(1)
        if len(calls) == 4 and not os.path.exists(os.environ["DIED"]):
            open(os.environ["DIED"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        whole(self, rank, count)
    CpuProducts.enqueue = enqueue
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def install(fault: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(SITE.format(fault=fault.strip()))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
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
