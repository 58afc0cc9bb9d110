"""Checks of an implementation before and while it is timed: right results, however late ranks come, and likely times.

Before it is timed an implementation is tried by one call, then by many back to back with delayed ranks.  Times may not
be shorter than any hardware needs, and must grow with the number of operations.
"""

import math
from dataclasses import replace

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.errors import CaseFailed, Unsupported
from collbench.platforms.checking import StressPlan
from collbench.platforms.interface import Limits, Platform, Prepared
from collbench.results.facts import CheckFailure, Implausible
from collbench.units import format_seconds, format_size

SEEDS = CHECK_SEED, CALIBRATION_SEED, SAMPLES_SEED, CLOSING_SEED = 1, 2, 3, 4
"""Each phase has its own, so that nothing left over from one passes for a result of another."""

_STRESS_SEED = 1000  # of the first call back to back; the others follow it
_COLD = 1e-3  # seconds of a first operation that is believed, unless it is small

MOST = 256  # calls back to back
SMALL = 2**18  # bytes: of cases up to that size even a busy machine makes many calls
_SECONDS = 0.01  # that the calls of an implementation take in a sweep, as far as that is not too few of them
_CHECK_SECONDS = 0.003  # and where nothing else is done, for thousands of cases
_BESIDES = 3e-6  # seconds that a call takes besides its operation
_LATE = 2e-6, 0.01  # seconds that a rank is late, at least and at most
_LATE_SMALL = 2e-4  # and at most of small cases, which take longer only where ranks share cores
_LEAST = 16, 8  # calls in a sweep, and in a run that only checks
_SLOW = 0.02  # seconds of an operation from which on two calls are the least, else
_LEAST_LARGE = 6
_DELAYED = 32  # calls at most
_TURNS = 3.0  # operations that a call takes as long as, with a rank that is late

_FEW, _MANY, _MOST_ROUNDS = 3, 40, 120  # rounds that decide if all is well, those after which it must be clear, and all
_SURE = 4.0  # standard deviations that rounds which look wrong are more than half of them
_LEAST_GROWTH = 2.0  # that four times the launches must take at least: a busy machine may stretch either
_FACTOR, _STEPS = 4, 8  # how much more launches are tried, and how often that
_SHARE = 0.6  # of the time that operations take one by one: what they take in their own loop at least
_CALL = 20e-9  # seconds that calling one by one may add to an operation


def checked(
    case: Case, prepared: Prepared, platform: Platform, sampling: Sampling, delayed: Implementation | None = None
) -> CheckFailure | None:
    """*Collective*: check one operation between meetings of the ranks, then many without; what is wrong, or None.

    `delayed` is tried once more by kernels that lose time in the middle of an operation.
    """
    platform.checker.fill(case, CHECK_SEED, prepared.wire)
    seconds = platform.clock.time(prepared, 1)
    if failure := platform.checker.check(case, CHECK_SEED, prepared.wire):
        return failure

    # The first operation may have been long because it was the first, and delays are planned by its time.
    if seconds < _COLD or case.nbytes <= SMALL:
        seconds = min(seconds, *(platform.clock.time(prepared, 1) for _ in range(2)))
    calls = plan(case, seconds, sampling, _STRESS_SEED)
    if failure := platform.checker.stress(case, prepared, calls):
        return failure

    # Kernels that lose time in their middle show what late ranks do not; a weaker check would be no check.
    if delayed and not prepared.host_driven:
        try:
            with platform.team.agreeing():
                other = platform.with_delays(seconds)  # None on a platform that has none
                slow = delayed.prepare(case, other) if other else None
        except Unsupported as reason:
            raise CaseFailed(f"the stress check cannot be made: {reason}") from None
        if slow and (failure := platform.checker.stress(case, slow, delayed_plan(calls))):
            return failure
    return platform.checker.overrun(case)


