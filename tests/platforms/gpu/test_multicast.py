"""`nvls` and the memory under it, on machines with a switch that tests make up (tools/stand_in/driver.py)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from collbench.algorithms import auto, implementations
from collbench.algorithms.nvls import REDUCES
from collbench.cases import Case, Sampling
from collbench.collectives import COLLECTIVES
from collbench.commands.step.measured import measure_steps
from collbench.commands.step.rows import StepTimes
from collbench.commands.step.schedules import SCHEDULES
from collbench.commands.step.work import Step
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import PlatformError, TimedOut, Unsupported
from collbench.measure.tracing import explain
from collbench.platforms.gpu import cuda
from collbench.platforms.gpu.cuda import Cuda
from collbench.platforms.gpu.memory import SwitchMemory, switch_driver
from collbench.platforms.layout import GUARD, Region, view
from collbench.results import Explanation
from tests.conftest import case
from tests.platforms.gpu.opening import Open
from tools.stand_in.cuda import Machine
from tools.stand_in.driver import UNDOING, Library
from tools.stand_in.header import CALLS

NVLS = implementations()["nvls"]
NBYTES = 100_000
TRACED = Sampling(iters=1, region=0.0, traced=True)
STEPS = 33  # calls to the driver that make memory for two GPUs, as a test below makes sure


@pytest.fixture
def opened(opened: Open, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """The same on a machine with a switch, for a sweep of some implementations; all memory must be given back."""
    platforms, libraries = [], []

    def open_on(devices: int, ranks: int, names: tuple[str, ...] = ("nvls", "two-shot"), **faults: Any) -> Any:
        machine = Machine(devices, nvrtc_version=faults.pop("nvrtc_version", (12, 9)))
        libraries.append(with_switch(machine, monkeypatch, **faults))
        wanted = {"collectives": (COLLECTIVES["allreduce"],), "sizes": (NBYTES,), "dtypes": (DATATYPES["double"],)}
        platforms.append(opened(machine, ranks=ranks, implementations=names, sampling=TRACED, **wanted))
        platforms[-1].library = libraries[-1]
        return platforms[-1]

    yield open_on
    for platform, library in zip(platforms, libraries, strict=True):
        platform.close()
        assert library.empty
        assert not library.machine.blocks


def with_switch(machine: Machine, monkeypatch: pytest.MonkeyPatch, **faults: Any) -> Library:
    machine.switch = Library(machine, **faults)
    monkeypatch.setattr(cuda, "load_driver", lambda: cuda.Driver(machine.switch))
    return machine.switch


def a_case(ranks: int, nbytes: int, dtype: str = "float", redop: str = "sum", in_place: bool = False) -> Case:
    return case(nbytes=nbytes, ranks=ranks, dtype=DATATYPES[dtype], redop=REDUCTIONS[redop], in_place=in_place)


def expect_right(platform: Any, one: Case, name: str = "nvls", calls: int = 2) -> None:
    implementations()[name].refuse(one)
    platform = implementations()[name].home(platform, one)
    prepared = implementations()[name].prepare(one, platform)
    for seed in range(calls):
        platform.checker.fill(one, seed)
        platform.clock.time(prepared, 1)
        assert platform.checker.check(one, seed) is None, f"{one.dtype.name} {one.redop.name} {one.nbytes}"


def test_every_length_is_reduced_on_every_rank(opened: Open) -> None:
    for ranks in (2, 3):
        platform = opened(ranks, ranks)
        for nbytes in (4, 12, 500, 4096, 99_996):
            for in_place in (False, True):
                expect_right(platform, a_case(ranks, nbytes, in_place=in_place))
                expect_right(platform, replace(a_case(ranks, nbytes // 8 * 4 + 4, in_place=in_place), unalign=3))
            expect_right(platform.on_switch(), a_case(ranks, nbytes), "two-shot")


def test_only_nvls_works_in_memory_of_the_switch_and_that_is_made_when_first_asked_for(opened: Open) -> None:
    platform = opened(2, 2, ("nccl", "nvls"))
    assert platform.library.empty
    home, others = NVLS.home(platform, a_case(2, 8)), implementations()["nccl"].home(platform, a_case(2, 8))
    starts = [one.memory.address(Region.SEND, 1) - GUARD in platform.library.mapped for one in (home, others)]
    assert starts == [True, False]
    expect_right(platform, a_case(2, 1000))
    view(home.memory.address(Region.WINDOW, 1), 4)[:] = 1
    with pytest.raises(TimedOut, match="rank 1"):
        platform.clock.refuse_given_up()


def test_auto_hands_cases_to_the_switch_and_a_log_is_kept_there(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "expected", lambda *_: {"nvls": 1e-6, "two-shot": 2e-6})
    way = implementations()["auto"]
    for devices, picked in ((2, "nvls"), (1, "two-shot")):
        (row,) = explain(a_case(2, 1000), [way], opened(devices, 2, ("auto",)), TRACED)
        assert isinstance(row, Explanation), row
        assert (row.note.picked, {track.rank for track in row.tracks}) == (picked, {0, 1})
    monkeypatch.setattr(auto, "expected", lambda *_: {"two-shot": 1e-6, "nvls": 2e-6})
    platform = opened(2, 2, ("auto",))
    assert way.home(platform, a_case(2, 1000)) is platform, "what it picks works where its own row does"


@pytest.mark.parametrize("dtypes", [("float",), pytest.param([*REDUCES], marks=pytest.mark.full)], ids=str)
def test_every_type_and_reduction_of_the_switch_is_carried_out(dtypes: Sequence[str], opened: Open) -> None:
    platform = opened(3, 3)
    for dtype in dtypes:
        for redop in REDUCES[dtype]:
            expect_right(platform, a_case(3, 1001 * DATATYPES[dtype].itemsize, dtype, redop, in_place=True))


def test_where_there_is_no_switch_it_is_skipped_with_the_reason(opened: Open) -> None:
    for devices, ranks, faults, reason in (
        (1, 2, {}, "a switch needs ranks on two GPUs or more, and these are on one"),
        (2, 4, {}, "ranks share a GPU, and a switch adds one input of each: use --ranks 2"),
        (2, 2, {"nvrtc_version": (12, 1)}, r"NVRTC 12\.1 lacks the instructions: use the one of CUDA 12\.2 or newer"),
        (2, 2, {"capability": (8, 0)}, "GPU 0 is an sm_80, and multimem instructions need sm_90 or newer"),
        (2, 2, {"without_multicast": {1}}, "GPU 1 has no multicast, which needs an NVSwitch"),
        (2, 2, {"missing": {"cuMulticastCreate"}}, "the driver is too old to have cuMulticastCreate: update it"),
        (2, 2, {"failing": STEPS - 1}, "cuMemSetAccess: system not yet initialized"),
    ):
        platform = opened(devices, ranks, **faults)
        with pytest.raises(Unsupported, match=reason):
            NVLS.home(platform, a_case(2, 8))
        expect_right(platform, a_case(ranks, 1000), "two-shot")
    full = opened(2, 2)
    full.library.machine.free = 100
    with pytest.raises(Unsupported, match=r"GPU 0 need .* free: lower -e"):
        NVLS.home(full, a_case(2, 8))


def test_without_a_driver_or_with_several_processes_there_is_no_memory_of_the_switch() -> None:
    for here, reason in ((2, "driver cannot be loaded"), (1, "one process that holds all ranks: start it without mpi")):
        with pytest.raises((Unsupported, PlatformError), match=reason):
            switch_driver(Cuda(Machine(2).cupy()), range(here), 2)


def test_what_the_switch_cannot_reduce_is_refused_with_the_choices() -> None:
    for dtype, redop in (("int8", "sum"), ("float", "max"), ("half", "prod")):
        with pytest.raises(Unsupported, match=f"no instruction for .*{dtype}; it has for: "):
            NVLS.refuse(a_case(2, 64, dtype, redop))


def allocated(machine: Machine) -> SwitchMemory:
    cuda = Cuda(machine.cupy())
    return SwitchMemory(cuda, switch_driver(cuda, range(2), 2), range(2), NBYTES)


def test_whatever_call_fails_nothing_is_kept_but_what_cannot_be_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    for failing in range(STEPS):
        machine = Machine(2)
        library = with_switch(machine, monkeypatch, failing=failing)
        with pytest.raises(PlatformError) as refused:
            allocated(machine)
        assert str(refused.value) == f"{library.failed}: system not yet initialized"
        assert library.empty, library.failed
        assert not machine.blocks, library.failed
    for undoing_fails in (False, True):
        machine = Machine(2)
        library = with_switch(machine, monkeypatch)
        memory = allocated(machine)
        assert len(library.calls) == STEPS
        assert {*library.calls} | {*UNDOING} == {*CALLS} - {"cuGetErrorString", "cuMemGetAddressRange_v2"}
        library.undoing_fails = undoing_fails
        memory.free()
        memory.free()
        assert library.empty is not undoing_fails


def test_the_switch_adds_every_bucket_of_a_step_where_it_lies(opened: Open) -> None:
    platform = opened(2, 2)
    for schedule in (name for name, one in SCHEDULES.items() if "gpu" in one.platforms):
        for in_place in (False, True):
            step = replace(a_case(2, 10_000, in_place=in_place), work=Step(3, 8, schedule, bucket=4096))
            (result,) = measure_steps(step, [NVLS], platform, Sampling(iters=1, region=0.0))
            assert isinstance(result, StepTimes), result
            assert result.right, f"{schedule}: {result.wrong}"
