"""The GPU platform on a machine that tests make up (fake_cuda.py); orchestration and kernels are the real ones."""

import os
import re
import sys
import time
from typing import Any

import numpy as np
import pytest

from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import CaseFailed, PlatformError, Unsupported
from collbench.implementations import Implementation, implementations
from collbench.measure.runner import measure
from collbench.measurement import Measurement
from collbench.platforms.gpu import cuda, discover, launch, nccl, probe, timing
from collbench.platforms.layout import Region, buffers
from tests.platforms.gpu.fake_cuda import Machine
from tests.platforms.gpu.opening import ON_GPU, Open, a_case, prepare, sweep
from tools.gpu.bench import TARGETS, targets
from tools.gpu.checks import LARGE, a_log_of_every_rank

PLACES = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (2, 4), (3, 3), (3, 5)]  # devices, ranks
ARITHMETIC = [("float", "sum"), ("bfloat16", "avg"), ("int8", "max")]


@pytest.mark.parametrize(("devices", "ranks"), PLACES)
@pytest.mark.parametrize("implementation", ON_GPU, ids=lambda record: record.name)
def test_every_implementation_gives_every_rank_what_the_definition_says(
    implementation: Implementation, devices: int, ranks: int, opened: Open
) -> None:
    platform = opened(Machine(devices), ranks=ranks)
    for case in sweep(ranks=ranks).cases():
        if case.collective.name not in implementation.collectives or ranks < case.collective.least_ranks:
            continue
        prepared = prepare(implementation, case, platform)
        for seed in (1, 2):
            platform.fill(case, seed, prepared.wire)
            platform.time(prepared, 1)
            assert platform.check(case, seed, prepared.wire) is None, f"{case.collective.name} {case.nbytes}"


REFUSED_IN_PLACE = {"one-shot": "would overwrite the input that others still read|carries out allreduce only"}


@pytest.mark.parametrize(("dtype", "redop"), ARITHMETIC)
@pytest.mark.parametrize("implementation", ON_GPU, ids=lambda record: record.name)
def test_every_implementation_reduces_in_place(
    implementation: Implementation, dtype: str, redop: str, opened: Open
) -> None:
    platform = opened(Machine(2), ranks=3, in_place=True)
    for name in ("allreduce", "reducescatter", "reduce"):
        case = a_case(name, 1200, 3, dtype=DATATYPES[dtype], redop=REDUCTIONS[redop], in_place=True, root=0)
        if implementation.name in REFUSED_IN_PLACE:
            with pytest.raises(Unsupported, match=REFUSED_IN_PLACE[implementation.name]):
                prepare(implementation, case, platform)
        elif name in implementation.collectives and not (implementation.wire and (dtype, redop) != ("float", "sum")):
            prepared = prepare(implementation, case, platform)
            platform.fill(case, 1, prepared.wire)
            platform.time(prepared, 1)
            assert platform.check(case, 1, prepared.wire) is None


@pytest.mark.parametrize(
    "name", [name for name, collective in COLLECTIVES.items() if collective.in_place and name != "alltoall"]
)
@pytest.mark.parametrize("root", [0, 2])
def test_nccl_carries_out_every_collective_in_place_and_with_any_root(name: str, root: int, opened: Open) -> None:
    platform = opened(Machine(1), ranks=3, in_place=True)
    case = a_case(name, 1200, 3, in_place=True, root=root if COLLECTIVES[name].rooted else 0)
    prepared = prepare(implementations()["nccl"], case, platform)
    platform.fill(case, 5)
    platform.time(prepared, 1)
    assert platform.check(case, 5) is None


def test_nccl_has_no_alltoall_in_place() -> None:
    with pytest.raises(Unsupported, match="cannot share a buffer"):
        implementations()["nccl"].refuse(a_case("alltoall", in_place=True))


def test_the_runner_measures_all_implementations_of_a_case(opened: Open) -> None:
    platform = opened(Machine(1), ranks=2)
    results = list(measure(a_case(), ON_GPU, platform, Sampling(iters=3, region=0.0)))
    assert {result.implementation for result in results} == {way.name for way in ON_GPU}
    for result in results:
        assert isinstance(result, Measurement)
        assert result.mismatch is None
        assert len(result.seconds) == 3
        own = {"nccl": "; NCCL_MAX_CTAS=16", "auto": "; picked one-shot-ll"}.get(result.implementation, "")
        assert str(result.note) == f"2 ranks share 1 GPU{own}"


