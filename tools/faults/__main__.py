"""`python -m tools.faults [WORD...]`: carry out every trial, or those with one of these words in their names.

A word such as 1/3 selects this part of the trials.
"""

import re
import sys
import time

from tools.faults.runner import Verdict, every, run, share


def main() -> None:
    """Print a line for each trial that was not survived, and one for all."""
    parts = [word.split("/") for word in sys.argv[1:] if re.fullmatch(r"\d+/[1-9]\d*", word)]
    words = [word for word in sys.argv[1:] if word.split("/") not in parts]
    trials = [trial for trial in every() if any(map(trial.name.__contains__, words or [""]))]
    for part, count in parts:
        trials = share(trials, int(part), int(count))
    begun = time.monotonic()

    def report(verdict: Verdict) -> None:
        if verdict.complaints or words:
            print(f"{verdict.seconds:5.1f} s  {verdict.line}", flush=True)

    verdicts = run(trials, report)
    lost = sum(bool(verdict.complaints) for verdict in verdicts)
    spent = time.monotonic() - begun
    print(f"{len(verdicts)} trials in {spent:.0f} s: {len(verdicts) - lost} survived, {lost} not")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