def plan(case: Case, seconds: float, sampling: Sampling, seed: int) -> StressPlan:
    """Return the plan for operations of `seconds`, the same on every process."""
    small = case.nbytes <= SMALL

    # Every rank is late once at least, and calls are odd and even, so two are the fewest.  Of small cases there are
    # more, however slow a busy machine seems.
    large = 2 if sampling.check_only or seconds > _SLOW else _LEAST_LARGE
    least = max(_LEAST[sampling.check_only] if small else large, min(case.ranks, 8))
    late = min(max(seconds, _LATE[0]), _LATE_SMALL if small else _LATE[1])
    spend = _CHECK_SECONDS if sampling.check_only else _SECONDS
    affordable = int(spend / (seconds + (_TURNS - 1) * late + _BESIDES))
    return StressPlan(max(least, min(MOST, affordable)), late, seed)


def delayed_plan(plan: StressPlan) -> StressPlan:
    """Return the plan for kernels that are delayed in every call, with other seeds."""
    return replace(plan, calls=min(plan.calls, _DELAYED), seed=plan.seed + MOST)


def too_fast(case: Case, seconds: float, limits: Limits) -> Implausible | None:
    """Return the fault of operations faster than any hardware, or None; `seconds` by part."""
    # Bytes that a rank must write into its result; in place, its own block is already written.
    count = case.receive_count
    if case.in_place and (case.collective.sharded or case.ranks == 1):
        count -= case.block
    nbytes = count * case.dtype.itemsize
    if nbytes > seconds * limits.rate:
        rate = f"{nbytes / seconds / 1e9:,.0f} GB/s" if seconds else "no time"
        bound = f"more than {limits.rate / 1e9:,.0f} GB/s ({limits.measured}) is impossible"
        return Implausible(seconds, f"{format_size(nbytes)} received in {format_seconds(seconds)} is {rate}; {bound}")
    whole = seconds * case.collective.parts
    if case.ranks > 1 and whole < limits.latency:
        least = f"no rank hears from another in less than {format_seconds(limits.latency)}"
        return Implausible(seconds, f"{format_seconds(whole)} an operation, although {least}")
    return None


def left_out(prepared: Prepared, platform: Platform, launches: int) -> Implausible | None:
    """*Collective*: return the fault if a sample of `launches` launches seems to leave some of them out."""
    # Other programs on a machine make times longer: the shortest of several counts, and more are taken in doubt.
    return _constant(prepared, platform, launches) or _skipping(prepared, platform, launches)


def _constant(prepared: Prepared, platform: Platform, launches: int) -> Implausible | None:
    """Look whether four times the launches take no longer, from half to twice as many as a sample has."""
    few = many = max(1, launches // 2)
    short = math.inf

    # Ranks that share cores may take long to begin, so in doubt ever more launches are compared with these few.
    for _ in range(_STEPS):
        many, long = _FACTOR * many, math.inf
        for _ in range(_FEW):
            short = min(short, platform.clock.time(prepared, few) * few)
            long = min(long, platform.clock.time(prepared, many) * many)
        if long >= _LEAST_GROWTH * short > 0:
            return None
    taken = f"{many} operations take {format_seconds(long)} and {few} take {format_seconds(short)}"
    return Implausible(long / many, f"{taken}: the time does not grow with their number")


def _skipping(prepared: Prepared, platform: Platform, launches: int) -> Implausible | None:
    """Look whether operations take much longer one by one than in their own loop."""
    singly = platform.clock.singly(prepared)
    if not singly:
        return None
    loop, single, shorter = math.inf, math.inf, 0
    ways = [("loop", prepared), ("single", singly)]
    for number in range(1, _MOST_ROUNDS + 1):
        took = {name: platform.clock.time(operation, launches) for name, operation in ways}

        # A B B A: on a shared core every second sample may be the one that is cut off in its middle.
        ways.reverse()
        loop, single = min(loop, took["loop"]), min(single, took["single"])
        shorter += _much_shorter(took["loop"], took["single"])
        if number >= _FEW and not _much_shorter(loop, single):
            return None

        # Ranks that wait for a core in every round have shortest times that are anything: there rounds are counted.
        if number >= _MANY and 2 * shorter - number >= _SURE * math.sqrt(number):
            taken = f"an operation takes {format_seconds(loop)} in its own loop and {format_seconds(single)} one by one"
            return Implausible(loop, f"{taken}, of {launches}: some are left out")
    return None


def _much_shorter(loop: float, single: float) -> bool:
    return loop < _SHARE * (single - _CALL)
