"""NCCL's own estimate: how its function is found, what it is asked, and what becomes of the answer."""

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.cases import Case, Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.implementations import implementations
from collbench.measure.runner import measure
from collbench.measurement import Measurement
from collbench.platforms import open_platform
from collbench.platforms.gpu import nccl as gpu_nccl
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.gpu import simulate
from collbench.platforms.kernels import compiler
from collbench.platforms.layout import Needs, Region
from collbench.platforms.processes import Alone
from tests.platforms.gpu.fake_cuda import Machine
from tests.platforms.gpu.fake_simulate import Simulation, build_extension
from tools.gpu import checks

NCCL = implementations()["nccl"]
WHOLE = {"allreduce", "broadcast", "allgather", "reducescatter", "reduce"}  # what NCCL itself calls collectives
FIELDS = {"size": (0, 8), "magic": (8, 4), "version": (12, 4), "estimatedTime": (16, 4)}  # offset, bytes

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_extension(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Open the platform for NCCL, on GPUs with an NCCL that simulates."""
    held = []
    for name in gpu_nccl.sharing(1, 1):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def open_on(simulation: Simulation | None, ranks: int = 2) -> Any:
        machine = Machine(2, simulation=simulation)
        monkeypatch.setattr(gpu, "load_cupy", machine.cupy)
        dtypes, redops = (DATATYPES["float"],), (REDUCTIONS["sum"],)
        sweep = Sweep(tuple(COLLECTIVES.values()), (1000,), dtypes, redops, ranks, ("nccl",))
        held.append((open_platform(sweep, Needs(), "gpu", Alone()), machine))
        return held[-1][0]

    yield open_on
    for platform, machine in held:
        platform.close()
        machine.stop()


def a_case(collective: str = "allreduce", ranks: int = 2) -> Case:
    chosen = COLLECTIVES[collective]
    redop = REDUCTIONS["sum"] if chosen.reduces else NONE
    return Case(chosen, 960, DATATYPES["float"], redop, root=0, ranks=ranks, in_place=False)


def measured(platform: Any, case: Case | None = None) -> Measurement:
    (result,) = measure(case or a_case(), [NCCL], platform, Sampling(iters=3, region=0.0))
    assert isinstance(result, Measurement)
    assert result.mismatch is None
    assert len(result.seconds) == 3
    return result


def test_a_row_of_nccl_has_what_nccl_expects_in_seconds(extension: Path, opened: Open) -> None:
    assert measured(opened(Simulation(extension, expects=35.5))).estimate == pytest.approx(35.5e-6)


@pytest.mark.parametrize("name", NCCL.collectives)
def test_every_collective_that_nccl_has_is_simulated_and_no_send_or_receive(
    name: str, extension: Path, opened: Open
) -> None:
    """NCCL would find those in its next group; then the made-up one moves bytes twice, or has a send too many."""
    simulation = Simulation(extension)
    estimate = measured(opened(simulation, ranks=3), a_case(name, ranks=3)).estimate
    asked = [group for group in simulation.groups if group]
    assert (estimate is not None) == (name in WHOLE) == (name in NCCL.estimates)
    assert [len(group) for group in asked] == [3] * (name in WHOLE), "each rank's call, once a case"
    assert not any({"send", "recv"} & {*group} for group in asked)


def test_simulating_carries_nothing_out(extension: Path, opened: Open) -> None:
    """What is simulated leaves the buffers as they were filled."""
    platform, case = opened(Simulation(extension)), a_case()
    NCCL.prepare(case, platform)
    platform.fill(case, 1)
    streams = [platform.comm.stream(rank) for rank in platform.local]
    send, receive = (
        [platform.address(region, rank) for rank in platform.local] for region in (Region.SEND, Region.RECEIVE)
    )
    calls = [
        lambda rank=rank: platform.comm.ranks[rank].allReduce(send[rank], receive[rank], 240, 7, 0, streams[rank])
        for rank in platform.local
    ]
    assert platform.comm.estimate(calls) == pytest.approx(12.5e-6)
    assert platform.check(case, 1) is not None


@pytest.mark.parametrize("wrong", [None, {"expects": 1e6}, {"each": 0.0}, {"status": 3}])
def test_what_is_checked_on_a_gpu_holds_here_too(
    wrong: dict[str, Any] | None, extension: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the check fails on what is of another order, knows no sizes, or is not there."""
    monkeypatch.setattr(checks, "LARGE", 1000)
    platform = opened(Simulation(extension, **{"expects": 1000.0, "each": 1e-2} | (wrong or {})))
    with pytest.raises(AssertionError) if wrong else nullcontext():
        checks.an_estimate_of_its_own(platform, NCCL)


def test_one_rank_is_not_simulated(extension: Path, opened: Open) -> None:
    """NCCL would copy at once, simulated or not."""
    simulation = Simulation(extension)
    assert measured(opened(simulation, ranks=1), a_case(ranks=1)).estimate is None
    assert not any(simulation.groups)


@pytest.mark.parametrize("answer", [{"status": 3}, *({"expects": value} for value in (-1.0, 0.0, nan, inf))])
def test_an_nccl_that_cannot_say_is_measured_all_the_same(
    answer: dict[str, Any], extension: Path, opened: Open
) -> None:
    assert measured(opened(Simulation(extension, **answer))).estimate is None


def test_a_call_that_fails_leaves_no_group_open(extension: Path, opened: Open) -> None:
    platform = opened(Simulation(extension, expects=-1.0))
    NCCL.prepare(a_case(), platform)

    def refused() -> None:
        raise platform._cuda.nccl.NcclError(5)

    assert platform.comm.estimate([refused]) is None
    assert measured(platform).estimate is None


def test_an_old_nccl_has_no_estimates_and_no_error(tmp_path: Path, opened: Open) -> None:
    simulation = Simulation(build_extension(tmp_path, simulates=False))
    assert measured(opened(simulation)).estimate is None
    assert not simulation.groups


def test_another_copy_of_nccl_than_cupys_is_not_asked(tmp_path: Path, opened: Open) -> None:
    """It knows nothing of CuPy's groups; an empty one shows that, and is closed again."""
    simulation = Simulation(build_extension(tmp_path), registers=False)
    assert measured(opened(simulation)).estimate is None
    assert not simulation.groups


@pytest.mark.parametrize("where", ["not loaded", "no library", "no module"])
def test_what_is_not_loaded_is_not_loaded_for_this(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(build_extension(tmp_path)) if where == "not loaded" else __file__
    communicator = type("NcclCommunicator", (), {"__module__": "made_up_extension"})
    if where != "no module":
        monkeypatch.setitem(sys.modules, "made_up_extension", SimpleNamespace(__file__=file))
    assert simulate.find(SimpleNamespace(NcclCommunicator=communicator)) is None
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_cupys_own_nccl_closes_its_groups_by_the_function_that_is_found() -> None:
    """No GPU is needed for an empty group.  The loader has as many libraries as before."""
    nccl = pytest.importorskip("cupy.cuda.nccl", exc_type=ImportError)
    if not nccl.available:
        pytest.skip("CuPy found no NCCL")
    before = _mapped()
    end = simulate.find(nccl)
    assert _mapped() == before
    assert (end is not None) == (nccl.get_version() >= simulate.VERSION)
    if end is not None:
        nccl.groupStart()
        assert end() is None
        with pytest.raises(nccl.NcclError, match="INVALID_USAGE"):
            nccl.groupEnd()


def _mapped() -> set[str]:
    return {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}


def test_the_structure_is_as_documented() -> None:
    found = {name: getattr(simulate.SimInfo, name) for name, *_ in simulate.SimInfo._fields_}
    assert {name: (member.offset, member.size) for name, member in found.items()} == FIELDS
    assert ctypes.sizeof(simulate.SimInfo) == 24
    made = simulate.SimInfo()
    assert (made.size, made.magic, made.version, made.estimatedTime) == (24, 0x74685283, 22203, -1.0)


def test_the_structure_is_that_of_the_header(tmp_path: Path) -> None:
    """Of CUDA that takes a few names only."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = [path for folder in folders for path in folder.glob("*/include/nccl.h")]
    if not found:
        pytest.skip("no nccl.h here: pip install nvidia-nccl-cu12")
    names = ["typedef struct CUstream_st* cudaStream_t;", "typedef struct CUevent_st* cudaEvent_t;"]
    (tmp_path / "cuda_runtime.h").write_text("\n".join(["#include <cstddef>", *names, ""]))
    for name in ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"):
        (tmp_path / name).touch()
    lines = [f"static_assert(offsetof(ncclSimInfo_t, {name}) == {place});" for name, (place, _) in FIELDS.items()]
    lines += [f"static_assert(sizeof(ncclSimInfo_t::{name}) == {size});" for name, (_, size) in FIELDS.items()]
    lines += [
        "constexpr ncclSimInfo_t made = NCCL_SIM_INFO_INITIALIZER;",
        f"static_assert(made.size == {ctypes.sizeof(simulate.SimInfo)});",
        f"static_assert(made.magic == {simulate.MAGIC} && made.version >= {simulate.VERSION});",
        f"static_assert(made.estimatedTime == {simulate.UNKNOWN}f);",
        "ncclResult_t (*end)(ncclSimInfo_t*) = ncclGroupSimulateEnd;",
    ]
    source = tmp_path / "header.cpp"
    source.write_text("\n".join(["#include <nccl.h>", *lines]))
    command = [*compiler(), "-std=c++20", "-fsyntax-only", "-I", tmp_path, "-I", found[0].parent, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
