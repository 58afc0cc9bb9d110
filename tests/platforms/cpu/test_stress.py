"""What a stress check looks at, who is late when, and halts in the middle of an operation, by a real timer."""

import ctypes
import time

import numpy as np
import pytest

from collbench.cases import Case, Sampling
from collbench.errors import CaseFailed
from collbench.measure import stress as planned
from collbench.platforms import checking, compiler, stress
from collbench.platforms.cpu import check as on_cpu
from collbench.platforms.layout import Region
from collbench.platforms.stress import Plan
from tests.conftest import case

EVERY_RANK = [(rank, ranks) for ranks in (1, 2, 3, 8) for rank in range(ranks)]
LONG = 0.02  # seconds that an operation lasts


def test_every_rank_is_late_in_turn_and_in_odd_calls_as_in_even_ones() -> None:
    for ranks in (1, 2, 3, 8):
        calls = 2 * (ranks + 1) * max(2, ranks)
        late = np.array([Plan(calls, 1e-3, seed=1).stalls(rank, ranks) for rank in range(ranks)]) >= 1_000_000
        assert (late.sum(axis=0) <= 1).all(), "two ranks late at once hide each other"
        for rank in range(ranks):
            assert {number % 2 for number in np.flatnonzero(late[rank])} == {0, 1}, (rank, ranks)
        assert (~late).all(axis=0).any(), "in some calls nobody is"
    for rank, ranks in EVERY_RANK[1:]:
        assert (Plan(ranks, 1e-3, seed=7).stalls(rank, ranks) >= 1_000_000).sum() == 1, "few calls, each late once"
    assert Plan(1000, 0.01, seed=1).stalls(0, 2, longest=0.02).max() == 20_000_000


def test_who_is_late_also_halts_at_some_moment_of_the_operation() -> None:
    """Earlier it would halt while it waits for whoever is late."""
    plan = Plan(64, 1e-3, seed=1, within=1e-3)
    for rank, ranks in EVERY_RANK:
        moments, lengths = plan.halts(rank, ranks).T
        late = plan.stalls(rank, ranks) >= 1_000_000
        assert (lengths == np.where(late, 1_000_000, 0)).all(), (rank, ranks)
        assert ((moments > 0) == late).all(), (rank, ranks)
        assert moments.max() < 1_000_000, (rank, ranks)
        assert len(set(moments[late])) == late.sum(), (rank, ranks)
    for within, length in ((0.0, 0), (2e-5, 20_000), (1e-3, 1_000_000), (1.0, 5_000_000)):
        assert Plan(8, 1e-3, seed=1, within=within).halts(0, 2)[:, 1].max() == length, within


def test_small_operations_are_called_hundreds_of_times_and_large_ones_twice() -> None:
    """So that it costs little: a few milliseconds, or as many calls as it takes for every rank to be late once.

    Operations that no timer can interrupt are not halted.
    """
    for nbytes, seconds, sampling, ranks, calls, within in (
        (8, 1e-7, Sampling(), 2, 256, 0.0),
        (8, 1e-4, Sampling(), 2, 33, 1e-4),
        (8, 1e-2, Sampling(), 2, 16, 1e-2),
        (2**20, 9e-6, Sampling(), 2, None, 0.0),
        (2**20, 1e-5, Sampling(), 2, None, 1e-5),
        (2**27, 0.05, Sampling(), 2, 2, 0.05),
        (2**27, 0.01, Sampling(), 2, 6, 0.01),  # one halt may be swallowed by another program
        (2**27, 0.01, Sampling(check_only=True), 2, 2, 0.01),
        (2**27, 0.05, Sampling(), 4, 4, 0.05),
    ):
        plan = planned.plan(case(nbytes=nbytes, ranks=ranks), seconds, sampling, 1)
        assert calls in (None, plan.calls), (nbytes, seconds)
        assert plan.within == within, (nbytes, seconds)


