"""Plans, steps and training runs in a run file: written and read again, and refused where they claim what cannot be."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collbench.runfile.bounds import STAGES, impossible

from collbench.cases import Step
from collbench.datatypes import DATATYPES
from collbench.results import (
    COMMUNICATED,
    COMPUTED,
    PURPOSES,
    Activity,
    GemmMismatch,
    Note,
    Pipeline,
    PlannedStep,
    Point,
    Result,
    Series,
    StepPrediction,
    StepTimes,
    Trained,
)
from collbench.runfile.schema import sweep_fields, to_line, to_result, to_sweep
from collbench.runfile.store import FORMAT, NAME, read
from tests.conftest import case
from tests.runfile.test_file import RESULTS
from tests.test_cases import sweep
from tests.test_step_times import LATE

PLAN = PlannedStep(
    case(nbytes=2**30, dtype=DATATYPES["bfloat16"], ranks=1024),
    "tp8 pp16 dp8 v2 mb1 zero1 full",
    purpose="layout",
    system="dgx-a100",
    parts={"computing": 10.0, "bubble": 1.5, "loading": 0.0},
    memory={"weights": 2e9, "activations": 3.5e10},
    capacity=8e10,
    low=10.0,
    high=13.0,
    tokens=3145728.0,
    utilisation=0.45,
    pipeline=Pipeline(16, 2, 192, 0.01, 0.02, 0.0),
    price=2.5,
    total=3e11,
    note=Note.of("1 of 2 nodes"),
)
PLAIN = replace(PLAN, price=0.0, total=0.0, note=Note(), pipeline=Pipeline(1, 1, 1, 0.0, 0.0, 0.0))
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
LATER = StepPrediction(case(ranks=8, step=Step(0, 0, seconds=0.1)), "nccl", (0.1, 1e-4, 3e-3), 0.1, 0.2, "ring", "ll")
WRONG = StepTimes(case(step=STEP), "mpi", "cpu", series=(), mismatch=GemmMismatch(1, 9, 2, 3, "1", "2", wrong=4))
(TRAINED,) = (result for result in RESULTS if isinstance(result, Trained))


def through_json(row: Result) -> Result | None:
    return to_result(json.loads(json.dumps(to_line(row), allow_nan=False)))


def test_plans_and_steps_are_read_as_they_were_written() -> None:
    for row in (PLAIN, *(replace(PLAN, purpose=name) for name in PURPOSES), MEASURED, LATER, WRONG):
        back = through_json(row)
        assert back == row
        if isinstance(row, PlannedStep):
            assert isinstance(back, PlannedStep)
            assert (to_line(row)["kind"], impossible(row)) == ("planned", "")
            assert (list(back.parts.items()), back.memory) == (list(row.parts.items()), row.memory)
    with_steps = replace(sweep(64), steps=(STEP, None))
    assert to_sweep(json.loads(json.dumps(sweep_fields(with_steps)))) == with_steps
    assert "steps" not in sweep_fields(sweep(64))


def pipeline(**changes: Any) -> dict[str, Any]:
    return {"pipeline": to_line(PLAN)["pipeline"] | changes}


def series(begun: Any, computed: Any, done: Any) -> dict[str, Any]:
    return {"series": [{"begun": begun, "computed": computed, "done": done}]}


PLANS: list[tuple[str, dict[str, Any]]] = [
    ("purpose of a plan", {"purpose": "guesswork"}),
    ("named parts", {"parts": [1.0]}),
    ("named parts", {"parts": {"Not a name": 1.0}}),
    ("named parts", {"parts": {f"part{number}": 1.0 for number in range(33)}}),
    ("no number", {"parts": {"computing": "1"}}),
    ("no number", {"parts": {"computing": True}}),
    ("no number", {"memory": {"weights": None}}),
    ("no number", {"capacity": [8]}),
    ("is missing", {"pipeline": {}}),
    ("no table", {"pipeline": [1, 2]}),
    ("not a whole number", pipeline(stages=1.5)),
    ("no number", {"price": "2"}),
    ("a time that is none", {"parts": {}}),
    ("a time that is none", {"parts": {"computing": 1e10}}),
    ("no number", {"high": math.nan}),
    ("a time that is none", {"high": 0}),
    ("a part of the step", {"low": -1.0}),
    ("a part of the step", {"parts": {"computing": 2.0, "bubble": -1.0}}),
    ("a part of the memory", {"memory": {"weights": -1.0}}),
    ("a part of the memory", {"memory": {"weights": 1e300}}),
    ("a part of the memory", {"capacity": 0}),
    ("no number", {"capacity": math.inf}),
    ("a number of tokens", {"tokens": 0}),
    ("a number of tokens", {"total": -1}),
    ("a number of tokens", {"price": 1e300}),
    ("a utilisation", {"utilisation": 10.5}),
    ("a utilisation", {"utilisation": -0.1}),
    ("stages, chunks or micro-batches", pipeline(stages=0)),
    ("stages, chunks or micro-batches", pipeline(stages=STAGES + 1)),
    ("stages, chunks or micro-batches", pipeline(chunks=STAGES + 1)),
    ("stages, chunks or micro-batches", pipeline(micro_batches=2**30 + 1)),
    ("a pipeline with a time", pipeline(forward=-1.0)),
    ("a pipeline with a time", pipeline(backward=1e300)),
    ("a pipeline with a time", pipeline(weights=0.03)),
    ("no size and number of ranks", {"ranks": 0}),
]
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("go backwards", series([0, 0], [[2], [2]], [[1], [3]])),
    ("of 2 ranks", series([0], [[1]], [[2]])),
    ("as many of one as of another", series([0, 0], [[1], [1]], [[2], [2, 3]])),
    ("no number", series([0, 0], [[1], [1]], [[2], [1e400]])),
    ("lists of numbers", series([0, 0], [[1], ["1"]], [[2], [2]])),
    ("whole numbers", {"step": {"products": 1.5, "size": 8, "bucket": 0, "schedule": "x", "slow": []}}),
    ("factors above 0", {"step": {"products": 1, "size": 8, "bucket": 0, "schedule": "x", "slow": [[0, -1]]}}),
    ("an activity", {"activities": [[0, "slept", 0, 0.0, 1.0]]}),
    *(("rounds", {"rounds": rounds}) for rounds in ([1], [2, 0], [1, 1, 1], [3, -1])),
]
TRAINING: list[tuple[str, dict[str, Any]]] = [
    ("go backwards", {"points": [[0, 0.0, 4.5], [7, -1.0, 0.5]]}),
    ("counts batches", {"points": [[0.5, 0.0, 4.5]]}),
    ("no number", {"points": [[1, "x", 4.5]]}),
    ("none below 0", {"steps": [-1, 2]}),
    ("no number", {"seconds": "1"}),
    *(
        (reason, {"job": to_line(TRAINED)["job"] | job})
        for reason, job in (("job", {"rate": 0.0}), ("job", {"steps": -1}), ("whole", {"seed": 1.5}))
    ),
    ("job", {"job": to_line(TRAINED)["job"] | {"slow": [[1, -2.0]]}}),
]


@pytest.mark.filterwarnings("ignore")
def test_a_plan_a_step_or_a_training_run_that_cannot_be_costs_its_row_with_the_reason(tmp_path: Path) -> None:
    for row, broken in ((PLAN, PLANS), (MEASURED, STEPS), (TRAINED, TRAINING)):
        lines = [{"kind": "header", "format": FORMAT}, to_line(row), *(to_line(row) | changes for _, changes in broken)]
        (tmp_path / NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
        run = read(tmp_path)
        assert run.results == (row,)
        for (reason, changes), told in zip(broken, run.left_out, strict=True):
            assert reason in told, changes


def test_a_loss_that_was_no_number_is_read_as_infinite() -> None:
    again = through_json(replace(TRAINED, points=(Point(0, 0.0, float("nan")),)))
    assert isinstance(again, Trained)
    assert again.points[0].loss == float("inf")


def test_a_series_keeps_its_moments_to_the_nanosecond() -> None:
    fine = Series((0.0, 1e-10), ((1.23456789012,), (2.0,)), ((3.0,), (4.0,)))
    row = through_json(StepTimes(case(step=STEP), "mpi", "cpu", series=(fine,)))
    assert isinstance(row, StepTimes)
    assert row.series[0].computed[0] == (1.23456789,)


def test_time_and_cost_follow_from_a_plan() -> None:
    assert PLAN.typical == 11.5
    assert PLAN.needed == 3.7e10
    assert PLAN.seconds == pytest.approx(11.5 * 3e11 / 3145728)
    assert PLAN.cost == pytest.approx(PLAN.seconds / 3600 * 1024 * 2.5)
    assert replace(PLAN, total=0.0).seconds == 11.5, "of a step where the length of the run is not known"
