"""The GPU platform on a machine that is made up (tools/stand_in/cuda.py); orchestration and kernels are real."""

import os
import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.algorithms import implementations
from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.errors import CaseFailed, PlatformError, StartFailed, TimedOut, Unsupported
from collbench.platforms.gpu import cuda, launch, nccl, probe, timing
from collbench.platforms.gpu.discover import GpuPlace, Placement, probe_peers
from collbench.platforms.layout import Region, buffers
from collbench.platforms.processes import Alone
from tests.platforms.gpu.opening import Open
from tools.kernels.buffers import received
from tools.stand_in.cases import ALL, LADDER, ON_GPU, a_case, flaw, prepare, sweep
from tools.stand_in.clocks import MadeUpClock, Skewed
from tools.stand_in.cuda import Graph, Machine
from tools.stand_in.errors import ILLEGAL_ADDRESS, NOT_READY, CUDARuntimeError

IMPATIENT = Sampling(timeout=0.5)


@pytest.mark.parametrize(
    ("devices", "ranks"),
    [(1, 2), (2, 3), *(pytest.param(*place, marks=pytest.mark.full) for place in [(1, 1), (1, 3), (2, 4), (3, 5)])],
)
def test_every_implementation_gives_every_rank_what_the_definition_says(devices: int, ranks: int, opened: Open) -> None:
    platform = opened(Machine(devices), ranks=ranks, implementations=ALL)
    for way in ON_GPU:
        for case in sweep(ranks=ranks).cases():
            if case.collective.name in way.collectives and ranks >= case.collective.least_ranks:
                assert flaw(way, case, platform, 2) is None, f"{way.name} {case.collective.name} {case.nbytes}"


def test_every_implementation_reduces_in_place_and_in_other_types(opened: Open) -> None:
    platform = opened(Machine(2), ranks=3, in_place=True, implementations=ALL)
    for way in ON_GPU:
        typed = way.name in ("nccl", "ring-flags", "two-shot")
        for dtype, redop in [("float", "sum"), ("bfloat16", "avg"), ("int8", "max")][: 3 if typed else 1]:
            case = a_case("allreduce", 1200, 3, dtype=DATATYPES[dtype], redop=REDUCTIONS[redop], in_place=True)
            if way.name == "one-shot":
                with pytest.raises(Unsupported, match="would overwrite the input that others still read"):
                    prepare(way, case, platform)
            else:
                assert flaw(way, case, platform) is None, f"{way.name} {dtype} {redop}"


def test_nccl_carries_out_every_collective_in_place_and_with_any_root(opened: Open) -> None:
    platform = opened(Machine(1), ranks=3, in_place=True)
    for name, collective in COLLECTIVES.items():
        for root in (0, 2) if collective.rooted else (0,):
            case = a_case(name, 1200, 3, in_place=True, root=root)
            if collective.in_place and name != "alltoall":
                assert flaw("nccl", case, platform) is None, f"{name} from {root}"
    with pytest.raises(Unsupported, match="cannot share a buffer"):
        implementations()["nccl"].refuse(a_case("alltoall", in_place=True))


FLOAT = [("float", "sum")]
ANY = [*FLOAT, ("half", "avg"), ("bfloat16", "max"), ("uint8", "prod"), ("int64", "min")]


@pytest.mark.parametrize(
    ("ranks", "arithmetic"),
    [(2, FLOAT), *(pytest.param(ranks, ANY, marks=pytest.mark.full) for ranks in (2, 3, 4))],
    ids=str,
)
def test_any_sequence_of_calls_is_right(ranks: int, arithmetic: Any, opened: Open) -> None:
    platform = opened(
        Machine(1, multiprocessors=8), ranks=ranks, sizes=(160000,), dtypes=(DATATYPES["int64"],), implementations=ALL
    )
    calls = st.tuples(
        st.sampled_from([(rung, name) for rung in LADDER for name in rung.collectives]),
        st.integers(1, 5000),
        st.sampled_from(arithmetic),
        st.booleans(),
        st.integers(0, ranks - 1),
    )

    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
    @given(st.lists(calls, min_size=1, max_size=6))
    def right(calls: list[Any]) -> None:
        for seed, ((way, name), count, (dtype, redop), in_place, root) in enumerate(calls):
            chosen, element = COLLECTIVES[name], DATATYPES[dtype]
            case = a_case(
                name,
                count * element.itemsize * (ranks if chosen.sharded else 1),
                ranks,
                dtype=element,
                redop=REDUCTIONS[redop] if chosen.reduces else NONE,
                root=root if chosen.rooted else 0,
                in_place=in_place,
            )
            try:
                prepared = prepare(way, case, platform)
            except Unsupported:
                continue
            platform.checker.fill(case, seed, prepared.wire)
            platform.clock.time(prepared, 1)
            assert platform.checker.check(case, seed, prepared.wire) is None, way.name

    right()


