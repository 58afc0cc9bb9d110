"""Runs that stop before their end, in the words that every command uses for them.

A header says what was to be measured; a run that was killed, or interrupted, has less.
"""

from collections.abc import Iterable

from collbench.host.sanitize import message
from collbench.runfile.file import INTERRUPTED, Run

WORD = "cut off"


def whole(run: Run) -> bool:
    """Whether its end was written, and no signal brought that about."""
    return run.complete and (run.status or 0) < INTERRUPTED


def cut_off(run: Run) -> str:
    """`cut off after 37 rows`; nothing of a whole run."""
    rows = len(run.results)
    return "" if whole(run) else f"{WORD} after {rows} row{'' if rows == 1 else 's'}"


def notes(runs: Iterable[Run]) -> list[str]:
    """`results/a/run.jsonl: cut off after 37 rows` for each that is."""
    return [message(f"{run.path}: {words}") for run in runs if (words := cut_off(run))]
