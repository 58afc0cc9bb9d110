"""How ranks on CPUs see that they were off their cores: what the operating system says of a thread.

Every rank looks at itself: wall time less CPU time of what is timed (clock_gettime(2), CLOCK_THREAD_CPUTIME_ID),
involuntary context switches (getrusage(2), RUSAGE_THREAD) and the cores it ran on (sched_getcpu(3)).
"""

import ctypes
import time
from pathlib import Path
from typing import Self

OFF_CORE = 0.02
"""Share of a sample's time from which on a rank that was off its core has spoiled the sample."""

_LIBRARY = ctypes.CDLL(None)
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class SchedulingWatch:
    """What a rank sees of its scheduling while it is timed; `off_core` is of all ranks and the last region alone."""

    def __init__(self) -> None:
        self.off_core = 0.0  # largest share, over the ranks, of the last timed region
        self.switches = 0  # involuntary, of this rank since a row was begun
        self.cores: set[int] = set()  # likewise

    @property
    def spoiled(self) -> bool:
        """Whether a rank was off its core in the last region for so long that its time means nothing."""
        return self.off_core > OFF_CORE

    def look(self) -> None:
        """Note on which core this thread runs now."""
        self.cores.add(_LIBRARY.sched_getcpu())

    def take(self) -> tuple[int, tuple[int, ...]]:
        """Return this rank's switches and cores since this was last called."""
        taken = self.switches, tuple(sorted(self.cores))
        self.switches, self.cores = 0, set()
        return taken


class RunQueue:
    """How long a thread waits for a core while it does something that may also sleep: `with` it around that.

    Afterwards `seconds` is how long that lasted, and `off_core` the share of it in which the thread had no core.
    """

    def __enter__(self) -> Self:
        self._delay, self._start = run_delay(), time.perf_counter()
        self.seconds, self.off_core = 0.0, 0.0
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.off_core = (run_delay() - self._delay) / self.seconds

    @property
    def spoiled(self) -> bool:
        """Whether the thread was off its core for so long that the time means nothing."""
        return self.off_core > OFF_CORE


def run_delay() -> float:
    """Return the seconds in which this thread could have run and had no core; 0 where the kernel counts none."""
    # The second number of schedstat (Documentation/scheduler/sched-stats.rst).  Unlike wall less CPU time, it leaves
    # out what a thread waits for by itself, in a lock or a sleep.
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0
