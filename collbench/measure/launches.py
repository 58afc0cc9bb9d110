"""How many operations a sample has: so many that they, and not what holds ranks up, last as long as it should."""

import math

from collbench.cases import Sampling
from collbench.platforms.interface import Platform, Prepared

_MOST = 2**16
_WAIT = 3e-3, 30e-3  # seconds that a sample takes longer where a rank must wait for a core, a scheduler's tick or some
_SLOWEST = 50e6  # bytes per second: operations that are slower may be in doubt
_MORE, _GROWTH = 8, 4.0  # in doubt so many times the launches are tried, which take so much longer at least


_SLICE = 3e-3  # seconds that a scheduler lets one program run beside another, about
_TRIES = 4  # of a sample in which a rank was off its core


def repeatable(platform: Platform, lasted: float) -> bool:
    """Whether a rank was off its core in what was timed last, and trying again may help.

    What takes longer than a time slice on the core meets the other program again.
    """
    return platform.clock.scheduled.spoiled and lasted * (1 - platform.clock.scheduled.off_core) < _SLICE


def steady(prepared: Prepared, platform: Platform, launches: int) -> float:
    """*Collective*: seconds per operation of the fastest of a few tries, until no rank is off its core."""
    fastest = math.inf
    for _ in range(_TRIES):
        seconds = platform.clock.time(prepared, launches)
        fastest = min(fastest, seconds)
        if not repeatable(platform, seconds * launches):
            break
    return fastest


def calibrate(prepared: Prepared, platform: Platform, sampling: Sampling, launches: int = 1, nbytes: int = 0) -> int:
    """Double the launches until they, and not what holds ranks up, last as long as a sample should."""
    region = _region(platform, sampling)
    while launches < _MOST:
        elapsed = min(steady(prepared, platform, launches) for _ in range(2)) * launches
        if elapsed < region:
            launches *= 2
        elif _held_up(prepared, platform, launches, elapsed, nbytes):
            launches = min(_MORE * launches, _MOST)
        else:
            break
    return launches


def _region(platform: Platform, sampling: Sampling) -> float:
    return platform.clock.region if sampling.region is None else sampling.region


def _held_up(prepared: Prepared, platform: Platform, launches: int, elapsed: float, nbytes: int) -> bool:
    """Whether ranks waited for a core, which takes as long before many operations as before one.

    Samples of one operation would show nothing but that wait.
    """
    least, most = _WAIT
    if not least + nbytes / _SLOWEST < elapsed < most:
        return False
    many = _MORE * launches
    return min(platform.clock.time(prepared, many) for _ in range(2)) * many < _GROWTH * elapsed


def disturbed(lasted: float, platform: Platform, sampling: Sampling) -> bool:
    """Whether a sample that lasted so many seconds shows that its calibration was disturbed, and it was not."""
    return lasted < _region(platform, sampling) / _MORE
