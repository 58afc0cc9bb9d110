"""One line on stderr where something takes long, and nothing where it does not."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from collbench.host.launcher import launched
from collbench.presence import UNTIL

SECONDS = 8.0  # without a word, after which a user wonders
DRIVER = "waiting for the CUDA driver, which is still starting (persistence mode is off?)"
RANKS = "waiting for the ranks: kernels are compiled once; without persistence mode GPUs start slowly"


def say(line: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def announced_if_slow(sentence: str) -> Iterator[None]:
    """Print the sentence if the block takes longer than SECONDS; of a launcher's processes only the first does."""
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
    """Enter the session, and announce that its ranks are slow to start if they are."""
    with ExitStack() as stack:
        with announced_if_slow(RANKS):
            stack.enter_context(session)
        yield


def renamed(before: str, now: str) -> None:
    """Print that a command line has another form now; of the processes of a launcher the first does."""
    if is_leader(launched()):
        say(f"collbench: `collbench {before}` is `collbench {now}` now; the earlier form goes with {UNTIL}")


def is_leader(launched: tuple[int, int] | None) -> bool:
    """Return whether the process of that rank and number of processes prints; None is a process that runs alone."""
    return launched is None or launched[0] == 0
