"""Steps in a run file: written and read again, and refused where they cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

from collbench.flaws import Miscomputed
from collbench.note import Note
from collbench.runs.file import FORMAT, read
from collbench.runs.records import sweep_fields, to_line, to_result, to_sweep
from collbench.step_times import COMMUNICATED, COMPUTED, Activity, Series, StepPrediction, StepTimes
from collbench.steps import Step
from tests.conftest import case
from tests.test_cases import sweep
from tests.test_step_times import LATE

STEP = Step(12, 256, "thread", 4096, ((1, 1.5),))
MEASURED = StepTimes(
    case(nbytes=65536, step=STEP),
    "two-shot",
    "cpu",
    series=(LATE, LATE),
    note=Note.of("4 threads on 2 cores"),
    rounds=(1, 1),
    activities=(Activity(0, COMPUTED, 0, 0.0, 1e-3), Activity(1, COMMUNICATED, 3, 2e-3, 1e-6)),
    clock=1e-7,
    library="MPICH 5",
)
PREDICTED = StepPrediction(
    case(ranks=8, step=Step(0, 0, seconds=0.1)), "nccl", (0.1, 1e-4, 3e-3), 0.1, 0.2, "ring", "ll"
)
WRONG = StepTimes(case(step=STEP), "mpi", "cpu", series=(), mismatch=Miscomputed(1, 9, 2, 3, "1", "2", wrong=4))


@pytest.mark.parametrize("row", [MEASURED, PREDICTED, WRONG])
def test_a_step_is_read_as_it_was_written(row: StepTimes | StepPrediction) -> None:
    """Through JSON."""
    assert to_result(json.loads(json.dumps(to_line(row)))) == row


def test_the_steps_of_a_sweep_reach_the_ranks() -> None:
    """And a sweep without any is written as before."""
    with_steps = sweep(64)
    with_steps = type(with_steps)(**{**with_steps.__dict__, "steps": (STEP, None)})
    assert to_sweep(json.loads(json.dumps(sweep_fields(with_steps)))) == with_steps
    assert "steps" not in sweep_fields(sweep(64))


BROKEN: dict[str, dict[str, Any]] = {
    "go backwards": {"series": [{"begun": [0, 0], "computed": [[2], [2]], "done": [[1], [3]]}]},
    "of 2 ranks": {"series": [{"begun": [0], "computed": [[1]], "done": [[2]]}]},
    "as many of one as of another": {"series": [{"begun": [0, 0], "computed": [[1], [1]], "done": [[2], [2, 3]]}]},
    "no number": {"series": [{"begun": [0, 0], "computed": [[1], [1]], "done": [[2], [1e400]]}]},
    "lists of numbers": {"series": [{"begun": [0, 0], "computed": [[1], ["1"]], "done": [[2], [2]]}]},
    "whole numbers": {"step": {"products": 1.5, "size": 8, "bucket": 0, "schedule": "x", "slow": []}},
    "factors above 0": {"step": {"products": 1, "size": 8, "bucket": 0, "schedule": "x", "slow": [[0, -1]]}},
    "an activity": {"activities": [[0, "slept", 0, 0.0, 1.0]]},
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_step_that_cannot_have_been_costs_its_row(tmp_path: Path, reason: str) -> None:
    """The others are read."""
    line = to_line(MEASURED)
    broken = line | BROKEN[reason]
    lines = [{"kind": "header", "format": FORMAT}, line, broken]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    with pytest.warns(UserWarning, match=reason):
        run = read(tmp_path)
    assert run.results == (MEASURED,)


def test_a_series_keeps_its_moments_to_the_nanosecond() -> None:
    """No clock here is finer."""
    fine = Series((0.0, 1e-10), ((1.23456789012,), (2.0,)), ((3.0,), (4.0,)))
    row = to_result(json.loads(json.dumps(to_line(StepTimes(case(step=STEP), "mpi", "cpu", series=(fine,))))))
    assert isinstance(row, StepTimes)
    assert row.series[0].computed[0] == (1.23456789,)