def test_numbers_of_blocks_that_divide_nothing_give_right_results(opened: Open) -> None:
    for multiprocessors in (5, 13, 27):
        platform = opened(Machine(1, multiprocessors=multiprocessors), ranks=2)
        for name in ("ring-pipelined", "ring-ll", "two-shot", "one-shot-ll"):
            for nbytes in (70000, 4, 3000):
                assert flaw(name, a_case(nbytes=nbytes), platform, launches=2) is None, f"{name} {nbytes}"


def test_auto_picks_by_size_and_the_next_best_where_kernels_cannot_use_a_peers_memory(opened: Open) -> None:
    whole = opened(Machine(2), implementations=("auto",), sizes=(280000,))
    parted = opened(Machine(2, without_peers={(0, 1)}))
    for platform, nbytes, rung in (
        (whole, 1000, "one-shot-ll"),
        (whole, 280000, "one-shot"),
        (parted, 1000, "ring-events"),
    ):
        assert prepare("auto", a_case(nbytes=nbytes), platform).note.picked == rung
        assert flaw("auto", a_case(nbytes=nbytes), platform, launches=2) is None, rung


def test_graphs_are_replayed_for_what_the_host_does_not_drive_and_nothing_is_captured_without_them(
    opened: Open,
) -> None:
    for graph in (True, False):
        machine, case = Machine(1), a_case()
        platform = opened(machine, sampling=Sampling(graph=graph), implementations=ALL)
        for way in ON_GPU:
            prepared, replays = prepare(way, case, platform), machine.replays
            platform.checker.fill(case, 1, prepared.wire)
            assert platform.clock.time(prepared, 3) > 0, way.name
            captures = machine.captures
            platform.clock.time(prepared, 3)
            assert machine.captures == captures, f"{way.name}: the same graph is replayed"
            assert (machine.replays > replays) == (graph and not prepared.host_driven), way.name
            assert platform.checker.check(case, 1, prepared.wire) is None, way.name
        assert bool(machine.captures) is graph


def test_nccl_connects_its_ranks_before_anything_is_captured(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine)
    platform.checker.fill(a_case(), 1)
    prepare("nccl", a_case(), platform)
    assert machine.captures == 0
    assert platform.checker.check(a_case(), 1) is None, "one operation was carried out"


