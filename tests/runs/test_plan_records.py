"""Plans in a run file: written and read again, and refused where they claim what cannot be."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.datatypes import DATATYPES
from collbench.note import Note
from collbench.planned import PURPOSES, Pipeline, PlannedStep
from collbench.runs.bounds import STAGES, impossible
from collbench.runs.file import FORMAT, read
from collbench.runs.records import to_line, to_result
from tests.conftest import case

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


@pytest.mark.parametrize("row", [PLAN, PLAIN, *(replace(PLAN, purpose=name) for name in PURPOSES)])
def test_a_plan_is_read_as_it_was_written(row: PlannedStep) -> None:
    """Through JSON, with every field."""
    line = json.loads(json.dumps(to_line(row)))
    assert line["kind"] == "planned"
    back = to_result(line)
    assert back == row
    assert isinstance(back, PlannedStep)
    assert (back.parts, back.memory) == (row.parts, row.memory)
    assert list(back.parts) == list(row.parts)
    assert impossible(row) == ""


def _pipeline(**changes: Any) -> dict[str, Any]:
    return {"pipeline": to_line(PLAN)["pipeline"] | changes}


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("purpose of a plan", {"purpose": "guesswork"}),
    ("named parts", {"parts": [1.0]}),
    ("named parts", {"parts": {"Not a name": 1.0}}),
    ("named parts", {"parts": {f"part{number}": 1.0 for number in range(33)}}),
    ("no number", {"parts": {"computing": "1"}}),
    ("no number", {"parts": {"computing": True}}),
    ("no number", {"memory": {"weights": None}}),
    ("no number", {"capacity": [8]}),
    ("is missing", {"memory": None} | {"pipeline": {}}),
    ("no table", {"pipeline": [1, 2]}),
    ("not a whole number", _pipeline(stages=1.5)),
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
    ("stages, chunks or micro-batches", _pipeline(stages=0)),
    ("stages, chunks or micro-batches", _pipeline(stages=STAGES + 1)),
    ("stages, chunks or micro-batches", _pipeline(chunks=STAGES + 1)),
    ("stages, chunks or micro-batches", _pipeline(micro_batches=2**30 + 1)),
    ("a pipeline with a time", _pipeline(forward=-1.0)),
    ("a pipeline with a time", _pipeline(backward=1e300)),
    ("a pipeline with a time", _pipeline(weights=0.03)),
    ("no size and number of ranks", {"ranks": 0}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("reason", "changes"), BROKEN)
def test_a_plan_that_cannot_be_costs_its_row(tmp_path: Path, reason: str, changes: dict[str, Any]) -> None:
    """With the reason; the others are read."""
    line = to_line(PLAN)
    broken = {name: value for name, value in (line | changes).items() if value is not None}
    lines = [{"kind": "header", "format": FORMAT}, line, broken]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    run = read(tmp_path)
    assert run.results == (PLAN,)
    assert reason in run.left_out[0]


def test_what_follows_from_a_plan() -> None:
    """Its step is the sum of its parts; time and cost are of the run, or of a step if its length is not known."""
    assert PLAN.typical == 11.5
    assert PLAN.needed == 3.7e10
    assert PLAN.seconds == pytest.approx(11.5 * 3e11 / 3145728)
    assert PLAN.cost == pytest.approx(PLAN.seconds / 3600 * 1024 * 2.5)
    assert replace(PLAN, total=0.0).seconds == 11.5
