"""What the host waits for, for how long, and what kernels are told of each other, on a machine that tests make up."""

import os
import time
from typing import Any

import pytest

from collbench.cases import Sampling
from collbench.errors import CaseFailed, StartFailed
from collbench.implementations import implementations
from collbench.measure.launches import calibrate
from collbench.platforms.gpu import launch, nccl, timing
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.gpu.cuda import Cuda
from collbench.platforms.gpu.placement import Place, Placement
from collbench.platforms.layout import Region, buffers
from collbench.platforms.processes import Alone
from tests.platforms.gpu.fake_cuda import Machine
from tests.platforms.gpu.fake_errors import ILLEGAL_ADDRESS, NOT_READY, CUDARuntimeError
from tests.platforms.gpu.opening import ON_GPU, Open, a_case, prepare

IMPATIENT = Sampling(timeout=0.5)
LADDER = [way for way in ON_GPU if not way.library]


def watched_reads(platform: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Addresses that the host reads from devices from now on."""
    read: list[int] = []
    runtime = platform._cuda.runtime
    memcpy = runtime.memcpy
    monkeypatch.setattr(runtime, "memcpy", lambda dst, src, *rest: (read.append(src), memcpy(dst, src, *rest)))
    return read


def test_a_step_of_ring_host_reads_no_error_word_whatever_ran_before(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocking copy from every rank at every step is not the rung's: what gave up is asked once, at the end."""
    platform = opened(Machine(2), ranks=2)
    platform.time(prepare(implementations()["ring-flags"], a_case(), platform), 1)
    ring_host = prepare(implementations()["ring-host"], a_case(), platform)
    read = watched_reads(platform, monkeypatch)
    ring_host.launch(5)
    assert read == []
    platform.time(ring_host, 5)
    assert sorted(read) == sorted(platform.address(Region.WINDOW, rank) for rank in (0, 1))


def test_what_the_host_fetches_lies_behind_all_that_the_stream_was_given(opened: Open) -> None:
    """Nothing runs here until somebody waits for it; a copy to the host waits for the default stream alone."""
    machine, case = Machine(1), a_case()
    platform = opened(machine)
    platform.fill(case, 7)
    machine.order = lambda stream: stream.ptr
    send, receive = buffers(platform, case, 1)
    platform.copy(1, receive, send, case.nbytes)
    assert (platform.fetch(1, receive, case.nbytes) == platform.fetch(1, send, case.nbytes)).all()


def test_a_gate_that_opened_by_itself_is_noticed(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that did not start together were not timed together."""
    monkeypatch.setattr(timing, "_TRIES", 100)
    machine = Machine(2)
    platform = opened(machine)
    prepared = prepare(implementations()["nccl"], a_case(), platform)
    machine.host_delay = 0.1
    with pytest.raises(CaseFailed, match="the host was too slow to start all ranks together"):
        platform.time(prepared, 1)
    machine.host_delay = 0.0
    monkeypatch.setattr(timing, "_TRIES", 2**24)
    assert platform.time(prepared, 1) > 0, "the next one is as good as ever"


@pytest.mark.parametrize("broken", [0, 1])
def test_the_gpu_that_failed_is_named_although_another_one_waits_for_it_for_ever(
    broken: int, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's error is the failing device's alone; the kernels of its peers spin on."""
    platform = opened(Machine(2))
    prepared = prepare(implementations()["nccl"], a_case(), platform)
    assert platform.time(prepared, 1) > 0
    failing = platform._queues[broken].stream

    def query(stream: int) -> int:
        return ILLEGAL_ADDRESS if stream == failing.ptr else NOT_READY

    def synchronize() -> None:
        raise CUDARuntimeError(ILLEGAL_ADDRESS)

    with monkeypatch.context() as faults:
        faults.setattr(platform._cuda.runtime, "streamQuery", query)
        faults.setattr(failing, "synchronize", synchronize)
        for measured in (lambda: platform.time(prepared, 1), lambda: platform.comm.first(prepared.launch)):
            with pytest.raises(CaseFailed, match=f"^GPU {broken}: cudaErrorIllegalAddress"):
                measured()
    assert not platform.comm.hung


@pytest.mark.parametrize(
    ("hangs", "doing", "kind"),
    [("start", "start", StartFailed), ("operation", "carry out its first operation", CaseFailed)],
    ids=["start", "operation"],
)
def test_an_nccl_that_hangs_at_first_is_given_up_in_time(
    hangs: str, doing: str, kind: type[CaseFailed], opened: Open
) -> None:
    """Nor does anything wait for it when the platform is closed."""
    machine = Machine(2, nccl_hangs=hangs)
    platform = opened(machine, sampling=IMPATIENT)
    start = time.monotonic()
    words = rf"NCCL did not {doing} within 0 s \(NCCL_DEBUG=INFO says how far it came\)"
    with pytest.raises(CaseFailed, match=words) as failure:
        prepare(implementations()["nccl"], a_case(), platform)
    assert type(failure.value) is kind
    platform.close()
    assert time.monotonic() - start < 20
    assert machine.blocks, "memory that a kernel may still write is not given back"


def test_an_nccl_that_knows_why_nothing_goes_on_is_quoted(opened: Open) -> None:
    """A peer that is gone shows in no stream: the kernels that wait for it spin on, so nothing is waited for here."""
    platform = opened(Machine(2, nccl_hangs="operation", network_error=6), sampling=IMPATIENT)
    with pytest.raises(CaseFailed, match="while NCCL connected its ranks: NCCL_ERROR_REMOTE_ERROR"):
        prepare(implementations()["nccl"], a_case(), platform)
    assert platform.comm.hung


def test_nccl_has_longer_to_start_among_processes_than_under_a_supervisor() -> None:
    """A supervisor would end a worker that is silent for --timeout; a launcher's processes may be hundreds."""
    many: Any = object()
    assert gpu.nccl_patience(Alone(), 30.0) < 30.0
    assert gpu.nccl_patience(many, 30.0) == gpu.STARTUP > 300
    assert gpu.nccl_patience(many, 1000.0) == 1000.0


@pytest.mark.parametrize(
    ("status", "words"),
    [(3, "NCCL_ERROR_INTERNAL_ERROR"), (7, "NCCL says ncclInProgress"), (8, "NCCL says ncclTimeout")],
)
def test_what_nccl_does_at_first_fails_in_its_own_words(status: int, words: str, opened: Open) -> None:
    """The time limit does not swallow what was raised inside, nor does CuPy's KeyError for statuses newer than it."""
    platform = opened(Machine(2), sampling=IMPATIENT)
    communicators = platform.comm

    def fail(launches: int) -> None:
        raise platform._cuda.nccl.NcclError(status)

    with pytest.raises(CaseFailed, match=f"while NCCL connected its ranks: {words}"):
        communicators.first(fail)
    assert not communicators.hung


def test_a_key_that_is_missing_elsewhere_is_no_status_of_nccl() -> None:
    cuda = Cuda(Machine().cupy())
    with pytest.raises(KeyError), cuda.failing_as(CaseFailed, "while nothing was done"):
        {}[8]


@pytest.mark.parametrize(
    ("multiprocessors", "ranks"), [(132, 2), (132, 4), (132, 8), (64, 4), (114, 4), (28, 2), (16, 2), (8, 4), (4, 8)]
)
def test_an_nccl_that_shares_a_gpu_leaves_room_and_launches_no_clusters(multiprocessors: int, ranks: int) -> None:
    settings = nccl.sharing(multiprocessors, ranks)
    ctas = int(settings["NCCL_MAX_CTAS"])
    assert ctas & (ctas - 1) == 0
    assert ctas == 1 or ctas * ranks < multiprocessors
    assert settings["NCCL_CGA_CLUSTER_SIZE"] == "0"


def test_the_row_of_an_nccl_in_one_process_says_what_it_lacks(opened: Open) -> None:
    """On one GPU, and with one rank, there is nothing to lack."""
    assert "a process for each (mpirun)" in str(prepare(implementations()["nccl"], a_case(), opened(Machine(2))).note)
    assert str(prepare(implementations()["nccl"], a_case(), opened(Machine(1))).note) == "NCCL_MAX_CTAS=16"
    os.environ.pop("NCCL_MAX_CTAS")
    assert str(prepare(implementations()["nccl"], a_case(ranks=1), opened(Machine(1), ranks=1)).note) == ""


def test_a_sample_on_a_gpu_is_long_against_the_start_of_its_graph(opened: Open) -> None:
    """Milliseconds, where 200 us serve on a CPU; what a user or test asks for goes before."""
    platform = opened(Machine(1))
    assert 1e-3 <= platform.region <= 2e-3

    class Steady:
        region = platform.region

        def time(self, prepared: Any, launches: int) -> float:
            return 10e-6

    steady: Any = Steady()
    prepared = prepare(implementations()["nccl"], a_case(), platform)
    assert calibrate(prepared, steady, Sampling()) == 256
    assert calibrate(prepared, steady, Sampling(region=100e-6)) == 16


@pytest.mark.parametrize(
    ("devices", "ranks", "expected"),
    [
        (1, 2, {"-DMAX_RANKS=8", "-DRANKS=2", "-DONE_DEVICE"}),
        (1, 3, {"-DMAX_RANKS=8", "-DONE_DEVICE"}),
        (2, 2, {"-DMAX_RANKS=8", "-DRANKS=2"}),
        (2, 4, {"-DMAX_RANKS=8", "-DRANKS=4"}),
        (3, 9, {"-DMAX_RANKS=16"}),
    ],
)
@pytest.mark.parametrize("implementation", LADDER, ids=lambda record: record.name)
def test_kernels_are_compiled_for_the_ranks_and_devices_of_the_run(
    implementation: Any, devices: int, ranks: int, expected: set[str], opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose ranks wait for each other; those that the host orders are the same for any."""
    platform = opened(Machine(devices), ranks=ranks)
    compiled: list[tuple[str, tuple[str, ...]]] = []
    module = platform._cuda.cupy.RawModule
    monkeypatch.setattr(
        platform._cuda.cupy, "RawModule", lambda **named: (compiled.append(named["options"]), module(**named))[1]
    )
    prepare(implementation, a_case(ranks=ranks), platform)
    for options in compiled:
        about_ranks = {option for option in options if option.startswith(("-DMAX_RANKS", "-DRANKS", "-DONE_DEVICE"))}
        assert about_ranks == (set() if implementation.name in ("ring-host", "ring-events") else expected)
    assert compiled


@pytest.mark.parametrize("multiprocessors", [5, 13, 27])
@pytest.mark.parametrize("name", ["ring-pipelined", "ring-ll", "two-shot", "one-shot-ll"])
def test_numbers_of_blocks_that_divide_nothing_give_right_results(
    name: str, multiprocessors: int, opened: Open
) -> None:
    """A GPU's multiprocessors divided by ranks are rarely a power of two; slots must be whole packs all the same."""
    platform = opened(Machine(1, multiprocessors=multiprocessors), ranks=2)
    prepared = {
        nbytes: prepare(implementations()[name], a_case(nbytes=nbytes), platform) for nbytes in (70000, 4, 3000)
    }
    for seed, nbytes in enumerate((70000, 4, 3000, 70000)):
        platform.fill(a_case(nbytes=nbytes), seed)
        platform.time(prepared[nbytes], 2)
        assert platform.check(a_case(nbytes=nbytes), seed) is None


@pytest.mark.parametrize(("nbytes", "blocks", "threads"), [(8, 1, 32), (4096, 1, 512), (4104, 2, 512), (2**18, 8, 512)])
def test_packets_have_no_more_blocks_than_there_is_data(nbytes: int, blocks: int, threads: int, opened: Open) -> None:
    launched = []
    platform = opened(Machine(1, multiprocessors=200), ranks=2, sizes=(2**18,))
    bind = platform.bind
    platform.bind = lambda kernel, case, *rest: (launched.append(rest[:2]), bind(kernel, case, *rest))[1]
    prepare(implementations()["one-shot-ll"], a_case(nbytes=nbytes), platform)
    assert launched == [(blocks, threads)]


@pytest.mark.parametrize(("ranks", "room"), [(1, 8), (2, 8), (8, 8), (9, 16), (72, 128), (128, 128), (500, 128)])
def test_a_world_has_room_for_its_ranks(ranks: int, room: int) -> None:
    assert launch.room_for(ranks) == room


@pytest.mark.parametrize(
    ("device", "processes", "alone"),
    [({0: 0, 1: 0}, 1, True), ({0: 0, 1: 1}, 1, False), ({0: 0}, 2, False), ({0: 0}, 1, True)],
)
def test_the_scope_of_one_device_is_for_ranks_of_one_process(
    device: dict[int, int], processes: int, alone: bool
) -> None:
    """Processes that share a GPU are two programs, for which nothing promises it."""
    places = tuple(Place(("node", ""), f"0000:{bus:02x}:00.0", "GPU", 64, 2**20) for bus in (0, 0)[:processes])
    assert Placement(tuple(device), device, places, processes).one_device == alone
