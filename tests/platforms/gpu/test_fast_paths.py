"""NCCL's fast paths, and what its log says that it ran."""

import re
import tomllib
from collections import Counter
from ctypes import c_int, c_size_t, c_void_p, sizeof
from pathlib import Path
from typing import Any

import pytest

from collbench.algorithms import choose, implementations, libraries
from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.errors import CaseFailed, Unsupported
from collbench.measure.sampling import measure
from collbench.measure.tracing import explain
from collbench.platforms.gpu import timing
from collbench.platforms.gpu.cuda import NEWER_STATUSES
from collbench.platforms.gpu.nccl.communicators import init_timings, what_ran, why_not
from collbench.platforms.gpu.nccl.functions import (
    COLLECTIVE_SYMMETRIC,
    FUNCTIONS,
    Config,
    SimInfo,
    UniqueId,
)
from collbench.platforms.gpu.timing import LAUNCH_QUEUE
from collbench.platforms.interface import NOT_SAID, Prepared
from collbench.platforms.layout import Region
from collbench.results import Explanation, Measurement, Skipped
from tests.platforms.gpu.opening import Open
from tools.stand_in.cases import a_case
from tools.stand_in.clocks import Counted
from tools.stand_in.cuda import Machine
from tools.stand_in.nccl import NAMES, Communicator
from tools.stand_in.runtime import Runtime
from tools.stand_in.simulate import SINCE, Simulation, build_extension

