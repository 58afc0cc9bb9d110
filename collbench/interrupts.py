"""Signals that end a command in order: one exception whatever the signal, never in the middle of what must be whole.

Python raises KeyboardInterrupt between any two instructions: between the start of a process and the note of its number,
or while something is being tidied up.  Inside `held` a signal is remembered instead, and raised at the end.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN = 3.0  # seconds after which another signal is raised too, should the first have been lost in somebody's cleanup


class Interrupted(KeyboardInterrupt):
    """A signal asked for the end; `number` says which."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _State:
    depth = 0  # of `held`
    pending: int | None = None  # what came meanwhile
    raised = -_AGAIN  # when a signal was raised last, on the monotonic clock


def status(error: BaseException | None) -> int:
    """The exit status after an interruption, as shells count it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + getattr(error, "number", signal.SIGINT)


@contextmanager
def raised() -> Iterator[None]:
    """Inside, signals that end a command raise Interrupted, once; those that the caller ignores stay ignored.

    Afterwards they end the process at once: there is nothing left to tidy up.
    """
    _State.depth, _State.pending, _State.raised = 0, None, -_AGAIN
    mine = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in mine:
        signal.signal(number, _come)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def held() -> Iterator[None]:
    """Inside, a signal waits; it is raised at the end unless an exception is on its way already."""
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
    if not _State.depth and _State.pending is not None:
        number, _State.pending = _State.pending, None
        _raise(number)


def waiting() -> bool:
    """Whether a signal waits for the end of `held`, so that what is inside should be short."""
    return _State.pending is not None


def _come(number: int, frame: FrameType | None) -> None:
    if _State.depth:
        _State.pending = number
    elif time.monotonic() - _State.raised >= _AGAIN:
        _raise(number)


def _raise(number: int) -> None:
    _State.raised = time.monotonic()
    raise Interrupted(number)
