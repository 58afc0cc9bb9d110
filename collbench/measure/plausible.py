"""Times that cannot be: too short for the bytes that must move, or for the number of operations.

Whatever else runs on a machine makes times longer, so the shortest of several count, and doubt is settled by more.
"""

import math

from collbench.cases import Case
from collbench.flaws import Implausible
from collbench.platforms.interface import Limits, Platform, Prepared
from collbench.units import format_seconds, format_size

_FEW, _MANY, _MOST = 3, 40, 120  # rounds that decide if all is well, those after which there may be no doubt, and all
_SURE = 4.0  # standard deviations that rounds which look wrong are more than half of them
_GROWTH = 2.0  # that four times the launches must take at least: a busy machine may stretch either
_FACTOR, _STEPS = 4, 8  # how much more launches are tried, and how often that
_SHARE = 0.6  # of the time that operations take one by one: what they take in their own loop at least
_CALL = 20e-9  # seconds that calling one by one may add to an operation


def too_fast(case: Case, seconds: float, limits: Limits) -> Implausible | None:
    """Whether operations whose parts take so many seconds are faster than any hardware, with the arithmetic."""
    nbytes = _received(case)
    if nbytes > seconds * limits.rate:
        seen = f"{nbytes / seconds / 1e9:,.0f} GB/s" if seconds else "no time"
        bound = f"more than {limits.rate / 1e9:,.0f} GB/s ({limits.measured}) is impossible"
        return Implausible(seconds, f"{format_size(nbytes)} received in {format_seconds(seconds)} is {seen}; {bound}")
    whole = seconds * case.collective.parts
    if case.ranks > 1 and whole < limits.latency:
        return Implausible(
            seconds,
            f"{format_seconds(whole)} an operation, although no rank hears from another "
            f"in less than {format_seconds(limits.latency)}",
        )
    return None


def _received(case: Case) -> int:
    """Bytes that some rank must write into its result at least; in place its own block of it is there already."""
    there = case.block if case.in_place and (case.collective.sharded or case.ranks == 1) else 0
    return (case.receive_count - there) * case.dtype.itemsize


def left_out(prepared: Prepared, platform: Platform, launches: int) -> Implausible | None:
    """Whether a sample of so many launches seems to leave some of them out."""
    return _stuck(prepared, platform, launches) or _skipping(prepared, platform, launches)


def _stuck(prepared: Prepared, platform: Platform, launches: int) -> Implausible | None:
    """Whether four times the launches take no longer than so many; of half and twice as many as a sample has.

    Ranks that share cores may take long to begin, so in doubt ever more launches are compared with these few.
    """
    few = many = max(1, launches // 2)
    short = math.inf
    for _ in range(_STEPS):
        many, long = _FACTOR * many, math.inf
        for _ in range(_FEW):
            short = min(short, platform.clock.time(prepared, few) * few)
            long = min(long, platform.clock.time(prepared, many) * many)
        if long >= _GROWTH * short > 0:
            return None
    taken = f"{many} operations take {format_seconds(long)} and {few} take {format_seconds(short)}"
    return Implausible(long / many, f"{taken}: the time does not grow with their number")


def _skipping(prepared: Prepared, platform: Platform, launches: int) -> Implausible | None:
    """Whether operations take much longer one by one than in their own loop.

    In the shortest times of both, and round by round too: ranks that wait for a core in every round have shortest times
    that are anything, but as often longer in the loop as one by one.
    """
    singly = platform.clock.singly(prepared)
    if not singly:
        return None
    loop, single, shorter = math.inf, math.inf, 0
    for number in range(1, _MOST + 1):
        one, other = _both(prepared, singly, platform, launches, number)
        loop, single, shorter = min(loop, one), min(single, other), shorter + _much_shorter(one, other)
        if number >= _FEW and not _much_shorter(loop, single):
            return None
        if number >= _MANY and 2 * shorter - number >= _SURE * math.sqrt(number):
            taken = f"an operation takes {format_seconds(loop)} in its own loop and {format_seconds(single)} one by one"
            return Implausible(loop, f"{taken}, of {launches}: some are left out")
    return None


def _both(prepared: Prepared, singly: Prepared, platform: Platform, launches: int, number: int) -> tuple[float, float]:
    """Seconds of an operation in its own loop, and of one by itself.

    Who begins takes turns (A B B A): on a shared core every second sample may be the one that is cut off in its middle,
    for as long as one looks.
    """
    if number % 2:
        loop = platform.clock.time(prepared, launches)
        return loop, platform.clock.time(singly, launches)
    single = platform.clock.time(singly, launches)
    return platform.clock.time(prepared, launches), single


def _much_shorter(loop: float, single: float) -> bool:
    return loop < _SHARE * (single - _CALL)
