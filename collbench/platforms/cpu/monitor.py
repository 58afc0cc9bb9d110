"""A lock with a condition in memory that processes share: who waits sleeps, and who is through sees all before.

POSIX's own, by ctypes: a robust mutex and a condition variable on the monotonic clock, both process-shared.  Memory
order is theirs to keep: what a process stored before it unlocked, the next one that locks sees, on any hardware
(POSIX.1-2017, Base Definitions, 4.12 Memory Synchronization; pthread_mutex_lock, pthread_cond_timedwait).  The wait is
in the kernel (futex(2)), so ranks that outnumber the cores take no core from the one they wait for.
"""

import ctypes
import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from collbench.errors import CaseFailed

NBYTES = 512  # of a monitor; glibc's mutex has 40 or 48 bytes, its condition variable 48
_SHARED, _ROBUST = 1, 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST: of glibc and of musl
_CONDITION = 256  # bytes behind the mutex
_NAP = 1.0  # seconds of a wait, after which it looks at the time itself


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


class Monitor:
    """The one at an address, which one process prepares before any other comes."""

    def __init__(self, address: int) -> None:
        self._mutex, self._condition = ctypes.c_void_p(address), ctypes.c_void_p(address + _CONDITION)
        library = _library()
        self._lock, self._unlock = library.pthread_mutex_lock, library.pthread_mutex_unlock
        self._wait, self._wake = library.pthread_cond_timedwait, library.pthread_cond_broadcast

    def prepare(self) -> None:
        """Make it new; whatever lay there is gone."""
        library, attributes = _library(), ctypes.create_string_buffer(64)
        for start, (kind, place, more) in (
            (self._mutex, ("mutex", "mutexattr", ("setrobust", _ROBUST))),
            (self._condition, ("cond", "condattr", ("setclock", time.CLOCK_MONOTONIC))),
        ):
            _succeed(getattr(library, f"pthread_{place}_init")(attributes))
            _succeed(getattr(library, f"pthread_{place}_setpshared")(attributes, _SHARED))
            _succeed(getattr(library, f"pthread_{place}_{more[0]}")(attributes, more[1]))
            _succeed(getattr(library, f"pthread_{kind}_init")(start, attributes))
            _succeed(getattr(library, f"pthread_{place}_destroy")(attributes))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Alone inside; CaseFailed if a process died in there."""
        _succeed(self._lock(self._mutex))
        try:
            yield
        finally:
            self._unlock(self._mutex)

    def until(self, met: Callable[[], bool], patience: float) -> bool:
        """Inside `held`: let others in until that is met, for so many seconds at most; whether it is."""
        deadline = time.monotonic() + patience
        while not met():
            now = time.monotonic()
            if now >= deadline:
                return False
            end = min(deadline, now + _NAP)
            limit = _Timespec(int(end), int(end % 1 * 1e9))
            code = self._wait(self._condition, self._mutex, ctypes.byref(limit))
            if code != errno.ETIMEDOUT:
                _succeed(code)
        return True

    def wake(self) -> None:
        """Inside `held`: whoever waits looks again."""
        _succeed(self._wake(self._condition))


def _succeed(code: int) -> None:
    if code == errno.EOWNERDEAD:
        raise CaseFailed("a rank died while it held the lock that all share")
    if code:
        raise CaseFailed(f"a lock that ranks share fails: {os.strerror(code)}")
