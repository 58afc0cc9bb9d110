"""Lines on stderr, printed only if something takes long or has a new name."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from collbench.host.launcher import launched
from collbench.presence import UNTIL

SECONDS = 8.0  # of silence, after which a line is printed
DRIVER = "waiting for the CUDA driver, which is still starting (persistence mode is off?)"
RANKS = "waiting for the ranks: kernels are compiled once"


def say(line: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def announced_if_slow(sentence: str) -> Iterator[None]:
    """Print a sentence if the block takes longer than SECONDS; under a launcher only rank 0 prints."""
    timer = threading.Timer(SECONDS, say, (f"collbench: {sentence}",))
    timer.daemon = True
    if is_leader(launched()):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def started(session: AbstractContextManager[Any]) -> Iterator[None]:
    """Enter the session, and print a line if its ranks start slowly."""
    with ExitStack() as stack:
        with announced_if_slow(RANKS):
            stack.enter_context(session)
        yield


def renamed(before: str, now: str) -> None:
    """Print the present form of an earlier command line; under a launcher only rank 0 prints."""
    if is_leader(launched()):
        say(f"collbench: `collbench {before}` is `collbench {now}` now; the earlier form goes with {UNTIL}")


def is_leader(launched: tuple[int, int] | None) -> bool:
    """Return whether this process prints; `launched` is (rank, size), or None for a single process."""
    return launched is None or launched[0] == 0
