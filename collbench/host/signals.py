"""Signals that end a command: they end it at once, or set a flag while ranks live that must be ended in order.

A command without ranks has nothing to tidy up, so SIGINT, SIGTERM and SIGHUP end the process (`end_at_once`).  While a
run holds ranks, its signals are `deferred`: the handler only sets a flag, and the code that waits for ranks calls
`check`, which raises Interrupted there and nowhere else.  A second signal ends the process at once; ranks notice that,
as they do after kill -9, and remove what they hold.
"""

import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any, ClassVar, Self

from collbench.exits import SIGNALLED

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECOND = 1.0  # seconds after which another signal is a second one


class Interrupted(KeyboardInterrupt):
    """A signal asked for the end; `number` says which."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _State:
    depth = 0  # of deferrals
    number: int | None = None  # the signal that has come meanwhile
    since: float | None = None  # when the first signal was answered, on the monotonic clock
    pipe: ClassVar[tuple[int, ...]] = ()  # into which the kernel's handler writes the number of a signal
    before: ClassVar[dict[int, Any]] = {}  # handlers outside of deferrals


def status(error: BaseException | None) -> int:
    """Return the exit status after an interruption, as shells count it: 130 after Ctrl-C, 143 after SIGTERM."""
    return SIGNALLED + getattr(error, "number", signal.SIGINT)


def end_at_once() -> None:
    """Let signals end this process with one line; those that its parent ignores stay ignored."""
    for number in _heeded():
        signal.signal(number, _exit)


def pending() -> bool:
    """Return whether a signal waits to be answered, so that what is being done should be short."""
    return _State.number is not None


def unanswered() -> int | None:
    """Return a signal that the main thread has not come to answer, as while it waits in C; another thread may ask."""
    with suppress(BlockingIOError):
        if _State.pipe and (numbers := os.read(_State.pipe[0], 1)) and _State.since is None:
            os.write(_State.pipe[1], numbers)  # for the next look
            return numbers[0]
    return None


def check() -> None:
    """Raise Interrupted if a signal has come since signals are deferred."""
    if _State.number is not None:
        number, _State.number = _State.number, None
        raise Interrupted(number)


class deferred:  # noqa: N801
    """A context in which a signal waits for `check`; at its end it is raised, unless an exception is on its way.

    Contexts may be nested.
    """

    def __enter__(self) -> Self:
        # Only Python's main thread can set handlers; in another thread signals do what they did.
        if threading.current_thread() is threading.main_thread():
            if not _State.depth:
                _State.number = _State.since = None

                # The kernel's handler writes into the pipe even while this thread waits in C.
                _State.pipe = _State.pipe or os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
                with suppress(BlockingIOError):
                    os.read(_State.pipe[0], select.PIPE_BUF)
                signal.set_wakeup_fd(_State.pipe[1], warn_on_full_buffer=False)
                _State.before = {number: signal.signal(number, _remember) for number in _heeded()}
            _State.depth += 1
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        _State.depth -= 1
        if _State.depth:
            return
        for number, handler in _State.before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        if kind is None:
            check()


def _heeded() -> list[int]:
    """Return the signals that somebody listens to, and whose handler Python can put back."""
    return [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def _remember(number: int, frame: FrameType | None) -> None:
    # Launchers pass on what a terminal has sent already: only a signal some time later is a second one.
    now = time.monotonic()
    if _State.since is None:
        _State.number, _State.since = number, now
    elif now - _State.since > _SECOND:
        _exit(number, frame)


def _exit(number: int, frame: FrameType | None) -> None:
    with suppress(Exception):  # the stream may be closed, or in the middle of a write
        sys.stdout.flush()
    with suppress(OSError):
        os.write(2, b"collbench: error: interrupted\n")
    os._exit(SIGNALLED + number)
