"""Results: what a case yields, as ten kinds that answer the same questions.

base.py         what every result answers: its case, its outcome, its times, its check
facts.py        outcomes, notes, scheduling, and the failures that a check can find
collectives.py  results of collectives: measured, reported, predicted, explained, skipped, failed
steps.py        results of steps: measured, predicted, training runs, plans
"""

from collections.abc import Iterable, Iterator

from collbench.results.base import CaseResult, Observed, Timed, joined_scheduling
from collbench.results.collectives import (
    ADDED,
    LAUNCH,
    MOVED,
    PARTS,
    PHASES,
    PUBLISHED,
    WAITED,
    Explanation,
    Failed,
    Measurement,
    Prediction,
    Reported,
    Skipped,
    Span,
    Track,
    Untimed,
    mean_spent,
)
from collbench.results.facts import (
    DISTURBED_SHARE,
    NO_NOTE,
    PACED,
    CheckFailure,
    Disagreement,
    GemmMismatch,
    Implausible,
    Mismatch,
    Note,
    Outcome,
    Overrun,
    Scheduling,
    Sharing,
    WeightMismatch,
    family,
    labelled,
)
from collbench.results.steps import (
    COMMUNICATED,
    COMPUTED,
    MEMORY_WORDS,
    MOST_STAGES,
    PURPOSES,
    STEP_WORDS,
    Activity,
    Pipeline,
    PlannedStep,
    Point,
    Series,
    StepPrediction,
    StepRow,
    StepTimes,
    Trained,
    words,
)

__all__ = [
    "ADDED",
    "COMMUNICATED",
    "COMPUTED",
    "DISTURBED_SHARE",
    "LAUNCH",
    "MEMORY_WORDS",
    "MOST_STAGES",
    "MOVED",
    "NO_NOTE",
    "PACED",
    "PARTS",
    "PHASES",
    "PUBLISHED",
    "PURPOSES",
    "STEP_WORDS",
    "WAITED",
    "Activity",
    "CaseResult",
    "CheckFailure",
    "Disagreement",
    "Explanation",
    "Failed",
    "GemmMismatch",
    "Implausible",
    "Measurement",
    "Mismatch",
    "Note",
    "Observed",
    "Outcome",
    "Overrun",
    "Pipeline",
    "PlannedStep",
    "Point",
    "Prediction",
    "Reported",
    "Result",
    "Sampled",
    "Scheduling",
    "Series",
    "Sharing",
    "Skipped",
    "Span",
    "StepPrediction",
    "StepRow",
    "StepTimes",
    "Timed",
    "Track",
    "Trained",
    "Untimed",
    "WeightMismatch",
    "family",
    "joined_scheduling",
    "labelled",
    "mean_spent",
    "observed",
    "timed",
    "words",
]

Sampled = Measurement | StepTimes
"""What was sampled here, in rounds that can be joined."""

Result = (
    Measurement
    | StepTimes
    | StepPrediction
    | Trained
    | PlannedStep
    | Reported
    | Skipped
    | Failed
    | Explanation
    | Prediction
)
"""Any result; in a run file the field `kind` tells which."""


def timed(results: Iterable[Result | Timed]) -> Iterator[Timed]:
    """Yield collectives that have a time: measured or reported, right and not disturbed; or predicted.  No steps."""
    for result in results:
        if not isinstance(result, Timed) or result.case.step:
            continue
        usable = result.right and not result.disturbed
        if usable or isinstance(result, Prediction):
            yield result


def observed(results: Iterable[Result]) -> Iterator[Observed]:
    """Yield the same without predictions."""
    return (result for result in timed(results) if isinstance(result, Observed))