def test_kernels_that_hesitate_are_called_less_often_and_with_seeds_of_their_own() -> None:
    plan = planned.plan(case(nbytes=8), 1e-7, Sampling(), 1)
    slow = planned.hesitating(plan)
    assert (plan.calls, slow.calls, slow.late) == (256, 32, plan.late)
    assert slow.seed >= plan.seed + plan.calls
    assert planned.hesitating(planned.plan(case(nbytes=2**27), 0.05, Sampling(), 1)).calls == 2
    assert [stress.lost(seconds) for seconds in (1e-6, 1e-4, 1.0)] == [50_000, 400_000, 5_000_000]


def test_a_call_is_looked_at_in_64_kib_at_most_and_all_of_a_small_one() -> None:
    for name, nbytes in (("allreduce", 4), ("allreduce", 4004), ("allreduce", 2**26), ("allgather", 3 * 2**20)):
        one = case(name, nbytes, ranks=3)
        count = stress.looked_at(stress.probe(one))
        looked = count * 4 * (max(one.send_count, one.receive_count) // one.block)
        assert looked <= stress.LOOKED_AT, (name, nbytes)
        assert count == one.block or looked > stress.LOOKED_AT / 2, (name, nbytes)


def test_a_mismatch_names_its_first_call_and_what_nobody_looked_at_is_no_verdict() -> None:
    one, plan = case(nbytes=400), Plan(3, 1e-6, seed=1)
    verdict = np.full(1, checking.CLEAN, checking.VERDICT)
    with pytest.raises(CaseFailed, match="looked at 0 elements of 300"):
        stress.found(one, plan, 0, verdict, kept=True)
    verdict["seen"], verdict["wrong"], verdict["first"] = 300, 5, (2 << 48) + 17
    mismatch = stress.found(one, plan, 0, verdict, kept=False)
    assert mismatch is not None
    assert (mismatch.call, mismatch.calls, mismatch.index, mismatch.wrong, mismatch.got) == (2, 3, 17, 5, "")
    assert mismatch.expected == str(one.expected(0, seed=3)[0][1][17])


class Alone:
    """The buffers of a rank that has no others, and an operation that copies, then waits."""

    def __init__(self, one: Case, seconds: float) -> None:
        self.arrays, self.seconds = {region: np.zeros(one.nbytes + 128, np.uint8) for region in Region}, seconds

    def address(self, region: Region, rank: int) -> int:
        return self.arrays[region].ctypes.data

    def copy(self, launches: int) -> None:
        self.arrays[Region.RECEIVE][:] = self.arrays[Region.SEND]
        began = time.thread_time()
        while time.thread_time() - began < self.seconds:
            pass


def halted(plan: Plan, seconds: float) -> int:
    """How often C has halted the operation."""
    one = case(nbytes=64, ranks=1)
    memory = Alone(one, seconds)
    operation = on_cpu.Operation(memory.copy)
    check, arrays = on_cpu.prepared(memory, one, 0, operation, plan)
    run = compiler.host_function(compiler.JUDGE, "stress", compiler.defines(one.dtype, one.redop))
    assert run(ctypes.c_void_p(check.ctypes.data)) == 0
    assert operation.failure is None
    assert not arrays["verdicts"]["wrong"].any()
    return int(check["halted"])


def test_a_rank_is_halted_once_in_every_call_that_is_its_turn_and_not_after_its_operation() -> None:
    plan = Plan(6, 1e-6, seed=1, within=LONG / 2)
    turns = int(np.count_nonzero(plan.halts(0, 1)[:, 1]))
    assert 0 < turns < plan.calls
    assert halted(plan, LONG) == turns
    assert halted(Plan(6, 1e-6, seed=1), 0.0) == halted(Plan(6, 1e-6, seed=1, within=1e3), 0.0) == 0


def test_without_timers_the_check_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weaker check would pass for the whole one."""
    one = case(nbytes=64, ranks=1)
    memory = Alone(one, 0.0)
    monkeypatch.setattr(compiler, "host_function", lambda *_: lambda check: 11)
    with pytest.raises(CaseFailed, match=r"no timer for the stress check \(Resource temporarily unavailable\); fix: "):
        on_cpu.carry_out(memory, one, 0, memory.copy, Plan(2, 1e-6, seed=1))
