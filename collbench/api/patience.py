"""One line on stderr where something takes long, and nothing where it does not."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from collbench.host.launcher import launched

SECONDS = 8.0  # without a word, after which a user wonders
DRIVER = "waiting for the CUDA driver, which is still starting (persistence mode is off?)"
RANKS = "waiting for the ranks: kernels are compiled once, and GPUs start slowly where persistence mode is off"


def say(line: str) -> None:
    """On standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def said_if_long(sentence: str, seconds: float | None = None) -> Iterator[None]:
    """Say the sentence if what is inside takes longer; one process of a run does."""
    seconds = SECONDS if seconds is None else seconds
    timer = threading.Timer(seconds, say, (f"collbench: {sentence}",))
    timer.daemon = True
    if leads(launched()):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def started(session: AbstractContextManager[Any]) -> Iterator[None]:
    """Inside the session, whose ranks may take long to start."""
    with ExitStack() as stack:
        with said_if_long(RANKS):
            stack.enter_context(session)
        yield


def leads(launched: tuple[int, int] | None) -> bool:
    """Whether this process speaks for a run whose launcher gave it that rank and size."""
    return launched is None or launched[0] == 0
