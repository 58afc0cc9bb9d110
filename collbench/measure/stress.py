"""How hard an implementation is tried before it is timed: how many calls back to back, and how late ranks come."""

from dataclasses import replace

from collbench.cases import Case, Sampling
from collbench.platforms.checking import Plan

MOST = 256  # calls
_SECONDS = 0.01  # that the calls of an implementation take in a sweep, as far as that is not too few of them
_CHECK_SECONDS = 0.003  # and where nothing else is done, for thousands of cases
_BESIDES = 3e-6  # seconds that a call takes besides its operation
_LATE = 2e-6, 0.01  # seconds that a rank is late, at least and at most
_LATE_SMALL = 2e-4  # and at most of small cases, which take longer only where ranks share cores
SMALL = 2**18  # bytes: of cases up to that size even a busy machine makes many calls
_LEAST = 16, 8  # of those in a sweep, and where nothing else is done
_SLOW = 0.02  # seconds of an operation from which on two calls are the least, else
_LEAST_LARGE = 6
_DELAYED = 32  # calls at most
_TURNS = 3.0  # operations that a call takes as long as, with a rank that is late


def plan(case: Case, seconds: float, sampling: Sampling, seed: int) -> Plan:
    """Return the plan for operations of so many seconds, the same on every process.

    Every rank is late once at least, and calls are odd and even; so two calls are the fewest.  Of small cases there are
    more, however slow a busy machine seems.
    """
    small = case.nbytes <= SMALL
    large = 2 if sampling.check_only or seconds > _SLOW else _LEAST_LARGE
    least = max(_LEAST[sampling.check_only] if small else large, min(case.ranks, 8))
    late = min(max(seconds, _LATE[0]), _LATE_SMALL if small else _LATE[1])
    spend = _CHECK_SECONDS if sampling.check_only else _SECONDS
    affordable = int(spend / (seconds + (_TURNS - 1) * late + _BESIDES))
    return Plan(max(least, min(MOST, affordable)), late, seed)


def delayed(plan: Plan) -> Plan:
    """Return the plan for kernels that are delayed in every call, with other seeds."""
    return replace(plan, calls=min(plan.calls, _DELAYED), seed=plan.seed + MOST)
