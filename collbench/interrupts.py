"""Signals that end a command in order: one exception whatever the signal, never in the middle of what must be whole.

Python raises KeyboardInterrupt between any two instructions: between the start of a process and the note of its number,
or while something is being tidied up.  Inside `held` a signal is remembered instead, and raised at the end.

Some places swallow any exception: destructors, callbacks of weak references (importlib has one for every import, see
"Exception ignored in"), libraries with a bare `except`.  So an alarm looks whether the exception is still being dealt
with, and raises it again where it is not, until `answered` says that the command ends.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN = 3.0  # seconds after which another signal is raised too, should what the first one began not end
_LOOK = 0.2  # seconds between looks whether the exception was lost


class Interrupted(KeyboardInterrupt):
    """A signal asked for the end; `number` says which."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _State:
    depth = 0  # of `held`
    pending: int | None = None  # what came meanwhile
    raised = -_AGAIN  # when a signal was raised last, on the monotonic clock
    last: int = signal.SIGINT  # which one that was


def answered(error: BaseException | None) -> int:
    """The exit status of a command that ends because of that error; it need not be raised again."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    return status(error)


def behind(error: BaseException | None) -> Interrupted | None:
    """The signal that an error stands for: Python makes a RuntimeError of one that comes as a class is made."""
    while error:
        if isinstance(error, Interrupted):
            return error
        error = error.__cause__ or error.__context__
    return None


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
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    alarm, timer = signal.signal(signal.SIGALRM, _look), signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # the caller's, as a test's limit
        sys.unraisablehook = hook
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


def _look(number: int, frame: FrameType | None) -> None:
    """Whether what was raised has been swallowed: nobody is dealing with it, and nobody has answered."""
    if not behind(sys.exception()) and not _State.depth:
        _raise(_State.last)


def _unraisable(what: "sys.UnraisableHookArgs") -> None:
    """Nobody needs to be told that ours was swallowed: it comes again."""
    if not isinstance(what.exc_value, Interrupted):
        sys.__unraisablehook__(what)


def _raise(number: int) -> None:
    _State.raised, _State.last = time.monotonic(), number
    signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
    raise Interrupted(number)