def test_the_time_that_the_host_takes_to_enqueue_is_not_measured(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(3)
    platform = opened(machine, ranks=3)
    prepared = prepare("nccl", a_case(ranks=3), platform)
    machine.clock, machine.host_delay, done = MadeUpClock(), 1.0, []
    for holder, name in ((Alone, "meet"), (Graph, "launch"), (timing.StartGate, "open")):
        real = getattr(holder, name)
        noting = lambda held, *rest, real=real, name=name: (done.append(name), real(held, *rest))[1]  # noqa: E731
        monkeypatch.setattr(holder, name, noting)
    assert platform.clock.time(prepared, 1) == 0
    assert machine.clock.now == 3
    assert done == ["meet", "launch", "launch", "launch", "meet", "open"]
    done.clear()
    assert platform.clock.time_each(prepared, 2) == dict.fromkeys(range(3), 0)
    assert machine.clock.now == 3 + 3 * (1 + 2)
    assert done == ["meet", "meet", "open"], "no graph is launched"


def test_a_gate_that_opened_by_itself_is_noticed(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(2)
    platform = opened(machine)
    prepared = prepare("nccl", a_case(), platform)
    machine.host_delay = 0.5
    with monkeypatch.context() as patch:
        patch.setattr(timing, "_TRIES", 1)
        with pytest.raises(CaseFailed, match="the host was too slow to start all ranks together"):
            platform.clock.time(prepared, 1)
    machine.host_delay = 0.0
    assert platform.clock.time(prepared, 1) > 0, "the next one is as good as ever"


def test_kernels_are_not_run_over_peer_access_that_fails_its_probe(opened: Open) -> None:
    for fault in ("without_peers", "losing_stores", "losing_copies"):
        platform = opened(Machine(2, **{fault: {(1, 0)}}))
        with pytest.raises(Unsupported, match="GPU 1 cannot use the memory of GPU 0"):
            prepare("ring-flags", a_case(), platform)
        if fault != "losing_copies":  # copies need no peer access
            assert flaw("ring-host", a_case(), platform) is None, fault


def test_the_ninth_peer_of_a_gpu_without_a_switch_is_refused_with_the_fix() -> None:
    machine = Machine(10)
    probed = probe_peers(cuda.Cuda(machine.cupy()), range(10))
    machine.stop()
    assert [peer for peer in range(1, 10) if not probed[0, peer][0]] == [9]
    assert re.match("cudaErrorTooManyPeers: .*: without an NVSwitch .* use --ranks 9", probed[0, 9][1])


def test_a_wrong_element_is_reported_with_rank_index_and_values(opened: Open) -> None:
    platform, case = opened(Machine(2)), a_case()
    assert flaw("nccl", case, platform) is None
    wrong = np.array([7.0, 8.0], np.float32)
    platform.launcher.store(1, buffers(platform.memory, case, 1)[1] + 4 * 130, wrong)
    found = platform.checker.check(case, 1)
    assert (found.rank, found.index, found.chunk, found.got, found.wrong) == (1, 130, 1, "7.0", 2)
    assert found.expected == str(received(case, 1, 1)[0][1][130])


def test_the_result_of_the_last_run_is_no_result(opened: Open) -> None:
    platform = opened(Machine(1))
    for name in implementations()["nccl"].collectives:
        assert flaw("nccl", a_case(name), platform) is None, name
        platform.checker.fill(a_case(name), 1)
        assert platform.checker.check(a_case(name), 1) is not None, name


def test_what_does_not_fit_is_refused_before_anything_is_allocated(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PlatformError, match=r"the ranks on GPU 0 need .* MiB and it has 1 MiB of 1 GiB free: lower -e"):
        opened(Machine(1, free=2**20), ranks=4)
    monkeypatch.setattr(probe, "memories", lambda: (3 * 2**30, 3 * 2**30))
    probe.refuse_too_large(2**30, 6)
    with pytest.raises(PlatformError, match="the ranks on GPU 0 need 4 GiB and it has 3 GiB: lower -e or --ranks"):
        probe.refuse_too_large(2**30, 7)


def test_a_grid_that_cannot_be_resident_is_refused(opened: Open) -> None:
    platform = opened(Machine(1, multiprocessors=1, blocks_each=3), ranks=4)
    words = "4 ranks x 1 blocks of 512 threads cannot run at once on GPU 0, which holds 3"
    with pytest.raises(Unsupported, match=words):
        prepare("ring-flags", a_case(ranks=4), platform)


def test_old_nccl_is_skipped_only_where_ranks_share_a_gpu(opened: Open) -> None:
    for shared in ({"devices": 1}, {"devices": 2, "buses": {1: 0}}):
        with pytest.raises(Unsupported, match=r"NCCL 2\.23\.4 has no ranks that share a GPU, 2\.30 has: upgrade"):
            prepare("nccl", a_case(), opened(Machine(**shared, nccl_version=22304)))
    prepare("nccl", a_case(), opened(Machine(2, nccl_version=22304)))


def test_versions_of_nccl_are_read_as_its_header_codes_them() -> None:
    wanted = {2408: "2.4.8", 2804: "2.8.4", 20901: "2.9.1", 21905: "2.19.5", 23007: "2.30.7"}
    assert {code: nccl.in_words(code) for code in wanted} == wanted


def test_nccl_gets_a_power_of_two_of_ctas_that_leaves_room_for_all_and_no_clusters() -> None:
    sharing = {(132, 2): 64, (132, 4): 32, (132, 8): 16, (64, 4): 8, (114, 4): 16, (28, 2): 8, (16, 2): 4, (4, 8): 1}
    for (multiprocessors, ranks), ctas in sharing.items():
        settings = nccl.sharing(multiprocessors, ranks)
        assert settings["NCCL_MAX_CTAS"] == str(ctas), (multiprocessors, ranks)
        assert ctas == 1 or ctas * ranks < multiprocessors
        assert settings["NCCL_CGA_CLUSTER_SIZE"] == "0"


def test_nccl_is_only_told_of_sharing_where_there_is_some(opened: Open) -> None:
    apart = opened(Machine(2))
    assert str(apart.note) == ""
    assert "NCCL_MAX_CTAS" not in os.environ
    assert "a process for each (mpirun)" in str(prepare("nccl", a_case(), apart).note)
    assert str(prepare("nccl", a_case(ranks=1), opened(Machine(1), ranks=1)).note.brief) == ""
    assert str(opened(Machine(2), ranks=4).note) == "4 ranks share 2 GPUs"
    assert os.environ["NCCL_MAX_CTAS"] == "16", "less than half of 64 multiprocessors"
    assert str(prepare("nccl", a_case(), opened(Machine(1))).note.brief) == "NCCL_MAX_CTAS=16"


def test_nccl_is_told_that_its_graphs_run_alone_unless_the_user_says_else(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(Machine(2), sampling=Sampling(graph=False))
    assert "NCCL_GRAPH_MIXING_SUPPORT" not in os.environ
    monkeypatch.setenv("NCCL_GRAPH_MIXING_SUPPORT", "1")
    assert "NCCL_GRAPH_MIXING_SUPPORT=1" in str(prepare("nccl", a_case(), opened(Machine(2))).note)


def test_slices_of_one_gpu_are_not_shared(opened: Open) -> None:
    platform = opened(Machine(2, buses={1: 0}))
    assert str(platform.note) == ""
    assert platform.launcher.blocks(1000) == 64
    assert os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    assert "NCCL_MAX_CTAS" not in os.environ
    assert [gpu.bus_id for gpu in platform.topology().gpus] == ["0000:00:00.0"] * 2


def test_uuids_are_compared_as_far_as_cuda_says_them(opened: Open) -> None:
    for first, second, shared in (
        (None, None, True),  # a CUDA that knows none: by their bus ids they are one
        (b"\1\2", b"\1\3", False),
        (b"\1" * 16 + b"\7", b"\1" * 16, True),  # what lies behind 16 bytes is another field
    ):
        platform = opened(Machine(2, buses={1: 0}, uuids={0: first, 1: second}))
        assert str(platform.note) == ("2 ranks share 1 GPU" if shared else ""), (first, second)


def test_windows_start_as_zeros_and_everything_is_given_back(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine)
    for rank in platform.local:
        words = platform.streams[rank].fetch(platform.memory.address(Region.WINDOW, rank), np.ones(2**15, np.uint8))
        assert not words.any()
    for name in ("nccl", "ring-flags"):
        platform.clock.time(prepare(name, a_case(), platform), 2)
    comms = list(platform.comm.ranks.values())
    platform.close()
    assert not machine.blocks
    assert not any(comm._alive for comm in comms)


def test_versions_and_topology_name_what_is_there(opened: Open) -> None:
    platform = opened(Machine(1))
    cuda_s = {"cupy": "14.2.0", "gpu": "Test GPU", "cuda": "12.9", "driver": "12.8", "nvrtc": "12.9", "nccl": "2.30.7"}
    assert platform.versions() == cuda_s
    topology = platform.topology()
    assert topology.shared
    assert topology.name == "2 ranks sharing 1 x Test GPU"


def test_what_keeps_the_platform_from_opening_is_said_in_one_line(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PlatformError, match=r"no GPU found \(cudaErrorNoDevice: .*\): use --on cpu"):
        opened(Machine(0))
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(PlatformError, match="wait for ever for one not yet launched: unset it"):
        opened(Machine(1))
    monkeypatch.setenv("COLLBENCH_NCCL", "/nowhere/libnccl.so.2")
    with pytest.raises(PlatformError, match=r"COLLBENCH_NCCL=/nowhere/.* cannot be loaded"):
        cuda.load_cupy()


def test_one_call_is_in_flight_at_a_time(opened: Open) -> None:
    platform, case = opened(Machine(2), ranks=3, implementations=ALL), a_case(ranks=3)
    ways = sorted(LADDER, key=lambda one: not one.wire)  # the last result is exact
    operations = [prepare(way, case, platform) for way in ways]
    operations = [operation for operation in operations if not (operation.host_driven or operation.one_graph)]
    platform.checker.fill(case, 1)
    for launches in (1, 3, 2):  # nothing waits in between
        for operation in operations:
            operation.launch(launches)
    platform.launcher.synchronize()
    assert platform.checker.check(case, 1) is None
    used = [rank_stream for rank_stream in platform.streams.values() if rank_stream.used]
    for operation in operations:
        platform.clock._forget()
        operation.launch(1)
        assert [rank_stream for rank_stream in platform.streams.values() if rank_stream.used] == used[:2]
    platform.launcher.synchronize()


def test_what_the_host_fetches_lies_behind_all_that_the_stream_was_given(opened: Open) -> None:
    machine, case = Machine(1), a_case()
    platform = opened(machine)
    platform.checker.fill(case, 7)
    machine.order = lambda stream: stream.ptr
    send, receive = buffers(platform.memory, case, 1)
    platform.launcher.copy(1, receive, send, case.nbytes)
    assert (platform.launcher.fetch(1, receive, case.nbytes) == platform.launcher.fetch(1, send, case.nbytes)).all()


def test_the_gpu_that_failed_is_named_although_another_one_waits_for_it_for_ever(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = opened(Machine(2))
    prepared = prepare("nccl", a_case(), platform)
    platform.clock.time(prepared, 1)

    def synchronize() -> None:
        raise CUDARuntimeError(ILLEGAL_ADDRESS)

    for broken in (0, 1):
        failing = platform.streams[broken].stream
        with monkeypatch.context() as faults:
            query = lambda ptr, failing=failing: ILLEGAL_ADDRESS if ptr == failing.ptr else NOT_READY  # noqa: E731
            faults.setattr(platform._cuda.runtime, "streamQuery", query)
            faults.setattr(failing, "synchronize", synchronize)
            for measured in (lambda: platform.clock.time(prepared, 1), lambda: platform.comm.first(prepared.launch)):
                with pytest.raises(CaseFailed, match=f"^GPU {broken}: cudaErrorIllegalAddress"):
                    measured()
    assert not platform.comm.hung


def test_an_nccl_that_hangs_at_first_is_given_up_in_time(opened: Open) -> None:
    for hangs, doing, kind in (
        ("start", "start", StartFailed),
        ("operation", "carry out its first operation", TimedOut),
    ):
        machine = Machine(2, nccl_hangs=hangs)
        platform = opened(machine, sampling=IMPATIENT)
        words = rf"NCCL did not {doing} within 0 s \(NCCL_DEBUG=INFO says how far it came\)"
        with pytest.raises(CaseFailed, match=words) as failure:
            prepare("nccl", a_case(), platform)
        assert type(failure.value) is kind
        platform.close()
        assert machine.blocks, "memory that a kernel may still write is not given back"


def test_an_nccl_that_knows_why_nothing_goes_on_is_quoted(opened: Open) -> None:
    for status, words in {6: "NCCL_ERROR_REMOTE_ERROR: ", **cuda.NEWER_STATUSES, 9: "an error that CuPy "}.items():
        platform = opened(Machine(2, nccl_hangs="operation", network_error=status), sampling=IMPATIENT)
        with pytest.raises(CaseFailed, match=f"^while NCCL connected its ranks: {words}"):
            prepare("nccl", a_case(), platform)
        assert platform.comm.hung


def test_a_world_has_room_for_its_ranks_and_one_device_is_for_ranks_of_one_process() -> None:
    rooms = {1: 8, 2: 8, 8: 8, 9: 16, 72: 128, 128: 128, 500: 128}
    assert {ranks: launch.room_for(ranks) for ranks in rooms} == rooms
    for device, processes, alone in (
        ({0: 0, 1: 0}, 1, True),
        ({0: 0, 1: 1}, 1, False),
        ({0: 0}, 2, False),
        ({0: 0}, 1, True),
    ):
        places = (GpuPlace(("node", ""), "0000:00:00.0", "GPU", 64, 2**20),) * processes
        assert Placement(tuple(device), device, places, processes).one_device == alone, (device, processes)


def beyond(platform: Any, rank: int) -> float:
    """By how much a moment is outside of the time in which it was noted."""
    before = time.perf_counter()
    moment = platform.clock.moment(rank)
    platform.launcher.synchronize()
    after = time.perf_counter()
    return max(before - moment(), moment() - after, 0.0)


def test_moments_are_off_by_no_more_than_is_said_also_after_a_clock_ran_away(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine)
    machine.clock = Skewed()
    error = platform.clock.set_clocks()
    assert error > 0
    assert all(beyond(platform, rank) <= error for rank in (0, 1))
    machine.clock.ahead = 10.0
    assert beyond(platform, 1) > 9
    error = platform.clock.set_clocks()
    assert all(beyond(platform, rank) <= error for rank in (0, 1))
