"""Predictions behave like times: monotone, never faster than links allow, continuous in ranks, quick."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.cases import Case
from collbench.collectives import COLLECTIVES, of_nccl_tests
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.errors import Unsupported, UsageError
from collbench.model.calibrate import calibrate
from collbench.model.choice import choose, limit, terms
from collbench.model.equation import SIZES, Calibration
from collbench.model.predict import curve, predict
from collbench.model.schedule import SCHEDULES
from collbench.topology.files import load, names
from collbench.topology.system import System

NAMES = tuple(SCHEDULES)


def case(ranks: int, nbytes: int, name: str = "allreduce", dtype: str = "float") -> Case:
    collective = COLLECTIVES[name]
    redop = REDUCTIONS["sum"] if collective.reduces else NONE
    return Case(collective, nbytes, DATATYPES[dtype], redop, 0, ranks, False)


def system(name: str, nodes: int = 1) -> System:
    found = load(name)
    return found.of(nodes) if found.nics and nodes > 1 else found


def machines(*nodes: int) -> Iterator[tuple[str, System]]:
    """Every preset, in so many nodes if it has a network, with a name to show; a single GPU talks to nobody."""
    for name in names():
        for count in nodes:
            described = system(name, count)
            if described.ranks >= 2:
                yield f"{name}, {count} nodes", described


def test_more_bytes_never_take_less_time_nor_less_than_the_links_allow() -> None:
    wrong = []
    for name, described in machines(1, 2, 16):
        for collective in NAMES:
            parts = terms(described, collective)
            seconds, busiest = parts.seconds(), np.minimum(parts.limit, 1e300)
            calibrated = parts.seconds(Calibration(0.5, 0.5, 0.5, 0.1, 3.0))
            grows = (np.diff(seconds) >= 0).all() and (seconds > 0).all()
            if not (grows and (seconds >= SIZES / busiest).all() and (calibrated >= SIZES / busiest).all()):
                wrong.append((name, collective))
    assert wrong == []


def test_a_large_message_comes_near_what_the_links_of_a_node_carry() -> None:
    """A sixth at least, through the host's memory and over sockets; of a switch's way there, which GPUs share, more."""
    wrong = []
    for name, described in machines(1):
        described = replace(described, nodes=1)
        switched = (2 - 2 / described.ranks) / (1 + 1 / described.ranks) if described.adds else 1.0
        sharing = 1 if described.p2p else described.sharing
        for collective in NAMES:
            reached = (1 << 34) / predict(described, case(described.ranks, 1 << 34, collective)).seconds
            bus = reached * COLLECTIVES[collective].bus_factor(described.ranks)
            least = described.to_next / (6 if sharing == 1 else 2.5 * sharing)
            if not least < bus < described.pace * max(1.0, switched):
                wrong.append((name, collective, bus))
    assert wrong == []


def test_bridged_pairs_meet_over_pcie_and_a_mesh_has_a_part_of_its_links_for_each() -> None:
    """Two GPUs have the bridge, eight the slots; a rank that sends to one other has the links to that one."""
    pairs, mesh = load("h100-nvl"), load("hgx-a100-4")
    for name in ("allreduce", "alltoall", "sendrecv"):
        two, eight = (case(ranks, 1 << 32, name) for ranks in (2, 8))
        assert predict(pairs.part(2), two).seconds < predict(pairs, eight).seconds / 2
        factor = COLLECTIVES[name].bus_factor(8)
        assert predict(pairs, eight).seconds > factor * (1 << 32) / pairs.pcie_rate
    assert predict(mesh, case(4, 1 << 32, "sendrecv")).seconds > (1 << 32) / (mesh.gpu_rate / 3)


@given(
    name=st.sampled_from([name for name in names() if load(name).nics]),
    collective=st.sampled_from(NAMES),
    nodes=st.integers(1, 2000),
    sizes=st.tuples(st.integers(1, 1 << 36), st.integers(1, 1 << 36)),
)
@settings(max_examples=60, deadline=None, derandomize=True)
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


def test_an_allreduce_of_one_node_crosses_its_links_as_often_as_its_algorithm_must() -> None:
    assert limit(load("dgx-a100"), "allreduce", "ring") == pytest.approx(240e9 / (2 * 7 / 8))
    assert limit(load("dgx-h100"), "allreduce", "nvls") == pytest.approx(370.8e9 / (1 + 1 / 8))
    assert limit(load("dgx-h100").of(10), "allreduce", "tree") == pytest.approx(370.8e9 / (2 * 79 / 80))
    assert limit(load("dgx-h100").of(10), "allgather", "ring") == pytest.approx(370.8e9 / (79 / 80))
    assert limit(replace(load("dgx-h100"), gpu_rate=1e15).of(10), "allgather") == pytest.approx(400e9 / 0.9)


@pytest.mark.parametrize("nbytes", [8, 1 << 16, 1 << 20, 1 << 26, 1 << 32])
def test_one_more_rank_or_node_changes_a_time_by_little(nbytes: int) -> None:
    node = [predict(load("dgx-h100"), case(ranks, nbytes)).seconds for ranks in range(3, 9)]
    nodes = [predict(load("dgx-h100").of(count), case(8 * count, nbytes)).seconds for count in range(3, 65)]
    for times, most in ((node, 1.5), (nodes, 1.3)):
        ratios = np.array(times[1:]) / np.array(times[:-1])
        assert (ratios < most).all(), ratios
        assert (ratios > 1 / 1.35).all(), ratios


def test_a_hundred_thousand_gpus_take_less_than_a_second() -> None:
    described = load("dgx-h100").of(12_500)
    cases = [case(described.ranks, 1 << power) for power in range(3, 35)]
    start = time.thread_time()  # of this thread, whatever else the machine does
    found = curve(described, cases)
    assert time.thread_time() - start < 1
    assert found[-1].seconds > 2 * (1 << 34) / (8 * 50e9)


def test_the_choice_is_named() -> None:
    small, large = curve(load("dgx-h100"), [case(8, 64), case(8, 1 << 30)])
    assert (small.protocol, large.algorithm, large.protocol) == ("ll", "nvls", "simple")
    assert predict(load("dgx-h100"), case(8, 1 << 30, "alltoall")).algorithm == "direct"


def test_what_has_no_model_is_refused_with_the_reason() -> None:
    with pytest.raises(Unsupported, match="mpi has no model"):
        predict(load("dgx-h100"), case(8, 8), "mpi")
    with pytest.raises(UsageError, match="unknown implementation 'ncl'"):
        predict(load("dgx-h100"), case(8, 8), "ncl")
    assert curve(load("dgx-h100"), []) == []


def test_a_single_process_is_held_up_by_launching_for_all_its_gpus() -> None:
    described = load("dgx-a100")
    own = predict(described, case(8, 8)).seconds
    driven = predict(replace(described, launch="single-process"), case(8, 8)).seconds
    eager = predict(replace(described, launch="torch"), case(8, 8)).seconds
    assert own < 20e-6 < driven < eager + 5e-6
    large = [predict(replace(described, launch=how), case(8, 1 << 32)).seconds for how in ("torch", "single-process")]
    assert large[0] == pytest.approx(large[1], rel=0.01)


Rows = list[tuple[float, float]]  # bytes, seconds


def measured(described: System, truth: Calibration, sizes: list[int]) -> Rows:
    times = terms(described, "allreduce").at(np.array(sizes, np.float64), truth)
    return list(zip(map(float, sizes), times.tolist(), strict=True))


def test_a_single_process_needs_time_for_every_channel_too() -> None:
    """A100s of one process: 38 us at 64 KiB, 75 us at 1 MiB, and no more at 2 MiB of a broadcast, whatever is sent.

    The published times of `a100sxm40_8gpu_1n_*_superbench` grow by 40 us; a process for each GPU hides it.
    """
    driven = replace(load("dgx-a100").of(8), launch="single-process")
    for name in ("broadcast", "allgather"):
        small, full, later = (predict(driven, case(8, nbytes, name)).seconds for nbytes in (64 << 10, 1 << 20, 2 << 20))
        assert 15e-6 < full - small < 45e-6, name
        assert later - full < 12e-6, name
        apart = [predict(load("dgx-a100").of(8), case(8, nbytes, name)).seconds for nbytes in (8, 64 << 10)]
        assert apart[1] - apart[0] < 6e-6, name


def test_without_measurements_a_calibration_changes_nothing() -> None:
    assert calibrate([(terms(load("dgx-h100"), "allreduce"), [])]) == Calibration()


def test_a_calibration_finds_a_machine_that_follows_the_equation() -> None:
    described = load("dgx-h100").of(4)
    truth = Calibration(network=4.0, filling=1.3, rate=0.9)
    probes = [8, 32 << 10, 1 << 20, 16 << 20, 1 << 30]
    found = calibrate([(terms(described, "allreduce"), measured(described, truth, probes))])
    for nbytes in (1 << 12, 1 << 18, 1 << 24, 1 << 32):
        wanted = measured(described, truth, [nbytes])[0][1]
        assert predict(described, case(32, nbytes), calibration=found).seconds == pytest.approx(wanted, rel=0.05)


def test_small_sizes_say_nothing_of_bandwidth_and_one_spoiled_row_decides_nothing() -> None:
    described = load("dgx-h100").of(4)
    rows = measured(described, Calibration(network=4.0), [8, 64, 512])
    parts = terms(described, "allreduce")
    found = calibrate([(parts, rows)])
    assert found.rate == pytest.approx(1.0, abs=0.02)
    nbytes, seconds = rows[0]
    spoiled = calibrate([(parts, [(nbytes, 3 * seconds), *rows[1:]])])
    assert predict(described, case(32, 64), calibration=spoiled).seconds == pytest.approx(rows[1][1], rel=0.1)


def test_every_collective_has_a_schedule_and_another_one_is_told_where_to_add_its_own() -> None:
    """A collective that is measured may be unknown to the model, which then says so for its rows alone."""
    assert set(SCHEDULES) == {collective.name for collective in of_nccl_tests()}
    scan = replace(COLLECTIVES["allgather"], name="scan")
    for ranks in (2, 8, 16):
        with pytest.raises(Unsupported, match=r"scan has no model; add its Schedule to collbench/model/schedule\.py"):
            predict(load("dgx-h100").of(2), replace(case(ranks, 4096, "allgather"), collective=scan))


def test_twenty_sizes_on_100_000_gpus_take_less_than_20_ms() -> None:
    """With nothing kept from before; the middle one of five trials."""
    whole = load("dgx-h100").of(12_500)
    cases = [case(100_000, 1 << power) for power in range(10, 30)]
    trials = []
    for _ in range(5):
        terms.cache_clear()
        choose.cache_clear()
        start = time.perf_counter()
        curve(whole, cases)
        trials.append(time.perf_counter() - start)
    assert sorted(trials)[2] < 20e-3


def test_more_nodes_than_the_model_is_sure_of_widen_the_band() -> None:
    """Above only: what is in the way makes nothing faster; fewer nodes change nothing."""
    few, some, many = (predict(load("dgx-h100").of(nodes), case(8 * nodes, 1 << 30)) for nodes in (4, 16, 256))
    above = [one.high / one.seconds for one in (few, some, many)]
    assert above[0] == pytest.approx(above[1])
    assert above[2] == pytest.approx(1.1**4 * above[1])
    assert many.low / many.seconds == pytest.approx(few.low / few.seconds)
