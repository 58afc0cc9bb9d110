"""The stress check on a CPU: halts in the middle of an operation, by a real timer."""

import ctypes
import time
from typing import Any

import numpy as np
import pytest

from collbench.cases import Case
from collbench.errors import CaseFailed
from collbench.platforms import kernels
from collbench.platforms.cpu import stress
from collbench.platforms.layout import Region
from collbench.platforms.stress import Plan
from tests.conftest import case

LONG = 0.02  # seconds that an operation lasts


class Alone:
    """The buffers of a rank that has no others."""

    def __init__(self, one: Case) -> None:
        self.arrays = {region: np.zeros(one.nbytes + 128, np.uint8) for region in Region}

    def address(self, region: Region, rank: int) -> int:
        return self.arrays[region].ctypes.data


class Copying:
    """An operation that copies, then waits: what any collective is to one rank."""

    def __init__(self, memory: Alone, seconds: float) -> None:
        self.memory, self.seconds = memory, seconds

    def __call__(self, launches: int) -> None:
        self.memory.arrays[Region.RECEIVE][:] = self.memory.arrays[Region.SEND]
        began = time.thread_time()
        while time.thread_time() - began < self.seconds:
            pass


def carried_out(plan: Plan, seconds: float) -> tuple[np.ndarray[Any, Any], int]:
    """The check as C has left it, and what it returned."""
    one = case(nbytes=64, ranks=1)
    memory = Alone(one)
    operation = stress.Operation(Copying(memory, seconds))
    check, arrays = stress.prepared(memory, one, 0, operation, plan)
    run = kernels.host_function(kernels.JUDGE, "stress", kernels.defines(one.dtype, one.redop))
    refused = run(ctypes.c_void_p(check.ctypes.data))
    assert operation.failure is None
    assert not arrays["verdicts"]["wrong"].any()
    return check, refused


def test_a_rank_is_halted_once_in_every_call_that_is_its_turn() -> None:
    plan = Plan(6, 1e-6, seed=1, within=LONG / 2)
    turns = int(np.count_nonzero(plan.halts(0, 1)[:, 1]))
    check, refused = carried_out(plan, LONG)
    assert refused == 0
    assert 0 < turns < plan.calls
    assert int(check["halted"]) == turns
    for within in (0.0, 1e3):  # without halts, and with timers that end with their operation
        assert int(carried_out(Plan(6, 1e-6, seed=1, within=within), 0.0)[0]["halted"]) == 0, within


def test_without_timers_the_check_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weaker check would pass for the whole one."""
    one = case(nbytes=64, ranks=1)
    memory = Alone(one)
    monkeypatch.setattr(kernels, "host_function", lambda *_: lambda check: 11)
    with pytest.raises(CaseFailed, match=r"no timer for the stress check \(Resource temporarily unavailable\); fix: "):
        stress.carry_out(memory, one, 0, Copying(memory, 0.0), Plan(2, 1e-6, seed=1))
