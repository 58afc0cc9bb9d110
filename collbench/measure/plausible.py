"""Times that cannot be: too short for the bytes that must move, or no longer for more operations."""

from collbench.cases import Case
from collbench.flaws import Implausible
from collbench.platforms.roles import Limits, Prepared, Timing
from collbench.units import format_seconds, format_size

_FEW, _MANY = 3, 40  # rounds that are always taken, and those after which there is no doubt
_GROWTH = 2.0  # that four times the launches must take at least: a busy machine may stretch either
_FACTOR = 4


def too_fast(case: Case, seconds: float, limits: Limits) -> Implausible | None:
    """Whether operations of so many seconds are faster than any hardware, with the arithmetic."""
    nbytes = _received(case)
    if nbytes > seconds * limits.rate:
        seen = f"{nbytes / seconds / 1e9:,.0f} GB/s" if seconds else "no time"
        bound = f"more than {limits.rate / 1e9:,.0f} GB/s ({limits.measured}) is impossible"
        return Implausible(seconds, f"{format_size(nbytes)} received in {format_seconds(seconds)} is {seen}; {bound}")
    if case.ranks > 1 and seconds < limits.latency:
        return Implausible(
            seconds,
            f"{format_seconds(seconds)} an operation, although no rank hears from another "
            f"in less than {format_seconds(limits.latency)}",
        )
    return None


def _received(case: Case) -> int:
    """Bytes that some rank must write into its result at least; in place its own block of it is there already."""
    there = case.block if case.in_place and (case.collective.sharded or case.ranks == 1) else 0
    return (case.receive_count - there) * case.dtype.itemsize


def stuck(prepared: Prepared, platform: Timing, launches: int) -> Implausible | None:
    """Whether four times the launches take no longer than so many; of half and twice as many as a sample has.

    The shortest times count, and doubt is settled by more of them: whatever else runs only makes them longer.
    """
    if launches < 2:
        return None
    few, many = launches // 2, launches // 2 * _FACTOR
    shortest = [float("inf"), float("inf")]
    for number in range(_MANY):
        for place, count in enumerate((few, many)):
            shortest[place] = min(shortest[place], platform.time(prepared, count) * count)
        if number + 1 >= _FEW and shortest[1] >= _GROWTH * shortest[0] > 0:
            return None
    taken = [format_seconds(seconds) for seconds in shortest]
    return Implausible(
        shortest[1] / many,
        f"{many} operations take {taken[1]} and {few} take {taken[0]}: the time does not grow with their number",
    )
