"""`python -m tests.faults [WORD...]`: carries out every trial, or those with one of these words in their names."""

import sys
import time

from tests.faults.catalogue import every
from tests.faults.runner import Verdict, run


def main() -> None:
    """A line for each trial that was not survived, and one for all."""
    words = sys.argv[1:]
    trials = [trial for trial in every() if not words or any(word in trial.name for word in words)]
    begun = time.monotonic()

    def report(verdict: Verdict) -> None:
        if verdict.complaints or words:
            print(f"{verdict.seconds:5.1f} s  {verdict.line}", flush=True)  # noqa: T201

    verdicts = run(trials, report)
    lost = sum(bool(verdict.complaints) for verdict in verdicts)
    spent = time.monotonic() - begun
    print(f"{len(verdicts)} trials in {spent:.0f} s: {len(verdicts) - lost} survived, {lost} not")  # noqa: T201
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
