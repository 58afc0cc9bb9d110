"""What became of a case, in one word."""

from enum import Enum


class Outcome(Enum):
    """What became of a case."""

    OK = "ok"
    WRONG = "wrong"
    FAILED = "failed"
    SKIPPED = "skipped"
    PREDICTED = "predicted"
    DISTURBED = "disturbed"

    @property
    def alarming(self) -> bool:
        """Whether a reader must not overlook it: what is broken, and what says more of the machine than of the code."""
        return self.bad or self is Outcome.DISTURBED

    @property
    def bad(self) -> bool:
        """Whether something is broken."""
        return self in (Outcome.WRONG, Outcome.FAILED)