PATHS = {name: way for name, way in implementations().items() if way.path}
QUICK = Sampling(iters=3, region=0.0)


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_extension(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def platform(extension: Path, opened: Open) -> Any:
    """Two GPUs, and an NCCL with everything, of which `simulation` tells what it was asked."""
    simulation = Simulation(extension)
    machine = Machine(2, simulation=simulation)
    platform = opened(machine, implementations=("nccl", *PATHS))
    platform.machine, platform.simulation = machine, simulation
    return platform


def rows(platform: Any, *names: str, **case: Any) -> list[Any]:
    chosen = [implementations()[name] for name in names]
    return list(measure(a_case(**case), chosen, platform, QUICK))


def test_paths_are_rows_beside_the_library_when_they_are_asked_for() -> None:
    assert not set(choose("all", "gpu")) & set(PATHS)
    assert choose("library,paths", "gpu") == ("nccl", *PATHS)
    assert not set(libraries()) & set(PATHS), "hand-written kernels are compared with the fastest of them"


@pytest.mark.parametrize("in_place", [False, True])
def test_every_path_gives_right_results_in_every_collective(platform: Any, in_place: bool) -> None:
    for name, collective in COLLECTIVES.items():
        if name == "barrier" or (in_place and (not collective.in_place or name == "alltoall")):
            continue
        root = int(collective.rooted)
        for row in rows(platform, *PATHS, collective=name, nbytes=1000, in_place=in_place, root=root):
            assert isinstance(row, Measurement), (name, row)
            assert row.right, (name, row.implementation, row.wrong)


def test_a_row_says_what_ran(platform: Any) -> None:
    found = {row.implementation: row for row in rows(platform, "nccl", *PATHS, nbytes=1000)}
    plain = ["nccl", "nccl@few-ctas", "nccl@registered"]
    assert [name for name, row in found.items() if row.estimate] == plain
    assert [name for name, row in found.items() if "one process" in str(row.note)] == plain
    assert {name: (row.method, row.note.buffers) for name, row in found.items()} == {
        "nccl": ("ring/ll", "cudaMalloc, not registered"),
        "nccl@registered": ("ring/ll", "ncclMemAlloc, registered"),
        "nccl@symmetric": ("symm/LL", "ncclMemAlloc, a symmetric window"),
        "nccl@few-ctas": ("ring/ll", "ncclMemAlloc, registered"),
        "nccl@copy-engine": ("symm/LL", "ncclMemAlloc, a symmetric window"),
    }
    (gathered,) = rows(platform, "nccl@copy-engine", collective="allgather", nbytes=1000)
    assert (gathered.method, gathered.channels) == ("ce", None)
    (large,) = rows(platform, "nccl", nbytes=70000)
    assert (large.method, large.channels) == ("ring/simple", 4)


@pytest.mark.parametrize(("name", "nodes"), [("nccl@symmetric", 1), ("nccl@copy-engine", 6)])
def test_graphs_keep_to_a_quarter_of_the_launch_queue_by_their_nodes(name: str, nodes: int, platform: Any) -> None:
    machine, home = platform.machine, implementations()[name].home(platform, a_case())
    prepared = implementations()[name].prepare(a_case("allgather", nbytes=8), home)
    most = LAUNCH_QUEUE // 4 // (2 * nodes)  # in graphs of two ranks
    home.clock.time(prepared, most)
    assert (machine.replays, machine.deepest) == (2, most * nodes)
    home.clock.time(prepared, most + 1)
    assert machine.replays == 2 + 4


def test_what_runs_is_read_and_not_assumed(extension: Path, opened: Open) -> None:
    platform = opened(Machine(2, simulation=Simulation(extension), algorithm="TREE"), implementations=("nccl",))
    assert [row.method for row in rows(platform, "nccl")] == ["tree/ll"]
    assert [row.method for row in rows(platform, "nccl", collective="alltoall")] == [""]
    silent = opened(Machine(2), implementations=("nccl",))
    assert [row.method for row in rows(silent, "nccl")] == [""]


def test_nothing_is_logged_while_operations_are_timed(
    platform: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows(platform, "nccl", "nccl@symmetric")
    assert "NCCL INFO" not in capfd.readouterr().out
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    rows(platform, "nccl")
    assert "NCCL INFO AllReduce: 1000 Bytes" in capfd.readouterr().out
    own = tmp_path / "own.log"
    own.write_text("kept")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(own))
    assert [row.method for row in rows(platform, "nccl")] == [""]
    assert own.read_text().startswith("kept")


def test_each_path_has_communicators_and_a_policy_of_its_own_and_one_memory(platform: Any) -> None:
    rows(platform, *PATHS)
    rows(platform, *PATHS, nbytes=4)
    simulation = platform.simulation
    undefined = -(2**31)
    assert Counter(simulation.policies) == {undefined: 4, 1: 2, 2: 2}, "a communicator a rank, made once"
    assert simulation.registered == ["register 0", "register 1"] * 4, "once each"
    homes = [way.home(platform, a_case()).memory for way in PATHS.values()]
    assert all(home is homes[0] for home in homes)
    assert homes[0].address(Region.SEND, 0) != platform.memory.address(Region.SEND, 0)
    platform.close()
    assert Counter(simulation.registered[8:]) == {"forget 0": 2, "forget 1": 2, "close 0": 2, "close 1": 2}
    assert not platform.machine.blocks


def test_an_explanation_is_of_the_memory_of_its_path_and_says_what_ran(
    extension: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(2, simulation=Simulation(extension))
    platform = opened(machine, implementations=tuple(PATHS), sampling=Sampling(traced=True))
    monkeypatch.setattr(platform, "checker", None)
    (row,) = explain(a_case(), [PATHS["nccl@symmetric"]], platform, QUICK)
    assert (type(row), row.method) == (Explanation, "symm/LL")


def test_a_path_knows_when_nccl_lost_a_rank(extension: Path, opened: Open) -> None:
    machine = Machine(2, simulation=Simulation(extension), nccl_hangs="operation", network_error=6)
    platform = opened(machine, implementations=tuple(PATHS), sampling=Sampling(timeout=0.2))
    way = PATHS["nccl@symmetric"]
    with pytest.raises(CaseFailed, match=r"NCCL lost a rank \(status 6\)"):
        way.prepare(a_case(), way.home(platform, a_case()))


def test_a_call_that_fails_leaves_no_group_open(platform: Any) -> None:
    def fails() -> None:
        raise CaseFailed("refused")

    with pytest.raises(CaseFailed, match="refused"):
        platform.comm.launch([[fails]], platform.local, 1)
    assert rows(platform, "nccl")[0].right


def test_a_path_that_cannot_be_had_is_skipped_with_nccls_reason_and_asked_once(extension: Path, opened: Open) -> None:
    simulation = Simulation(extension, makes_windows=False)
    platform = opened(Machine(2, simulation=simulation), implementations=("nccl", *PATHS))
    for nbytes in (4, 1000):
        by_name = {row.implementation: row for row in rows(platform, "nccl", *PATHS, nbytes=nbytes)}
        for name, row in by_name.items():
            assert isinstance(row, Skipped) == ("symmetric" in name or "engine" in name), name
        reason = by_name["nccl@symmetric"].reason
        assert "made no window" in reason
        assert reason.endswith("Symmetric registration is not supported in this communicator.")
    assert len(simulation.policies) == 2 * len(PATHS), "communicators are made once"
    assert simulation.destroyed == 2 * 2, "what serves nobody takes no memory"


def test_a_path_is_for_single_operations(platform: Any) -> None:
    with pytest.raises(Unsupported, match="single operations"):
        PATHS["nccl@symmetric"].prepare(a_case(), platform)


def test_a_path_calls_the_collectives_that_copy_engines_serve(platform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, called = Communicator.alltoAll, list[Communicator]()
    monkeypatch.setattr(Communicator, "alltoAll", lambda comm, *rest: called.append(comm) or real(comm, *rest))
    assert PATHS["nccl@copy-engine"].prepare(a_case("alltoall"), PATHS["nccl@copy-engine"].home(platform, a_case()))
    assert called


def test_a_row_says_what_memory_the_library_took_and_how_long_the_host_takes_to_enqueue(platform: Any) -> None:
    (row,) = rows(platform, "nccl")
    assert row.enqueue > 0
    assert row.library_bytes == 0, "the made-up NCCL takes none"


def test_memory_of_starting_and_of_connecting_counts_for_a_rank_and_the_most_of_all_processes(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {0: [100, 70, 70, 60], 1: [100, 90, 90, 80]}
    seen = lambda _: (free[platform.machine.current].pop(0), 100)  # noqa: E731
    monkeypatch.setattr(Runtime, "memGetInfo", seen)
    assert implementations()["nccl"].prepare(a_case(), platform).library_bytes == 30
    monkeypatch.setattr(platform.team, "exchange", lambda mine: [mine, mine + 1])
    assert platform.comm.taken() == 31


def test_the_quickest_launch_of_the_slowest_process_counts_without_what_the_gpu_takes(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, seconds = Counted(), iter((3.0, 1.0, 2.0))
    monkeypatch.setattr(timing, "time", host)
    monkeypatch.setattr(platform.clock, "wait", lambda: host.sleep(8.0))
    monkeypatch.setattr(platform.team, "exchange", lambda mine: [mine, mine + 0.5])
    prepared = Prepared(lambda launches: host.sleep(launches * next(seconds)))
    assert platform.clock.enqueue_seconds(prepared) == 1.5
    assert platform.clock.enqueue_seconds(Prepared(prepared.launch, host_driven=True)) is None


def test_no_pass_is_made_for_operations_of_which_nccls_log_says_nothing(platform: Any) -> None:
    silent = ("sendrecv", "nccl"), ("pingpong", "nccl"), ("sendrecv", "nccl@copy-engine")
    for name, way in (("allreduce", "nccl"), ("alltoall", "nccl@copy-engine"), *silent):
        before, home = platform.machine.captures, implementations()[way].home(platform, a_case())
        assert implementations()[way].prepare(a_case(name), home)
        assert (platform.machine.captures == before) == ((name, way) in silent), (name, way)


def test_what_was_planned_is_forgotten(platform: Any) -> None:
    assert implementations()["nccl"].prepare(a_case(), platform)
    assert not platform.machine.graphs


BEGIN = "gpu-node-7:185302:185302 [0] NCCL INFO "
INTERFACE = tomllib.loads((Path(__file__).parent / "nccl_interface.toml").read_text())
KINDS = {"pointer": c_void_p, "size": c_size_t, "int": c_int, "id": UniqueId}
STRUCTURES = {"ncclConfig_t": Config, "ncclSimInfo_t": SimInfo}


def test_functions_and_structures_are_those_of_nccls_headers_and_libraries() -> None:
    assert {release[:4] for release in INTERFACE} == {"2.27", "2.28", "2.29", "2.30", "2.31", "2.32"}
    for release, said in INTERFACE.items():
        for name, kinds in FUNCTIONS.items():
            assert (name in said) == (SINCE.get(name, 0) <= said["number"]), (release, name)
            taken = [KINDS[word] for word in said.get(name, "").split()]
            assert not taken or tuple(taken) == kinds, (release, name)
        for structure, ours in STRUCTURES.items():
            assert said[f"{structure} magic"] == ours().magic, release
            assert ours().version <= said["number"], release
            for field in ours._fields_:
                assert said[f"{structure}.{field[0]}"] == getattr(ours, field[0]).offset, (release, field)
        assert said["resets_its_log"]
        codes = [code.removeprefix("nccl").upper() for code in said["codes"][:7]]
        assert dict(enumerate(said["codes"][7:], 7)).items() <= NEWER_STATUSES.items(), release
        assert codes == [name.removeprefix("NCCL_ERROR_").replace("_", "") for name in NAMES], release
        assert said["NCCL_CONFIG_UNDEF_INT"] == Config().CTAPolicy
        assert said["NCCL_WIN_COLL_SYMMETRIC"] == COLLECTIVE_SYMMETRIC
        assert said["NCCL_UNIQUE_ID_BYTES"] == sizeof(UniqueId)
        policies = {"EFFICIENCY": 1, "ZERO": 2}
        assert all(said.get(f"NCCL_CTA_POLICY_{name}", value) == value for name, value in policies.items())


PLANS = {  # lines as public logs have them, with names that take more reading
    "AllReduce: 33554432 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..31}": ("ring", "ll128", 32),
    "AllReduce: 512 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={2..5}": ("nvlstree", "simple", 4),
    "x [Symmetric]: 64 Bytes -> Kernel AllReduce_RSxLDMC_AGxSTMC nchannels 16": ("symm", "RSxLDMC_AGxSTMC", 16),
}
FILLINGS = {  # what takes the place of %s, %d, ... in a form of the log, by a word of it, and what is read then
    "Algo": ("AllReduce 4096 RING LL 0 7 4", ("ring", "ll", 8)),
    "Kernel": ("AllGather 64 AllGather_LL 8 512 1", ("symm", "LL", 8)),
    "cudaMemcpy": ("AllGather 64 Async", ("ce", "", None)),
    "RMA": ("AllGather 64", ("ce", "", None)),
    "Rail": ("64 ring", ("ce", "", None)),
}


def test_every_form_of_a_plan_in_the_libraries_is_read() -> None:
    for release, found in INTERFACE.items():
        assert len(found["log"]) >= 2, release
        for form in found["log"]:
            line = form
            filling, wanted = next(given for word, given in FILLINGS.items() if f"> {word}" in form)
            for word in filling.split():
                line = re.sub("%[a-z]+", word, line, count=1)
            assert "%" not in line, form
            assert what_ran(BEGIN + line) == wanted, (release, form)
    for line, said in PLANS.items():
        assert what_ran(BEGIN + line) == said, line
    assert what_ran("\n".join(BEGIN + line for line in PLANS)) == said, "the last one counts"
    assert what_ran(BEGIN + "AllReduce: opCount 0 sendbuff 0x7f757de00400 count 1 [nranks=16]") == NOT_SAID
    assert what_ran("") == NOT_SAID


def test_nccls_own_parts_of_a_start_are_read() -> None:
    parts = (
        "kernels 0.13, alloc 0.19, bootstrap 0.00, allgathers 0.01, topo 0.11, graphs 0.00, connections 0.04, rest 0.00"
    )
    line = f"Init timings - ncclCommInitRank: rank 0 nranks 8 total 0.48 ({parts})"
    assert (
        init_timings(f"{BEGIN}cudaDriverVersion 13000\n{BEGIN}{line}\n")
        == f"NCCL of its first start, in seconds: total 0.48 ({parts})"
    )
    assert init_timings(BEGIN + "Init COMPLETE") == ""


def test_a_refusal_is_told_in_nccls_words() -> None:
    quiet = BEGIN + "Symmetric memory is not supported. cuMemEnable 0, globalGinSupport 0, cuMemGdrSupport 1"
    loud = "n:1:1 [0] transport.cc:9 (register) NCCL WARN buffer 0x1 does not satisfy the requirements"
    assert why_not(f"{quiet}\n{BEGIN}Init COMPLETE") == quiet.removeprefix(BEGIN)
    assert why_not(f"{loud}\n{quiet}") == "buffer 0x1 does not satisfy the requirements"
    new = BEGIN + "symmetricSupport 0, cuMemEnable 1, globalGinSupport 0, contiguousRanksPerHost 1"
    assert why_not(new) == new.removeprefix(BEGIN)
    other = BEGIN + "NVLS multicast support is not available on dev 0"
    assert why_not(other) == why_not(BEGIN + "Init COMPLETE") == "its log does not say why", "it is no reason"
