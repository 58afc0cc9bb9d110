"""Results of cases, as kinds with the same interface; commands add more."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from collbench.results.base import CaseResult, Observed, Repeated, Sampled, Timed
from collbench.results.collectives import PARTS, Explanation, Failed, Measurement, Prediction, Reported, Skipped
from collbench.results.facts import CheckFailure, Mismatch, Note, Outcome, family

__all__ = ["PARTS", "ROWS", "CheckFailure", "Explanation", "Failed", "Measurement", "Mismatch", "Note", "Observed"]
__all__ += ["Outcome", "Prediction", "Repeated", "Reported", "Result", "Sampled", "Skipped", "Timed"]
__all__ += ["by_key", "family", "observed", "timed"]

Result = CaseResult
"""Any result; in a run file the field `kind` names its class."""

ROWS = (Measurement, Reported, Skipped, Failed, Explanation, Prediction)
"""Kinds of results that several commands know."""

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


def by_key(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """Group values by key, in order of appearance."""
    groups: dict[Key, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def timed(results: Iterable[Result | Timed], unsure: bool = False) -> Iterator[Timed]:
    """Yield collectives with a valid time: measured or reported, right and (or not) sure, or predicted. No work."""
    for result in results:
        if not isinstance(result, Timed) or result.case.work:
            continue
        if isinstance(result, Prediction) or (result.right and (unsure or not result.unsure)):
            yield result


def observed(results: Iterable[Result]) -> Iterator[Observed]:
    """Yield the same without predictions."""
    return (result for result in timed(results) if isinstance(result, Observed))
