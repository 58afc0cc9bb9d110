"""Predictions behave like times: monotone, never faster than links allow, continuous in ranks; and so do steps."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import NormalDist, fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.cases import Case
from collbench.collectives import COLLECTIVES, Collective, of_nccl_tests
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.errors import Unsupported, UsageError
from collbench.model.equation import SIZES, Calibration
from collbench.model.nccl_terms import limit, terms
from collbench.model.predict import curve, on_ranks, slowest
from collbench.model.schedule import SCHEDULES
from collbench.topology.files import load, names
from collbench.topology.system import System
from tests.model.single import predict

NAMES = tuple(SCHEDULES)
H100, A100 = load("dgx-h100"), load("dgx-a100")


def case(ranks: int, nbytes: int, name: str = "allreduce", dtype: str = "float") -> Case:
    collective = COLLECTIVES[name]
    redop = REDUCTIONS["sum"] if collective.reduces else NONE
    return Case(collective, nbytes, DATATYPES[dtype], redop, 0, ranks, False)


def machines(*nodes: int) -> Iterator[tuple[str, System]]:
    """Every preset, in so many nodes if it has a network, with a name to show; a single GPU talks to nobody."""
    for name in names():
        for count in nodes:
            described = load(name)
            described = described.of(count) if described.nics and count > 1 else described
            if described.ranks >= 2:
                yield f"{name}, {count} nodes", described


def test_switches_add_only_what_nccl_has_sums_in_switches_for() -> None:
    for dtype, redop, algorithm in (
        ("float", "sum", "nvls"),
        ("bfloat16", "max", "nvls"),
        ("float", "max", "ring"),
        ("float", "avg", "ring"),
        ("int8", "sum", "ring"),
        ("half", "prod", "ring"),
    ):
        whole = replace(case(8, 1 << 30, dtype=dtype), redop=REDUCTIONS[redop])
        assert predict(H100, whole).algorithm == algorithm, (dtype, redop)
    for nbytes, dtype, reached in ((512 << 20, "half", 445e9), (512 << 20, "int8", 351e9)):
        seconds = predict(H100, case(8, nbytes, "allreduce", dtype)).seconds
        assert 1.75 * nbytes / seconds == pytest.approx(reached, rel=0.1), dtype
    gathers = {predict(load("dgx-b200"), case(8, 1 << 30, "allgather", dtype)).algorithm for dtype in ("int8", "float")}
    assert len(gathers) == 1, "nothing is added in an all-gather"


def test_more_bytes_never_take_less_time_nor_less_than_the_links_allow_nor_far_more() -> None:
    for name, described in machines(1, 16):
        for collective in NAMES:
            parts = terms(described, collective)
            seconds, busiest = parts.seconds(), np.minimum(parts.limit, 1e300)
            calibrated = parts.seconds(Calibration(0.5, 0.5, 0.5, 0.1, 3.0))
            assert (np.diff(seconds) >= 0).all(), (name, collective)
            assert (seconds > 0).all(), (name, collective)
            assert (seconds >= SIZES / busiest).all(), (name, collective)
            assert (calibrated >= SIZES / busiest).all(), (name, collective)
    for name, whole in machines(1):
        described = replace(whole, nodes=1)
        if described.gpus == 1:
            continue
        switched = (2 - 2 / described.ranks) / (1 + 1 / described.ranks) if described.adds else 1.0
        sharing = 1 if described.p2p else described.sharing
        for collective in NAMES:
            reached = (1 << 34) / predict(described, case(described.ranks, 1 << 34, collective)).seconds
            bus = reached * COLLECTIVES[collective].bus_factor(described.ranks)
            least = described.to_next / (6 if sharing == 1 else 2.5 * sharing)
            assert least < bus < described.pace * max(1.0, switched), (name, collective)


def test_bridged_pairs_meet_over_pcie_and_a_mesh_has_a_part_of_its_links_for_each() -> None:
    pairs, mesh = load("h100-nvl"), load("hgx-a100-4")
    for name in ("allreduce", "alltoall", "sendrecv"):
        two, eight = (case(ranks, 1 << 32, name) for ranks in (2, 8))
        assert predict(pairs.part(2), two).seconds < predict(pairs, eight).seconds / 2
        factor = COLLECTIVES[name].bus_factor(8)
        assert predict(pairs, eight).seconds > factor * (1 << 32) / pairs.pcie_rate
    assert predict(mesh, case(4, 1 << 32, "sendrecv")).seconds > (1 << 32) / (mesh.gpu_rate / 3)
    assert limit(A100, "allreduce", "ring") == pytest.approx(240e9 / (2 * 7 / 8))
    assert limit(H100, "allreduce", "nvls") == pytest.approx(370.8e9 / (1 + 1 / 8))
    assert limit(H100.of(10), "allgather", "ring") == pytest.approx(370.8e9 / (79 / 80))
    assert limit(replace(H100, gpu_rate=1e15).of(10), "allgather") == pytest.approx(400e9 / 0.9)


@given(
    name=st.sampled_from([name for name in names() if load(name).nics]),
    collective=st.sampled_from(NAMES),
    nodes=st.integers(1, 2000),
    sizes=st.tuples(st.integers(1, 1 << 36), st.integers(1, 1 << 36)),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_size_is_predicted_alike_alone_and_among_others(
    name: str, collective: str, nodes: int, sizes: tuple[int, int]
) -> None:
    described = load(name).of(nodes)
    if described.ranks < 2:
        return
    cases = [case(described.ranks, nbytes, collective) for nbytes in sorted(sizes)]
    first, second = curve(described, cases)
    assert first.seconds <= second.seconds
    assert first == predict(described, cases[0])
    assert 0 < first.low < first.seconds < first.high


def test_one_more_rank_or_node_changes_a_time_by_little_and_a_hundred_thousand_gpus_have_one() -> None:
    for nbytes in (8, 1 << 16, 1 << 20, 1 << 26, 1 << 32):
        node = [predict(H100, case(ranks, nbytes)).seconds for ranks in range(3, 9)]
        nodes = [predict(H100.of(count), case(8 * count, nbytes)).seconds for count in range(3, 65)]
        for times, most in ((node, 1.5), (nodes, 1.3)):
            ratios = np.array(times[1:]) / np.array(times[:-1])
            assert (ratios < most).all(), (nbytes, ratios)
            assert (ratios > 1 / 1.35).all(), (nbytes, ratios)
    described = H100.of(12_500)
    found = curve(described, [case(described.ranks, 1 << power) for power in range(3, 35)])
    assert found[-1].seconds > 2 * (1 << 34) / (8 * 50e9)


def test_the_choice_is_named_and_what_has_no_model_is_refused_with_the_reason() -> None:
    small, large = curve(H100, [case(8, 64), case(8, 1 << 30)])
    assert (small.protocol, large.algorithm, large.protocol) == ("ll", "nvls", "simple")
    assert predict(H100, case(8, 1 << 30, "alltoall")).algorithm == "direct"
    with pytest.raises(Unsupported, match="mpi has no model"):
        predict(H100, case(8, 8), "mpi")
    with pytest.raises(UsageError, match="unknown implementation 'ncl'"):
        predict(H100, case(8, 8), "ncl")
    assert curve(H100, []) == []
    assert set(SCHEDULES) == {collective.name for collective in of_nccl_tests()}
    scan = Collective(**{**vars(COLLECTIVES["allgather"]), "name": "scan"})
    with pytest.raises(Unsupported, match=r"scan has no model; add its schedule to collbench/model/schedule\.py"):
        predict(H100, replace(case(8, 4096, "allgather"), collective=scan))


def test_a_single_process_is_held_up_by_launching_for_all_its_gpus_and_channels() -> None:
    def seconds(launch: str, nbytes: int) -> float:
        return predict(replace(A100, launch=launch), case(8, nbytes)).seconds

    assert seconds("process-per-gpu", 8) < 25e-6 < seconds("single-process", 8) < seconds("torch", 8) + 5e-6
    assert seconds("torch", 1 << 32) == pytest.approx(seconds("single-process", 1 << 32), rel=0.01)
    driven = replace(A100.of(8), launch="single-process")
    for name in ("broadcast", "allgather"):
        small, full, later = (predict(driven, case(8, nbytes, name)).seconds for nbytes in (64 << 10, 1 << 20, 2 << 20))
        assert 15e-6 < full - small < 45e-6, name
        assert later - full < 12e-6, name
        apart = [predict(A100.of(8), case(8, nbytes, name)).seconds for nbytes in (8, 64 << 10)]
        assert apart[1] - apart[0] < 6e-6, name


def test_more_nodes_than_the_model_is_sure_of_widen_the_band() -> None:
    few, some, many = (predict(H100.of(nodes), case(8 * nodes, 1 << 30)) for nodes in (4, 64, 1024))
    above = [one.high / one.seconds for one in (few, some, many)]
    assert above[0] == pytest.approx(above[1])
    assert above[2] == pytest.approx(1.1**4 * above[1])
    assert many.low / many.seconds == pytest.approx(few.low / few.seconds)


def test_the_slowest_of_many_is_as_late_as_many_draws_say() -> None:
    draws = np.random.default_rng(1).normal(1.0, 0.05, (4000, 64)).max(axis=1)
    assert slowest(64, 0.05) == pytest.approx(fmean(draws) - 1, rel=0.02)
    assert slowest(1, 0.05) == 0
    assert slowest(4096, 0.01) == pytest.approx(0.01 * NormalDist().inv_cdf((4096 - 0.375) / 4096.25))
    with pytest.raises(UsageError, match="give 1 to 8, or whole nodes up to 16"):
        on_ranks(H100, 12)
    assert on_ranks(H100, 4).ranks == 4
    assert on_ranks(H100, 100_000).ranks == 100_000
