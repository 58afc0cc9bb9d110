"""How a program of this folder tells its outcome to who started it: exit status, and lines that begin with a sign.

Exit status 0 good, 1 something is wrong, 2 no GPU or a usage error, SKIPPED this machine cannot do it.  A line that
begins with KEY is a number for the page; one that begins with WRONG or SKIP is the reason.
"""

import re
import sys
from collections.abc import Iterable

GOOD, BAD, NO_GPU, SKIPPED = 0, 1, 2, 77
KEY, WRONG, SKIP = "= ", "FAILED: ", "skipped: "
_REASONS = (re.compile("FAILED: "), re.compile(r"\berror: "), re.compile(r"^[\w.]*(Error|Exception): "))


def key(text: str) -> None:
    """A number for the page."""
    print(f"{KEY}{text}", flush=True)


def wrong(reason: str) -> int:
    """Why this program failed; the exit status to end with."""
    print(f"{WRONG}{reason}", flush=True)
    return BAD


def all_wrong(reasons: Iterable[str]) -> int:
    """Several reasons, or none; the exit status to end with."""
    return max(map(wrong, reasons), default=GOOD)


def skip(reason: object) -> int:
    """Why nothing was done; the exit status to end with."""
    print(f"{SKIP}{reason}", flush=True)
    return SKIPPED


def no_gpu(undone: str) -> int:
    """What was not done for want of a GPU; the exit status to end with."""
    print(
        f"collbench: error: no GPU here, so nothing was {undone}: run this where nvidia-smi shows one", file=sys.stderr
    )
    return NO_GPU


def keys(log: str) -> list[str]:
    """The numbers for the page in what a program printed."""
    return [line.removeprefix(KEY) for line in log.splitlines() if line.startswith(KEY)]


def reason(log: str) -> str:
    """The first line that says what went wrong, by the clearest sign that any line has; else the last one of all."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    signed = (line for sign in _REASONS for line in lines if sign.search(line))
    return next(signed, lines[-1] if lines else "nothing was printed")


def why_skipped(log: str) -> str:
    """The reason of a program that skipped itself."""
    return next(
        (line.removeprefix(SKIP) for line in log.splitlines() if line.startswith(SKIP)), "no reason was printed"
    )


def last(log: str) -> str:
    """The last line that a program printed."""
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "nothing was printed")
