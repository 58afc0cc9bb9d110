"""What no rank on this CPU does: a bound for plausible times, from a copy that stays in the caches."""

import ctypes
import time

from collbench.platforms.processes import Team
from collbench.platforms.roles import Limits

_COPIED = 128 * 1024  # bytes: they stay in the second level of any cache of today
_TRIALS = 64  # of which the fastest counts, since a machine may be busy
_MARGIN = 8  # times as fast: data in the first level of a cache is copied two to four times as fast as there
_LEAST = 100e9  # bytes per second that the bound is never below, whatever the trials say
_LATENCY = 3e-9  # seconds: even hyperthreads of one core take longer to see each other's stores


def limits(team: Team) -> Limits:
    """*Collective*: the same on every rank, by the fastest of them."""
    source, target = (ctypes.create_string_buffer(_COPIED) for _ in range(2))
    fastest = min(_seconds(target, source) for _ in range(_TRIALS))
    copied = max(team.exchange(_COPIED / fastest))
    rate = max(_MARGIN * copied, _LEAST)
    return Limits(_LATENCY, rate, f"{_MARGIN} times the {copied / 1e9:.3g} GB/s at which a core copies in its caches")


def _seconds(target: ctypes.Array[ctypes.c_char], source: ctypes.Array[ctypes.c_char]) -> float:
    start = time.perf_counter()
    ctypes.memmove(target, source, _COPIED)
    return time.perf_counter() - start
