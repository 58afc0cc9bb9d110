"""What a stress check looks at and who is late when: on any platform."""

import numpy as np
import pytest

from collbench.cases import Sampling
from collbench.errors import CaseFailed
from collbench.measure import stress as planned
from collbench.platforms import checking, stress
from collbench.platforms.stress import Plan
from tests.conftest import case


def test_every_rank_is_late_in_turn_and_in_odd_calls_as_in_even_ones() -> None:
    for ranks in (1, 2, 3, 8):
        calls = 2 * (ranks + 1) * max(2, ranks)
        stalls = np.array([Plan(calls, 1e-3, seed=1).stalls(rank, ranks) for rank in range(ranks)])
        late = stalls >= 1_000_000
        assert (late.sum(axis=0) <= 1).all(), "two ranks late at once hide each other"
        for rank in range(ranks):
            assert {number % 2 for number in np.flatnonzero(late[rank])} == {0, 1}, (rank, ranks)
        assert (~late).all(axis=0).any(), "in some calls nobody is"


def test_few_calls_still_make_every_rank_late_once_and_never_beyond_a_limit() -> None:
    for ranks in (2, 3, 8):
        for rank in range(ranks):
            assert (Plan(ranks, 1e-3, seed=7).stalls(rank, ranks) >= 1_000_000).sum() == 1, (rank, ranks)
    assert Plan(1000, 0.01, seed=1).stalls(0, 2, longest=0.02).max() == 20_000_000


def test_who_is_late_also_halts_at_some_moment_of_the_operation() -> None:
    """Earlier it would halt while it waits for whoever is late."""
    plan = Plan(64, 1e-3, seed=1, within=1e-3)
    for rank, ranks in [(rank, every) for every in (1, 2, 3, 8) for rank in range(every)]:
        moments, lengths = plan.halts(rank, ranks).T
        late = plan.stalls(rank, ranks) >= 1_000_000
        assert (lengths == np.where(late, 1_000_000, 0)).all(), (rank, ranks)
        assert (moments[late] > 0).all(), (rank, ranks)
        assert (moments < 1_000_000).all(), (rank, ranks)
        assert len(set(moments[late])) == late.sum(), (rank, ranks)
        assert not moments[~late].any(), (rank, ranks)


def test_a_halt_lasts_an_operation_within_limits() -> None:
    for within, length in ((0.0, 0), (2e-5, 20_000), (1e-3, 1_000_000), (1.0, 5_000_000)):
        assert Plan(8, 1e-3, seed=1, within=within).halts(0, 2)[:, 1].max() == length, within


def test_operations_that_no_timer_can_interrupt_are_not_halted() -> None:
    withins = [planned.plan(case(nbytes=2**20), seconds, Sampling(), 1).within for seconds in (9e-6, 1e-5, 1e-2)]
    assert withins == [0.0, 1e-5, 1e-2]


def test_kernels_that_hesitate_are_called_less_often_and_with_seeds_of_their_own() -> None:
    plan = planned.plan(case(nbytes=8), 1e-7, Sampling(), 1)
    slow = planned.hesitating(plan)
    assert (plan.calls, slow.calls, slow.late) == (256, 32, plan.late)
    assert slow.seed >= plan.seed + plan.calls
    assert planned.hesitating(planned.plan(case(nbytes=2**27), 0.05, Sampling(), 1)).calls == 2
    assert [stress.lost(seconds) for seconds in (1e-6, 1e-4, 1.0)] == [50_000, 400_000, 5_000_000]


def test_a_call_is_looked_at_in_64_kib_at_most_and_all_of_a_small_one() -> None:
    for collective, nbytes, ranks in (
        ("allreduce", 4, 2),
        ("allreduce", 4004, 3),
        ("allreduce", 2**26, 2),
        ("allgather", 2**20 * 3, 3),
    ):
        one = case(collective, nbytes, ranks=ranks)
        where = stress.probe(one)
        looked = stress.looked_at(where) * 4 * (max(one.send_count, one.receive_count) // one.block)
        assert looked <= stress.LOOKED_AT, (collective, nbytes)
        assert stress.looked_at(where) == one.block or looked > stress.LOOKED_AT / 2, (collective, nbytes)


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


def test_small_operations_are_called_hundreds_of_times_and_large_ones_twice() -> None:
    """So that it costs little: a few milliseconds, or as many calls as it takes for every rank to be late once."""
    calls = {seconds: planned.plan(case(nbytes=8), seconds, Sampling(), 1).calls for seconds in (1e-7, 1e-4, 1e-2)}
    assert calls == {1e-7: 256, 1e-4: 33, 1e-2: 16}
    large = case(nbytes=2**27)
    assert planned.plan(large, 0.05, Sampling(), 1).calls == 2
    assert planned.plan(large, 0.01, Sampling(), 1).calls == 6, "one halt may be swallowed by another program"
    assert planned.plan(large, 0.01, Sampling(check_only=True), 1).calls == 2
    assert planned.plan(case(nbytes=2**27, ranks=4), 0.05, Sampling(), 1).calls == 4
