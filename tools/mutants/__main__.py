"""`make mutants`: try every fault; exit status 1 if a fault passes that should be caught."""

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tools.mutants.trial import BROKEN, CAUGHT, PASSED, Mutant, Outcome, carried_out, copied, mutants, tried

AT_ONCE = max(1, len(os.sched_getaffinity(0)) // 2)  # most trials have two ranks, which spin


def main() -> int:
    """Try all faults, or those with one of the words in their names."""
    chosen = [each for each in mutants() if any(map(each.name.__contains__, sys.argv[1:] or [""]))]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(AT_ONCE) as pool:
        folder, cache = Path(scratch), Path(scratch, "cache")
        began = time.monotonic()
        outcomes = []
        for mutant, outcome in zip(chosen, pool.map(partial(tried, folder=folder, cache=cache), chosen), strict=True):
            outcomes.append(outcome)
            print(f"{outcome.verdict:8} {mutant.name}: {outcome.said}")
        controls = _controls(chosen, folder, cache)
    return _summary(chosen, outcomes, controls, time.monotonic() - began)


def _controls(chosen: Sequence[Mutant], folder: Path, cache: Path) -> list[Outcome]:
    """Return the outcomes of the same trials with the unchanged package, which must all pass."""
    trials = list(dict.fromkeys(mutant.trial for mutant in chosen))
    with copied(folder) as place:
        return [carried_out(place, trial, cache) for trial in trials]


def _summary(chosen: Sequence[Mutant], outcomes: Sequence[Outcome], controls: Sequence[Outcome], seconds: float) -> int:
    both = list(zip(chosen, outcomes, strict=True))
    missed = [mutant.name for mutant, outcome in both if outcome.verdict == PASSED and not mutant.unseen]
    broken = [mutant.name for mutant, outcome in both if outcome.verdict == BROKEN]
    false = [outcome.said for outcome in controls if outcome.verdict != PASSED]
    caught = sum(outcome.verdict == CAUGHT for outcome in outcomes)
    print(f"{caught} of {len(both)} caught in {seconds:.0f} s; {len(controls)} controls, {len(false)} false alarms")
    for words, names in (("not caught", missed), ("did not run", broken), ("false alarm", false)):
        for name in names:
            print(f"{words}: {name}")
    return int(bool(missed or broken or false))


if __name__ == "__main__":
    sys.exit(main())