def test_what_auto_picks_finds_its_fifo_though_only_auto_was_asked_for(opened: Open) -> None:
    platform = opened(Machine(2), ranks=2, implementations=("auto",), sizes=(280000,))
    for nbytes, rung in ((1000, "one-shot-ll"), (280000, "ring-ll")):
        case = a_case(nbytes=nbytes)
        prepared = prepare(implementations()["auto"], case, platform)
        assert prepared.note.picked == rung
        platform.fill(case, 1)
        platform.time(prepared, 2)
        assert platform.check(case, 1) is None


def test_auto_takes_the_next_best_where_kernels_cannot_use_a_peers_memory(opened: Open) -> None:
    """Copies and events still can."""
    platform, case = opened(Machine(2, without_peers={(0, 1)}), ranks=2), a_case()
    prepared = prepare(implementations()["auto"], case, platform)
    assert prepared.note.picked == "ring-events"
    platform.fill(case, 1)
    platform.time(prepared, 2)
    assert platform.check(case, 1) is None


@pytest.mark.parametrize("implementation", ON_GPU, ids=lambda record: record.name)
def test_graphs_are_for_what_the_host_does_not_drive(implementation: Implementation, opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine, ranks=2)
    case = a_case()
    prepared = prepare(implementation, case, platform)
    platform.fill(case, 1, prepared.wire)
    assert platform.time(prepared, 3) > 0
    assert bool(machine.replays) is not prepared.host_driven
    captures = machine.captures
    platform.time(prepared, 3)
    assert machine.captures == captures, "the same graph is replayed"
    assert platform.check(case, 1, prepared.wire) is None


def test_nccl_connects_its_ranks_before_anything_is_captured(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine, ranks=2)
    platform.fill(a_case(), 1)
    prepare(implementations()["nccl"], a_case(), platform)
    assert machine.captures == 0
    assert platform.check(a_case(), 1) is None, "one operation was carried out"


@pytest.mark.parametrize("implementation", ON_GPU, ids=lambda record: record.name)
def test_without_graphs_nothing_is_captured(implementation: Implementation, opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine, ranks=2, sampling=Sampling(graph=False))
    case = a_case()
    prepared = prepare(implementation, case, platform)
    platform.fill(case, 1, prepared.wire)
    assert platform.time(prepared, 3) > 0
    assert machine.captures == 0
    assert platform.check(case, 1, prepared.wire) is None


def test_capturing_carries_nothing_out(opened: Open) -> None:
    """In place every launch counts: the first timing of one launch is one launch."""
    platform = opened(Machine(1), ranks=2, in_place=True)
    case = a_case(in_place=True)
    prepared = prepare(implementations()["ring-flags"], case, platform)
    platform.fill(case, 1)
    platform.time(prepared, 1)
    assert platform.check(case, 1) is None


