"""The outcome of a program of this folder: an exit status, and lines with a prefix.

Exit status: 0 good; 1 something is wrong; 2 no GPU or a usage error; SKIPPED this machine cannot do it.  A line with
the prefix KEY is a number for the campaign's page; WRONG and SKIP begin a reason.
"""

import sys

GOOD, BAD, NO_GPU, SKIPPED = 0, 1, 2, 77
KEY, WRONG, SKIP = "= ", "FAILED: ", "skipped: "


def key(text: str) -> None:
    print(f"{KEY}{text}", flush=True)


def wrong(reason: str) -> int:
    """Print why this program failed, and return the exit status."""
    print(f"{WRONG}{reason}", flush=True)
    return BAD


def skip(reason: object) -> int:
    """Print why nothing was done, and return the exit status."""
    print(f"{SKIP}{reason}", flush=True)
    return SKIPPED


def no_gpu(undone: str) -> int:
    """Print what was not done without a GPU, and return the exit status."""
    print(f"collbench: error: no GPU here, so nothing was {undone}; fix: run this on a GPU node", file=sys.stderr)
    return NO_GPU
