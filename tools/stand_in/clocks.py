"""Clocks for the machine of cuda.py, in the place of the host's."""

import threading
import time


class MadeUpClock:
    """A clock that goes on only where the host is slow, or when a test sets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        time.sleep(0.02 * bool(seconds))  # in which a stream that nothing holds back would go on
        self.now += seconds


class Counted(MadeUpClock):
    """The same, without waiting: what takes time says how much."""

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Apart(MadeUpClock):
    """Of the host, and of each stream, which is never behind the host: only its own work makes its time longer."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[int, float] = {}  # streams' threads

    def perf_counter(self) -> float:
        thread = threading.get_ident()
        if threading.current_thread() is threading.main_thread():
            return self.now
        self._of[thread] = max(self._of.get(thread, 0.0), self.now)
        return self._of[thread]

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            super().sleep(seconds)
        else:
            self._of[threading.get_ident()] = self.perf_counter() + seconds


class Skewed:
    """A device's clock that is ahead, or goes faster than the host's."""

    ahead, rate = 0.0, 1.0

    def perf_counter(self) -> float:
        return self.ahead + self.rate * time.perf_counter()