def test_the_time_that_the_host_takes_to_enqueue_is_not_measured(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks are held back until the last is enqueued, and no longer."""
    monkeypatch.setattr(timing, "_TRIES", 2**24)  # a gate that nobody opened would stay shut for seconds
    machine = Machine(3)
    platform = opened(machine, ranks=3)
    prepared = prepare(implementations()["nccl"], a_case(ranks=3), platform)
    machine.host_delay = 0.1
    start = time.monotonic()
    assert platform.time(prepared, 1) < machine.host_delay
    assert time.monotonic() - start < 2


def test_old_graphs_are_dropped(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1)
    platform = opened(machine, ranks=2)
    monkeypatch.setattr(timing, "_KEPT", 2)
    prepared = prepare(implementations()["nccl"], a_case(), platform)
    for launches in (1, 2, 3, 4):
        platform.time(prepared, launches)
    assert len(machine.graphs) == 2 * 2, "two graphs on each of two streams"


@pytest.mark.parametrize("fault", ["without_peers", "losing_stores", "losing_copies"])
def test_kernels_are_not_run_over_peer_access_that_fails_its_probe(fault: str, opened: Open) -> None:
    platform = opened(Machine(2, **{fault: {(1, 0)}}), ranks=2)
    with pytest.raises(Unsupported, match="GPU 1 cannot use the memory of GPU 0"):
        prepare(implementations()["ring-flags"], a_case(), platform)
    case = a_case()
    if fault != "losing_copies":  # copies need no peer access
        prepared = prepare(implementations()["ring-host"], case, platform)
        platform.fill(case, 1)
        platform.time(prepared, 1)
        assert platform.check(case, 1) is None


def test_probe_peers_reports_each_direction() -> None:
    machine = Machine(3, without_peers={(0, 1)}, losing_stores={(1, 0)}, losing_copies={(2, 0)})
    found = discover._probed(cuda.Cuda(machine.cupy()), range(3))
    machine.stop()
    assert len(found) == 6
    assert found[0, 1] == (False, "the driver offers no peer access")
    assert found[1, 0] == (False, "a kernel's stores gave wrong data")
    assert found[2, 0] == (False, "a copy gave wrong data")
    assert found[1, 2] == (True, "stores, loads and a copy verified")
    assert not machine.blocks, "its buffers are given back"


def test_a_kernel_that_waits_in_vain_fails_its_case(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SPINS", 500)
    platform = opened(Machine(2, dead={1}), ranks=2)
    prepared = prepare(implementations()["ring-flags"], a_case(), platform)
    with pytest.raises(CaseFailed, match="a rank waited in vain for another's flag"):
        platform.time(prepared, 1)
    with pytest.raises(CaseFailed, match="a rank waited in vain for another's flag"):
        platform.time(prepared, 1)


def test_a_wrong_element_is_reported_with_rank_index_and_values(opened: Open) -> None:
    platform = opened(Machine(2), ranks=2)
    case = a_case()
    prepared = prepare(implementations()["nccl"], case, platform)
    platform.fill(case, 1)
    platform.time(prepared, 1)
    wrong = np.array([7.0, 8.0], np.float32)
    runtime = platform._cuda.runtime
    runtime.memcpy(buffers(platform, case, 1)[1] + 4 * 130, wrong.ctypes.data, wrong.nbytes, 1)
    found = platform.check(case, 1)
    assert (found.rank, found.index, found.chunk, found.got, found.wrong) == (1, 130, 1, "7.0", 2)
    assert found.expected == str(case.expected(1, 1)[0][1][130])


@pytest.mark.parametrize("name", implementations()["nccl"].collectives)
def test_the_result_of_the_last_run_is_no_result(name: str, opened: Open) -> None:
    """Even of the same data: filling spoils what was received."""
    platform, case = opened(Machine(1), ranks=2), a_case(name)
    prepared = prepare(implementations()["nccl"], case, platform)
    platform.fill(case, 1)
    platform.time(prepared, 1)
    assert platform.check(case, 1) is None
    platform.fill(case, 1)
    assert platform.check(case, 1) is not None


def test_ranks_that_do_not_fit_are_refused_before_anything_is_allocated(opened: Open) -> None:
    with pytest.raises(PlatformError, match=r"the ranks on GPU 0 need .* MiB and it has 1 MiB of 1 GiB free: lower -e"):
        opened(Machine(1, free=2**20), ranks=4)


def test_a_grid_that_cannot_be_resident_is_refused(opened: Open) -> None:
    platform = opened(Machine(1, multiprocessors=1, blocks_each=3), ranks=4)
    with pytest.raises(
        Unsupported, match="4 ranks x 1 blocks of 512 threads cannot run at once on GPU 0, which holds 3"
    ):
        prepare(implementations()["ring-flags"], a_case(ranks=4), platform)


def test_old_nccl_is_skipped_only_where_ranks_share_a_gpu(opened: Open) -> None:
    old = {"nccl_version": 22304}
    with pytest.raises(Unsupported, match=r"NCCL 2\.23\.4 has no ranks that share a GPU, 2\.30 has: upgrade"):
        prepare(implementations()["nccl"], a_case(), opened(Machine(1, **old), ranks=2))
    prepare(implementations()["nccl"], a_case(), opened(Machine(2, **old), ranks=2))


def test_an_nccl_that_does_not_start_is_skipped_with_its_reason(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0")  # the user's word counts
    platform = opened(Machine(1), ranks=2)
    with pytest.raises(Unsupported, match=r"NCCL could not start .*: NCCL_ERROR_INVALID_USAGE: "):
        prepare(implementations()["nccl"], a_case(), platform)


@pytest.mark.parametrize(("multiprocessors", "ranks", "ctas"), [(132, 2, 64), (132, 4, 32), (132, 8, 16), (4, 8, 1)])
def test_nccl_gets_a_power_of_two_of_ctas_that_leaves_room_for_all(multiprocessors: int, ranks: int, ctas: int) -> None:
    assert nccl.sharing(multiprocessors, ranks)["NCCL_MAX_CTAS"] == str(ctas)


def test_nccl_is_only_told_of_sharing_where_there_is_some(opened: Open) -> None:
    assert str(opened(Machine(2), ranks=2).note) == ""
    assert "NCCL_MAX_CTAS" not in os.environ
    assert str(opened(Machine(2), ranks=4).note) == "4 ranks share 2 GPUs"
    assert os.environ["NCCL_MAX_CTAS"] == "16", "less than half of 64 multiprocessors"


def test_after_an_illegal_address_the_case_has_failed_and_closing_still_ends(opened: Open) -> None:
    """CUDA refuses even to free memory then; the process, and all that it holds, is about to end."""
    machine = Machine(2)
    platform = opened(machine, ranks=2)
    prepared = prepare(implementations()["ring-flags"], a_case(), platform)
    machine.enabled.clear()
    with pytest.raises(CaseFailed, match=r"^while it ran: cudaErrorIllegalAddress: an illegal memory access was enc"):
        platform.time(prepared, 1)
    platform.close()
    assert machine.blocks


def test_everything_is_given_back(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine, ranks=2)
    for name in ("nccl", "ring-flags"):
        platform.time(prepare(implementations()[name], a_case(), platform), 2)
    comms = list(platform.comm.ranks.values())
    platform.close()
    assert not machine.blocks
    assert not any(comm._alive for comm in comms)


def test_the_ranks_memory_starts_as_zeros(opened: Open) -> None:
    platform = opened(Machine(1), ranks=2)
    for rank in platform.local:
        words = platform._queues[rank].fetch(platform.address(Region.WINDOW, rank), np.ones(2**15, np.uint8))
        assert not words.any()


def test_versions_and_topology_name_what_is_there(opened: Open) -> None:
    platform = opened(Machine(1), ranks=2)
    assert platform.versions() == {
        "cupy": "14.2.0",
        "gpu": "Test GPU",
        "cuda": "12.9",
        "driver": "12.8",
        "nvrtc": "12.9",
        "nccl": "2.30.7",
    }
    topology = platform.topology()
    assert topology["shared"]
    assert topology["name"] == "2 ranks sharing 1 x Test GPU"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "wait for ever for one not yet launched: unset it"),
    ],
)
def test_surroundings_that_would_hang_are_refused(
    variables: dict[str, str], message: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PlatformError, match=message):
        opened(Machine(1))


def test_no_gpu_is_said_in_one_line(opened: Open) -> None:
    with pytest.raises(PlatformError, match=r"no GPU found \(cudaErrorNoDevice: .*\): use --on cpu"):
        opened(Machine(0))


def test_a_platform_whose_kernels_do_not_compile_does_not_open(opened: Open) -> None:
    """Its own gate is the first of them."""
    with pytest.raises(PlatformError, match=r"^gate\.cu could not be compiled for float none: Permission denied: set"):
        opened(Machine(1, refusals={0: OSError("Permission denied")}))


def test_no_cupy_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(PlatformError, match=r"needs CuPy: pip install 'collbench\[cuda12\]'"):
        cuda.load_cupy()


def test_an_nccl_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLBENCH_NCCL", "/nowhere/libnccl.so.2")
    with pytest.raises(PlatformError, match=r"COLLBENCH_NCCL=/nowhere/.* cannot be loaded"):
        cuda.load_cupy()


def test_slices_of_one_gpu_are_not_shared(opened: Open) -> None:
    """MIG slices have one bus id and UUIDs of their own: each rank has its slice, with all of its multiprocessors."""
    platform = opened(Machine(2, buses={1: 0}))
    assert str(platform.note) == ""
    assert platform.blocks(1000) == 64
    assert os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    assert "NCCL_MAX_CTAS" not in os.environ
    assert len(platform.comm.ranks) == 2
    assert [gpu["bus_id"] for gpu in platform.topology()["gpus"]] == ["0000:00:00.0"] * 2


def test_an_old_nccl_takes_slices_of_one_gpu_for_one_gpu(opened: Open) -> None:
    """It compares bus ids, and would fail in its own words."""
    assert len(opened(Machine(2, nccl_version=22807)).comm.ranks) == 2
    with pytest.raises(Unsupported, match=r"NCCL 2\.28\.7 has no ranks that share a GPU"):
        opened(Machine(2, buses={1: 0}, nccl_version=22807)).comm.ranks  # noqa: B018


@pytest.mark.parametrize(
    ("uuids", "shared"),
    [
        ({0: None, 1: None}, True),  # a CUDA that knows none: by their bus ids they are one
        ({0: b"", 1: b""}, True),
        ({0: b"\1\2", 1: b"\1\3"}, False),
        ({0: b"\1" * 16 + b"\7", 1: b"\1" * 16}, True),  # what lies behind 16 bytes is another field
    ],
)
def test_uuids_are_compared_as_far_as_cuda_says_them(opened: Open, uuids: dict[int, Any], shared: bool) -> None:
    """CuPy ends them with the first zero, and may read on where there is none."""
    assert str(opened(Machine(2, buses={1: 0}, uuids=uuids)).note) == ("2 ranks share 1 GPU" if shared else "")


def test_ranks_are_dealt_to_gpus_when_memory_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "memories", lambda: (3 * 2**30, 3 * 2**30))
    probe.refuse_too_large(2**30, 6)
    with pytest.raises(PlatformError, match="the ranks on GPU 0 need 4 GiB and it has 3 GiB: lower -e or --ranks"):
        probe.refuse_too_large(2**30, 7)


def test_the_speed_targets_are_printed_with_their_bounds(opened: Open) -> None:
    """As on a real GPU, where the sizes are larger: shares of what the memory could do, and whether that is enough."""
    sizes = (2**16, 4096)
    platform = opened(Machine(1), ranks=4, sizes=sizes)
    lines = list(targets(platform, *sizes, Sampling(iters=3, region=0.0)))
    copy = float(lines[0].removeprefix("copy within the GPU, read and written: ").removesuffix(" GB/s"))
    for name, least in TARGETS.items():  # rates are printed with three digits, so equal ones differ by half a per cent
        (line,) = (line for line in lines if line.startswith(f"{name} at 64 KiB: algbw"))
        algbw, share, bound = re.findall(r"[\d.]+(?=%? of| GB/s)", line)
        assert float(bound) == pytest.approx(copy / 8, rel=6e-3), "every input read, every result written, once"
        assert float(share) == pytest.approx(100 * float(algbw) / float(bound), abs=1)
        assert line.endswith(f"at least {least:.0%}: {'met' if float(share) >= 100 * least else 'MISSED'}")
    (line,) = (line for line in lines if line.startswith("one-shot-ll at 4 KiB: "))
    assert line.endswith("at most 5 us: MISSED"), "threads take longer"
    assert "nvls at 64 KiB: skipped: a switch adds what is on two GPUs or more, and the ranks are on one" in lines


@pytest.mark.parametrize("implementation", [way for way in ON_GPU if not way.library], ids=lambda record: record.name)
def test_what_is_checked_on_a_gpu_about_logs_holds_here_too(implementation: Implementation, opened: Open) -> None:
    platform = opened(Machine(1), ranks=2, sizes=(LARGE,), sampling=Sampling(traced=True))
    a_log_of_every_rank(platform, implementation, least=0)  # threads that are made for a launch take most of it


def test_one_call_is_in_flight_at_a_time(opened: Open) -> None:
    """Kernels share windows, so all that a device is given to run goes through one stream, whoever enqueues it."""
    platform = opened(Machine(2), ranks=4)
    case = a_case(ranks=4)
    ways = sorted((one for one in ON_GPU if not one.library), key=lambda one: not one.wire)  # the last result is exact
    prepared = [
        operation
        for operation in (prepare(way, case, platform) for way in ways)
        if not (operation.host_driven or operation.one_graph)
    ]
    platform.fill(case, 1)
    for launches in (1, 3, 2):  # nothing waits in between
        for operation in prepared:
            operation.launch(launches)
    platform.synchronize()
    assert platform.check(case, 1) is None
    used = [queue for queue in platform._queues.values() if queue.used]
    for operation in prepared:
        platform._stopwatch._forget()
        operation.launch(1)
        assert [queue for queue in platform._queues.values() if queue.used] == used[: len(platform._places.devices)]
    platform.synchronize()


def test_versions_of_nccl_are_read_as_its_header_codes_them() -> None:
    """NCCL_VERSION of nccl.h: X*1000 + Y*100 + Z up to 2.8, X*10000 + Y*100 + Z from 2.9 on."""
    assert {code: nccl.in_words(code) for code in (2408, 2804, 20901, 21905, 23007)} == {
        2408: "2.4.8",
        2804: "2.8.4",
        20901: "2.9.1",
        21905: "2.19.5",
        23007: "2.30.7",
    }
