"""What became of a case, in one word."""

from enum import Enum


class Outcome(Enum):
    """What became of a case."""

    OK = "ok"
    WRONG = "wrong"
    FAILED = "failed"
    SKIPPED = "skipped"
    PREDICTED = "predicted"

    @property
    def bad(self) -> bool:
        """Whether something is broken."""
        return self in (Outcome.WRONG, Outcome.FAILED)
