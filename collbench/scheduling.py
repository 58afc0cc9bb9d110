"""Whether ranks on CPUs had their cores while they were timed: what the operating system did, as facts of a row.

A rank that another program pushes off its core makes all ranks wait, for milliseconds where the operation takes a
microsecond.  Every rank looks at itself: wall time less CPU time of what is timed (clock_gettime(2),
CLOCK_THREAD_CPUTIME_ID), involuntary context switches (getrusage(2), RUSAGE_THREAD) and the cores it ran on
(sched_getcpu(3)).
"""

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

OFF_CORE = 0.02
"""Share of a sample's time from which on a rank that was off its core has spoiled the sample."""

RULE = 0.25
"""Share of a row's samples from which on spoiled ones are the rule, and the row is disturbed."""


@dataclass(frozen=True)
class Scheduling:
    """What the operating system did to the ranks of a row while its samples were taken."""

    off_core: float = 0.0  # share of the samples that a rank spent off its core, although they were repeated
    repeated: int = 0  # samples that were taken again for that reason
    switches: int = 0  # involuntary context switches of all ranks, those in repeated samples too
    cores: tuple[tuple[int, ...], ...] = ()  # on which each rank ran; empty where nobody looked

    @property
    def disturbed(self) -> bool:
        """Whether so many samples are spoiled that the row says more of the machine than of the implementation."""
        return self.off_core > RULE

    def __str__(self) -> str:
        """`disturbed: ranks were off their cores in 80% of the samples`; nothing where that is not the rule."""
        return f"disturbed: ranks were off their cores in {self.off_core:.0%} of the samples" if self.disturbed else ""

    @classmethod
    def of_ranks(cls, spoiled: Sequence[Sequence[bool]], repeated: int = 0) -> Self:
        """Return the scheduling of samples of which each rank says whether it was off its core."""
        samples = [any(ranks) for ranks in zip(*spoiled, strict=True)]
        return cls(sum(samples) / max(1, len(samples)), repeated)

    @classmethod
    def joined(cls, parts: Sequence[Self], samples: Sequence[int]) -> Self:
        """Return the scheduling of several parts of a row, which have so many samples each."""
        spoiled = sum(part.off_core * count for part, count in zip(parts, samples, strict=True))
        by_rank = [set[int]() for _ in max((part.cores for part in parts), key=len, default=())]
        for part in parts:
            for own, cores in zip(by_rank, part.cores, strict=False):
                own.update(cores)
        return cls(
            off_core=spoiled / max(1, sum(samples)),
            repeated=sum(part.repeated for part in parts),
            switches=sum(part.switches for part in parts),
            cores=tuple(tuple(sorted(own)) for own in by_rank),
        )


class Watch:
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
        self.cores.add(_library().sched_getcpu())

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


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def run_delay() -> float:
    """Return the seconds in which this thread could have run and had no core; 0 where the kernel does not count them.

    The second number of /proc/thread-self/schedstat (Documentation/scheduler/sched-stats.rst).  Unlike wall less CPU
    time, it leaves out what a thread waits for by itself, in a lock or a sleep.
    """
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


_SCHEDSTAT = Path("/proc/thread-self/schedstat")
