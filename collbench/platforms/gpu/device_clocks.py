"""Clocks of devices, held against the host's: when streams got where, in seconds of the clock of their process.

CUDA tells how long after another an event was reached, by the device's own clock.  An event that is reached between two
looks at the host's clock ties the two together.  They drift apart by microseconds in a second, so they are tied again
after what is timed, and a moment between two ties is off by no more than these are.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from collbench.platforms.gpu.cuda import Cuda, Queue
from collbench.platforms.products import Moment

Seen = TypeVar("Seen")
Told = TypeVar("Told")

_LOOKS = 5  # at the clock of a device, of which the closest counts
_FRESH = 4.0
"""Seconds after which a device's clock is set anew: CUDA tells the milliseconds between two events as a 32-bit float,
which is within half a microsecond for so long, and the clocks of devices and host drift apart."""


def closest(look: Callable[[], Seen], told: Callable[[Seen], Told]) -> tuple[float, Told, float]:
    """When the quickest of several looks was, by the host's clock; what was told of what it saw; the error in seconds.

    It saw something between its two ends, so the middle is off by half of what it took at most.
    """
    answers: list[Told] = []
    shortest, at = math.inf, 0.0
    for _ in range(_LOOKS):
        begun = time.perf_counter()
        seen = look()
        if (elapsed := time.perf_counter() - begun) < shortest:
            shortest, at = elapsed, begun + elapsed / 2
            answers.append(told(seen))
    return at, answers[-1], shortest / 2


@dataclass
class _Tie:
    """An event and when it was reached; once there is another, the rate between them."""

    event: Any
    at: float
    rate: float = 1.0  # seconds of the host in one of the device

    def seconds(self, elapsed: float) -> float:
        """The host's time so many seconds of the device after it."""
        return self.at + self.rate * elapsed


class DeviceClocks:
    """Those of a process's devices."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._ties: dict[int, _Tie] = {}  # the latest, by device

    def moment(self, queue: Queue) -> Moment:
        """When a stream gets here, in seconds of the host's clock; the better, the later it is asked for."""
        if queue.device not in self._ties:
            self._tie(queue)
        tie, event = self._ties[queue.device], self._event(queue)
        return lambda: tie.seconds(self._elapsed(tie.event, event))

    def set(self, queues: Iterable[Queue]) -> float:
        """Tie every device's clock to the host's anew; seconds by which moments since the last time may be off it."""
        return max(self._tie(queue) for queue in {queue.device: queue for queue in queues}.values())

    def forget(self) -> None:
        """Those that are too old."""
        since = time.perf_counter() - _FRESH
        self._ties = {device: tie for device, tie in self._ties.items() if tie.at > since}

    def _tie(self, queue: Queue) -> float:
        """By the closest of several tries."""
        queue.enter().synchronize()
        before = self._ties.get(queue.device)

        def look() -> Any:
            event = self._event(queue)
            queue.enter().synchronize()
            return event

        at, event, error = closest(look, lambda seen: seen)
        tie = _Tie(event, at)
        if before and (passed := self._elapsed(before.event, tie.event)) > 0:
            before.rate = (tie.at - before.at) / passed
        self._ties[queue.device] = tie
        return error

    def _elapsed(self, first: Any, second: Any) -> float:
        return float(self._cuda.cupy.cuda.get_elapsed_time(first, second)) * 1e-3

    def _event(self, queue: Queue) -> Any:
        """Recorded now; an event belongs to the device that is current when it is made."""
        stream = queue.enter()
        event = self._cuda.cupy.cuda.Event()
        event.record(stream)
        return event
