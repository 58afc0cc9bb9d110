"""What a stress check looks at, and which rank is late when."""

import numpy as np
import pytest

from collbench.cases import Sampling
from collbench.errors import CaseFailed
from collbench.measure import checks
from collbench.platforms import checking
from collbench.platforms.checking import StressPlan
from tests.conftest import case
from tools.kernels.buffers import received

EVERY_RANK = [(rank, ranks) for ranks in (1, 2, 3, 8) for rank in range(ranks)]


def test_every_rank_is_late_in_turn_and_in_odd_calls_as_in_even_ones() -> None:
    for ranks in (1, 2, 3, 8):
        calls = 2 * (ranks + 1) * max(2, ranks)
        late = np.array([StressPlan(calls, 1e-3, seed=1).stalls(rank, ranks) for rank in range(ranks)]) >= 1_000_000
        assert (late.sum(axis=0) <= 1).all(), "two ranks late at once hide each other"
        for rank in range(ranks):
            assert {number % 2 for number in np.flatnonzero(late[rank])} == {0, 1}, (rank, ranks)
        assert (~late).all(axis=0).any(), "in some calls nobody is"
    for rank, ranks in EVERY_RANK[1:]:
        assert (StressPlan(ranks, 1e-3, seed=7).stalls(rank, ranks) >= 1_000_000).sum() == 1, (
            "few calls, each late once"
        )
    assert StressPlan(1000, 0.01, seed=1).stalls(0, 2, longest=0.02).max() == 20_000_000


def test_small_operations_are_called_hundreds_of_times_and_large_ones_twice() -> None:
    for nbytes, seconds, sampling, ranks, calls in (
        (8, 1e-7, Sampling(), 2, 256),
        (8, 1e-4, Sampling(), 2, 33),
        (8, 1e-2, Sampling(), 2, 16),
        (2**27, 0.05, Sampling(), 2, 2),
        (2**27, 0.01, Sampling(), 2, 6),
        (2**27, 0.01, Sampling(check_only=True), 2, 2),
        (2**27, 0.05, Sampling(), 4, 4),
    ):
        plan = checks.plan(case(nbytes=nbytes, ranks=ranks), seconds, sampling, 1)
        assert plan.calls == calls, (nbytes, seconds)


def test_delayed_kernels_are_called_less_often_and_with_seeds_of_their_own() -> None:
    plan = checks.plan(case(nbytes=8), 1e-7, Sampling(), 1)
    slow = checks.delayed_plan(plan)
    assert (plan.calls, slow.calls, slow.late) == (256, 32, plan.late)
    assert slow.seed >= plan.seed + plan.calls
    assert checks.delayed_plan(checks.plan(case(nbytes=2**27), 0.05, Sampling(), 1)).calls == 2
    assert [checking.lost(seconds) for seconds in (1e-6, 1e-4, 1.0)] == [50_000, 400_000, 5_000_000]


def test_a_call_is_looked_at_in_64_kib_at_most_and_all_of_a_small_one() -> None:
    for name, nbytes in (("allreduce", 4), ("allreduce", 4004), ("allreduce", 2**26), ("allgather", 3 * 2**20)):
        one = case(name, nbytes, ranks=3)
        count = checking.looked_at(checking.probe(one))
        looked = count * 4 * (max(one.send_count, one.receive_count) // one.block)
        assert looked <= checking.LOOKED_AT, (name, nbytes)
        assert count == one.block or looked > checking.LOOKED_AT / 2, (name, nbytes)


def test_a_mismatch_names_its_first_call_and_what_nobody_looked_at_is_no_verdict() -> None:
    one, plan = case(nbytes=400), StressPlan(3, 1e-6, seed=1)
    verdict = np.full(1, checking.CLEAN, checking.VERDICT)
    with pytest.raises(CaseFailed, match="looked at 0 elements of 300"):
        checking.first_mismatch(one, plan, 0, verdict, with_bits=True)
    verdict["seen"], verdict["wrong"], verdict["first"] = 300, 5, (2 << 48) + 17
    mismatch = checking.first_mismatch(one, plan, 0, verdict, with_bits=False)
    assert mismatch is not None
    assert (mismatch.call, mismatch.calls, mismatch.index, mismatch.wrong, mismatch.got) == (2, 3, 17, 5, "")
    assert mismatch.expected == str(received(one, 0, seed=3)[0][1][17])
