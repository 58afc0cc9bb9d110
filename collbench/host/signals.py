"""Signals that end a command: at once, or after its ranks.

A command without ranks needs no cleanup, so SIGINT, SIGTERM and SIGHUP end the process (`end_at_once`). While a run
holds ranks, its signals are `deferred`: the handler only sets a flag. The code that waits for ranks calls `check`,
and only that raises Interrupted. A second signal ends the process at once; the ranks notice and clean up, as after
kill -9.
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
_SECOND = 1.0  # seconds after which another signal counts as a second one


class Interrupted(KeyboardInterrupt):
    """A signal requested the end of the run; `number` identifies it."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _State:
    depth = 0  # of nested deferrals
    number: int | None = None  # the deferred signal
    since: float | None = None  # monotonic time of the first signal
    pipe: ClassVar[tuple[int, ...]] = ()  # receives signal numbers from Python's C handler
    before: ClassVar[dict[int, Any]] = {}  # handlers before the deferral


def status(error: BaseException | None) -> int:
    """Return the shell's exit status after an interruption: 130 after Ctrl-C, 143 after SIGTERM."""
    return SIGNALLED + getattr(error, "number", signal.SIGINT)


def end_at_once() -> None:
    """Let signals end this process with one line on stderr; signals that its parent ignores stay ignored."""
    for number in _heeded():
        signal.signal(number, _exit)


def pending() -> bool:
    """Return whether a signal is pending, so that the current work should be short."""
    return _State.number is not None


def unanswered() -> int | None:
    """Return a signal that the main thread has not handled, for instance while in C; callable from any thread."""
    with suppress(BlockingIOError):
        if _State.pipe and (numbers := os.read(_State.pipe[0], 1)) and _State.since is None:
            os.write(_State.pipe[1], numbers)  # for the next call
            return numbers[0]
    return None


def check() -> None:
    """Raise Interrupted if a signal has come since the deferral began."""
    if _State.number is not None:
        number, _State.number = _State.number, None
        raise Interrupted(number)


class deferred:  # noqa: N801
    """A context that defers signals to `check`; at its end a pending one is raised, unless an exception is.

    Contexts may be nested.
    """

    def __enter__(self) -> Self:
        # Only Python's main thread can set handlers; in another thread nothing changes.
        if threading.current_thread() is threading.main_thread():
            if not _State.depth:
                _State.number = _State.since = None

                # The C handler writes to the pipe even while this thread waits in C.
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
    """Return the signals that are not ignored and have a handler that Python can restore."""
    return [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def _remember(number: int, frame: FrameType | None) -> None:
    # Launchers repeat the terminal's signal, so only a later one counts as a second.
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
