"""Clocks for the machine of cuda.py, in the place of the host's."""

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


class Skewed:
    """A device's clock that is ahead, or goes faster than the host's."""

    ahead, rate = 0.0, 1.0

    def perf_counter(self) -> float:
        return self.ahead + self.rate * time.perf_counter()
