"""Plans, steps, training runs and check failures as lines: written and read again, refused where they cannot be."""

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from collbench.commands.step.rows import LossPoint, Trained
from collbench.results import Mismatch, Result
from collbench.results.facts import Implausible, Overrun
from collbench.runfile.schema import to_line, to_result
from collbench.runfile.store import FORMAT, NAME, read
from tests.commands.step.made_up_steps import LATER, MEASURED, WRONG
from tests.commands.train.made_up_plans import PLAN
from tests.conftest import measurement
from tests.runfile.test_store import RESULTS

(TRAINED,) = (result for result in RESULTS if isinstance(result, Trained))


def through_json(row: Result) -> Result | None:
    return to_result(json.loads(json.dumps(to_line(row), allow_nan=False)))


def series(begun: Any, computed: Any, done: Any) -> dict[str, Any]:
    return {"series": [{"begun": begun, "computed": computed, "done": done}]}


PLANS: list[dict[str, Any]] = [
    {"purpose": "guesswork"},
    {"parts": {"Not a name": 1.0}},
    {"parts": {f"part{number}": 1.0 for number in range(33)}},
    {"currency": "euro"},
    {"parts": {}},
    {"parts": {"computing": 1e10}},
    {"high": math.nan},
    {"high": 0},
    {"parts": {"computing": 2.0, "bubble": -1.0}},
    {"memory": {"weights": 1e300}},
    {"capacity": 0},
    {"tokens": 0},
    {"total": -1},
    {"price": 1e300},
    {"utilisation": 10.5},
    {"utilisation": -0.1},
    {"ranks": 0},
]
STEPS: list[dict[str, Any]] = [
    series([0, 0], [[2], [2]], [[1], [3]]),
    series([0], [[1]], [[2]]),
    series([0, 0], [[1], [1]], [[2], [2, 3]]),
    series([0, 0], [[1], [1]], [[2], [1e400]]),
    {"step": {"products": 1.5, "size": 8, "bucket": 0, "schedule": "x", "slow": []}},
    {"step": {"products": 1, "size": 8, "bucket": 0, "schedule": "x", "slow": [[0, -1]]}},
    *({"rounds": rounds} for rounds in ([1], [2, 0], [3, -1])),
]
TRAINING: list[dict[str, Any]] = [
    {"points": [[0, 0.0, 4.5], [7, -1.0, 0.5]]},
    {"steps": [-1, 2]},
    *({"job": to_line(TRAINED)["job"] | job} for job in ({"rate": 0.0}, {"steps": -1}, {"seed": 1.5})),
    {"job": to_line(TRAINED)["job"] | {"slow": [[1, -2.0]]}},
]


@pytest.mark.filterwarnings("ignore")
def test_a_plan_a_step_or_a_training_run_that_cannot_be_costs_its_row_with_the_reason(tmp_path: Path) -> None:
    for row, broken in ((PLAN, PLANS), (MEASURED, STEPS), (TRAINED, TRAINING)):
        lines = [{"kind": "header", "format": FORMAT}, to_line(row)]
        lines += [to_line(row) | changes for changes in broken]
        (tmp_path / NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
        run = read(tmp_path)
        assert run.results == (row,)
        for changes, told in zip(broken, run.left_out, strict=True):
            (field,) = changes
            assert field in told or "is no number" in told, changes


def test_a_loss_that_was_no_number_is_read_as_infinite() -> None:
    again = through_json(replace(TRAINED, points=(LossPoint(0, 0.0, float("nan")),)))
    assert isinstance(again, Trained)
    assert again.points[0].loss == float("inf")


FAILURES = {
    "rank 1, element 7 (chunk 0): got 3.5, expected 4.5; 12 wrong": Mismatch(1, 7, 0, "3.5", "4.5", 12),
    "call 3 of 16 back to back, rank 1": Mismatch(1, 7, 0, "", "4.5", 12, call=2, calls=16),
    "16 bytes written past the end of the send buffer": Overrun(0, "send buffer", 8, 16),
    "1 byte written before the start of the receive buffer": Overrun(2, "receive buffer", -1, 1),
    "implausible: too good": Implausible(1e-12, "too good"),
}


def test_a_check_failure_has_words_and_costs_its_row_where_only_a_newer_version_knows_it() -> None:
    for text, failure in FAILURES.items():
        assert text in str(failure)
    with pytest.raises(ValueError, match="haunted"):
        to_result(to_line(measurement(seconds=())) | {"mismatch": {"kind": "haunted", "by": "ghosts"}})


ODD: tuple[Any, ...] = (None, True, -1, 0.5, 5e-324, 1e308, 2**62, "8", "", [8], [], {}, {"a": 1}, [[1]], math.inf)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inside:
        yield (*path, name)
        yield from places(part, (*path, name))


def outcome(line: dict[str, Any]) -> str:
    try:
        result = to_result(line)
    except ValueError as error:
        return str(error)
    return result.outcome.value if result else "no result"


def test_a_line_with_any_value_in_any_place_is_a_result_or_an_error_of_one_line() -> None:
    for row in (*RESULTS, PLAN, MEASURED, LATER, WRONG):
        line = json.loads(json.dumps(to_line(row)))
        for number, (*path, last) in enumerate(places(line)):
            for odd in (ODD * 2)[number % len(ODD) :][:3]:
                changed = deepcopy(line)
                part = reduce(getitem, path, changed)
                part[last] = odd
                told = outcome(changed)
                assert len(told.splitlines()) == 1, (path, last, odd)
