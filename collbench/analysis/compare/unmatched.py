"""What two runs cannot be compared in: rows that one of them lacks, or that are wrong, failed or skipped in one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from collbench.cases import Case
from collbench.results import Explanation, Measurement, Observed, Outcome, Prediction, Result, Untimed
from collbench.runfile.store import Run

Key = tuple[Case, str]
Selected = Callable[[Case, str], bool] | None

RIGHT, MISSING = "right", "missing"
WRONG, SKIPPED, FAILED = Outcome.WRONG.value, Outcome.SKIPPED.value, Outcome.FAILED.value
DISTURBED = Outcome.DISTURBED.value
CUT_OFF = "missing (the run was cut off)"


@dataclass(frozen=True)
class Unmatched:
    """A case by one implementation, and how it stands in either run; `reason` is the later run's, if it gives one."""

    case: Case
    implementation: str
    base: str
    new: str
    reason: str = ""

    @property
    def regression(self) -> bool:
        """Whether it was right, and is wrong or failed now."""
        return self.base == RIGHT and self.new in (WRONG, FAILED)

    @property
    def hides(self) -> bool:
        """Whether it was right and was to be measured again, so that nobody knows how it stands."""
        return self.base == RIGHT and self.new in (SKIPPED, CUT_OFF, DISTURBED)


def latest(run: Run, selected: Selected) -> dict[Key, Result]:
    """The last result of each case and implementation; neither predictions nor explanations."""
    return {
        (result.case, result.implementation): result
        for result in run.results
        if not isinstance(result, Prediction | Explanation)
        and (not selected or selected(result.case, result.implementation))
    }


def unmatched(base: Run, new: Run, selected: Selected = None) -> Iterator[Unmatched]:
    """In the order of BASE, then what is in NEW only; what is skipped in both is not worth a word."""
    before, after = latest(base, selected), latest(new, selected)
    for key in dict.fromkeys((*before, *after)):
        one, other = _state(before.get(key), base), _state(after.get(key), new)
        if (one, other) != (RIGHT, RIGHT) and not {one, other} <= {SKIPPED, MISSING, CUT_OFF}:
            yield Unmatched(*key, one, other, _reason(after.get(key)))


def _state(result: Result | None, run: Run) -> str:
    if result is None:
        return MISSING if run.complete else CUT_OFF
    if result.outcome is not Outcome.OK:
        return str(result.outcome.value)
    timed = isinstance(result, Observed) and result.case.nbytes and min(result.times, default=0) > 0
    return RIGHT if timed else "not timed"


def _reason(result: Result | None) -> str:
    if isinstance(result, Untimed):
        return result.reason
    if not isinstance(result, Measurement):
        return ""
    return result.wrong or str(result.scheduling or "")
