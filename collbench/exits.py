"""Exit statuses of all commands; tests compare them with docs/measuring.md."""

from collections.abc import Mapping
from signal import SIGHUP, SIGINT, SIGTERM

GOOD, BAD, REFUSED, FAULT, UNKNOWN, NOBODY_READS = 0, 1, 2, 3, 4, 141
SIGNALLED = 128  # plus the number of the signal, as in shells

MEANINGS: Mapping[tuple[int, ...], str] = {
    (GOOD,): "good: everything that has a number was right",
    (BAD,): "something was wrong or failed, or all was skipped; a file of several could not be imported; results could "
    "not be stored or printed; or an unforeseen error",
    (REFUSED,): "the command cannot be carried out: wrong usage, an unreadable file, missing hardware or software; one "
    "line says why",
    (FAULT, UNKNOWN): "a verdict of `check` (also with `--fleet`), `scan` or `compare --gate`: 3 for WRONG or "
    "SLOW, 4 for UNKNOWN",
    tuple(SIGNALLED + number for number in (SIGHUP, SIGINT, SIGTERM)): "ended by a signal (HUP, INT, TERM); the run "
    "file has what was measured",
    (NOBODY_READS,): "nobody reads the output any more, as after `| head`",
}

VERDICTS: Mapping[str, Mapping[str, int]] = {
    "plain": {"OK": GOOD, "FAST": GOOD, "SLOW": FAULT, "WRONG": FAULT, "UNKNOWN": UNKNOWN},
    "nagios": {"OK": 0, "FAST": 1, "SLOW": 2, "WRONG": 2, "UNKNOWN": 3},
    "npd": {"OK": 0, "FAST": 0, "SLOW": 1, "WRONG": 1, "UNKNOWN": 2},
}
"""Statuses of verdicts by reader (`--exit`): a shell, Nagios, node-problem-detector."""
