"""Results: what a case yields, as ten kinds that answer the same questions."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from collbench.results.base import Observed, Timed
from collbench.results.collectives import PARTS, Explanation, Failed, Measurement, Prediction, Reported, Skipped
from collbench.results.facts import CheckFailure, Mismatch, Note, Outcome, family
from collbench.results.steps import PlannedStep, StepPrediction, StepRow, StepTimes, Trained, words

__all__ = [
    "PARTS",
    "CheckFailure",
    "Explanation",
    "Failed",
    "Measurement",
    "Mismatch",
    "Note",
    "Observed",
    "Outcome",
    "PlannedStep",
    "Prediction",
    "Reported",
    "Result",
    "Skipped",
    "StepPrediction",
    "StepRow",
    "StepTimes",
    "Timed",
    "Trained",
    "by_key",
    "family",
    "observed",
    "timed",
    "words",
]

Result = Measurement | StepRow | Trained | PlannedStep | Reported | Skipped | Failed | Explanation | Prediction
"""Any result; in a run file the field `kind` tells which."""

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


def by_key(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """Return values by their key, keys and values in the order in which they come."""
    groups: dict[Key, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def timed(results: Iterable[Result | Timed]) -> Iterator[Timed]:
    """Yield collectives that have a time: measured or reported, right and not disturbed; or predicted.  No steps."""
    for result in results:
        if not isinstance(result, Timed) or result.case.step:
            continue
        if isinstance(result, Prediction) or (result.right and not result.disturbed):
            yield result


def observed(results: Iterable[Result]) -> Iterator[Observed]:
    """Yield the same without predictions."""
    return (result for result in timed(results) if isinstance(result, Observed))
