"""Checks of an implementation: right results, tolerance of late ranks, plausible times.

Before timing, an implementation makes one checked call, then many back to back with delayed ranks. Its times must be
physically possible and grow with the number of operations.
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
"""Each phase has its own, so that one phase's leftovers cannot pass for another's result."""

_STRESS_SEED = 1000  # of the first back-to-back call; later calls add 1
_COLD = 1e-3  # seconds: a first operation up to this long is believed

MOST = 256  # calls back to back
SMALL = 2**18  # bytes: up to this size even a busy machine makes many calls
_SECONDS = 0.01  # duration of an implementation's calls in a sweep, unless they are too few
_CHECK_SECONDS = 0.003  # the same in a run that only checks, for thousands of cases
_BESIDES = 3e-6  # overhead of a call in seconds
_LATE = 2e-6, 0.01  # seconds that a rank is late, least and most
_LATE_SMALL = 2e-4  # the most for small cases, which take longer only if ranks share cores
_LEAST = 16, 8  # fewest calls in a sweep, and in a run that only checks
_SLOW = 0.02  # seconds: for longer operations two calls suffice
_LEAST_LARGE = 6
_DELAYED = 32  # most calls
_TURNS = 3.0  # duration of a call with a late rank, in operations

_FEW, _MANY, _MOST_ROUNDS = 3, 40, 120  # rounds: to pass, to decide, and in all
_SURE = 4.0  # standard deviations above half for the share of suspicious rounds
_LEAST_GROWTH = 2.0  # least growth of time for four times the launches; a busy machine may stretch either
_FACTOR, _STEPS = 4, 8  # factor between numbers of launches, and how many numbers to try
_SHARE = 0.6  # least time in their own loop, as a share of the time one by one
_CALL = 20e-9  # seconds that separate calls may add to an operation


def checked(
    case: Case, prepared: Prepared, platform: Platform, sampling: Sampling, delayed: Implementation | None = None
) -> CheckFailure | None:
    """*Collective*: check one operation between barriers, then many without; return the failure, or None.

    `delayed` adds a check with kernels that lose time in the middle of an operation.
    """
    platform.checker.fill(case, CHECK_SEED, prepared.wire)
    seconds = platform.clock.time(prepared, 1)
    if failure := platform.checker.check(case, CHECK_SEED, prepared.wire):
        return failure

    # Delays are planned from an operation's time, and the first one may be unusually long.
    if seconds < _COLD or case.nbytes <= SMALL:
        seconds = min(seconds, *(platform.clock.time(prepared, 1) for _ in range(2)))
    calls = plan(case, seconds, sampling, _STRESS_SEED)
    if failure := platform.checker.stress(case, prepared, calls):
        return failure

    # Kernels delayed midway reveal faults that late ranks do not.
    if delayed and not prepared.host_driven:
        try:
            with platform.team.agreeing():
                other = platform.with_delays(seconds)  # None if the platform has none
                slow = delayed.prepare(case, other) if other else None
        except Unsupported as reason:
            raise CaseFailed(f"the stress check cannot be made: {reason}") from None
        if slow and (failure := platform.checker.stress(case, slow, delayed_plan(calls))):
            return failure
    return platform.checker.overrun(case)


def plan(case: Case, seconds: float, sampling: Sampling, seed: int) -> StressPlan:
    """Return the plan for operations of `seconds`, the same on every process."""
    small = case.nbytes <= SMALL

    # Every rank must be late once, in odd and even calls, so at least two calls. Small cases have more, even on a
    # busy machine.
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
    """Return the failure of operations faster than any hardware, or None; `seconds` by part."""
    # Bytes that a rank must write into its result; in place it already has its own block.
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
    """*Collective*: return the failure if a sample of `launches` launches seems to skip some, or None."""
    # Other programs only add time: take the shortest of several, and more in doubt.
    return _constant(prepared, platform, launches) or _skipping(prepared, platform, launches)


def _constant(prepared: Prepared, platform: Platform, launches: int) -> Implausible | None:
    """Return a failure if four times the launches take no longer, from half to twice a sample's number."""
    few = many = max(1, launches // 2)
    short = math.inf

    # Ranks that share cores may start late, so in doubt compare ever more launches with these few.
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
    """Return a failure if operations take much longer one by one than in their own loop."""
    singly = platform.clock.singly(prepared)
    if not singly:
        return None
    loop, single, shorter = math.inf, math.inf, 0
    ways = [("loop", prepared), ("single", singly)]
    for number in range(1, _MOST_ROUNDS + 1):
        took = {name: platform.clock.time(operation, launches) for name, operation in ways}

        # A B B A: on a shared core every second sample may be interrupted.
        ways.reverse()
        loop, single = min(loop, took["loop"]), min(single, took["single"])
        shorter += _much_shorter(took["loop"], took["single"])
        if number >= _FEW and not _much_shorter(loop, single):
            return None

        # If ranks wait for a core in every round, shortest times mean nothing: count rounds instead.
        if number >= _MANY and 2 * shorter - number >= _SURE * math.sqrt(number):
            taken = f"an operation takes {format_seconds(loop)} in its own loop and {format_seconds(single)} one by one"
            return Implausible(loop, f"{taken}, of {launches}: some are left out")
    return None


def _much_shorter(loop: float, single: float) -> bool:
    return loop < _SHARE * (single - _CALL)
