"""Steps on GPUs that are made up: what is computed, what is communicated, and in which order streams do both.

The machine lets one stream be late, or early, so that a wait which is missing shows at once and always.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from collbench.algorithms import implementations
from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.commands.step.measured import measure_steps
from collbench.commands.step.rows import StepTimes
from collbench.commands.step.schedules import SCHEDULES
from collbench.commands.step.work import SEQUENTIAL
from collbench.errors import CaseFailed, PlatformError
from collbench.platforms.gpu import launch, timing
from collbench.results import Skipped
from tests.platforms.gpu.opening import Open
from tools.gpu.refusals import Here, unjust
from tools.stand_in.cases import ALL, EXACT, ON_GPU
from tools.stand_in.cuda import Machine
from tools.stand_in.step_order import NBYTES, STEP, STEPS, STREAM, a_case, all_orders, carry_out, late, out_of_order

ON_GPUS = [name for name, schedule in SCHEDULES.items() if "gpu" in schedule.platforms]
BOTH = [name for name in ON_GPUS if SCHEDULES[name].communicates and SCHEDULES[name].computes]
RING = implementations()["ring-flags"]
MAKING = ("making matrices of rank", "loading cuBLAS, rank", "first product of rank")
QUICK = Sampling(iters=1, region=0.0)


@pytest.fixture
def opened(opened: Open) -> Open:
    def open_on(
        machine: Machine, ranks: int, in_place: bool = False, names: Sequence[str] = (), steps: Any = (STEP,)
    ) -> Any:
        return opened(
            machine,
            collectives=(COLLECTIVES["allreduce"],),
            sizes=(NBYTES,),
            ranks=ranks,
            implementations=tuple(names) or EXACT,
            in_place=in_place,
            works=steps,
        )

    return open_on


@pytest.mark.parametrize(
    "places", [((1, 2), (2, 3)), pytest.param(((1, 1), (2, 4), (4, 4)), marks=pytest.mark.full)], ids=str
)
def test_a_step_is_right_whoever_communicates_and_wherever(places: Any, opened: Open) -> None:
    for (devices, ranks), in_place in product(places, (False, True)):
        platform = opened(Machine(devices), ranks, in_place, names=ALL if ranks == 2 else EXACT)
        ways = [way for way in ON_GPU if ranks == 2 or not way.wire]
        for schedule in ON_GPUS:
            case = a_case(ranks, replace(STEP, schedule=schedule), in_place)
            results = list(measure_steps(case, ways, platform, replace(QUICK, check_only=True)))
            assert [result.implementation for result in results] == [way.name for way in ways]
            for result in results:
                if isinstance(result, Skipped):
                    driven = schedule == STREAM and "the host drives it" in result.reason
                    alone = ranks == 1 and "one rank in place has nothing" in result.reason
                    here = Here(ranks, devices, nccl=23007)
                    assert driven or alone or not unjust(result.implementation, result.reason, here), result
                else:
                    assert isinstance(result, StepTimes), result
                    assert not result.wrong, f"{schedule} {result.implementation}: {result.wrong}"


def test_whichever_stream_is_late_its_moments_follow_each_other(opened: Open) -> None:
    machine = Machine(1)
    platform = opened(machine, 2, names=("ring-events",))
    platform.compute.products(STEP.size)
    for schedule, order in product(ON_GPUS, all_orders(machine)):
        machine.order = order
        case = a_case(2, replace(STEP, schedule=schedule))
        (result,) = measure_steps(case, [implementations()["ring-events"]], platform, replace(QUICK, region=1e-3))
        expect_sensible(result, schedule, ranks=2)


def expect_sensible(result: Any, schedule: str, ranks: int) -> None:
    assert isinstance(result, StepTimes), result
    assert result.right, result.wrong
    for series in result.series:
        for rank in range(series.ranks):
            rows = zip(series.begins(rank), series.computed[rank], series.done[rank], strict=True)
            assert all(begun <= computed <= done for begun, computed, done in rows), schedule


@pytest.mark.parametrize(
    "places", [((1, 2), (2, 3)), pytest.param(((1, 1), (1, 4), (2, 4), (4, 4)), marks=pytest.mark.full)], ids=str
)
def test_whichever_stream_is_late_a_bucket_waits_for_its_products_and_a_step_for_the_last_one(
    places: Any, opened: Open
) -> None:
    for (devices, ranks), schedule, everywhere in product(places, BOTH, (False, True)):
        machine = Machine(devices)
        platform = opened(machine, ranks, names=("ring-flags",))
        platform.compute.products(STEP.size)
        for order in all_orders(machine):
            machine.order = order
            log = carry_out(platform, schedule, everywhere)
            assert len(log) == 2 * STEPS * (STEP.products * ranks + 3 * (ranks if everywhere else devices))
            assert out_of_order(log, platform, schedule) == [], f"{devices=}, {ranks=}, {schedule}, {everywhere=}"


def test_a_bucket_is_communicated_while_the_next_is_computed(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine, 2, names=("ring-flags",))
    platform.compute.products(STEP.size)
    machine.order = late(platform.compute.products(STEP.size)._of[0].computing.stream.ptr)
    overlapped = [what for what, stream in carry_out(platform, STREAM, True, steps=1) if stream.device_id == 0]
    assert overlapped.index("0 ends") < len(overlapped) - 1 - overlapped[::-1].index("product begins")
    apart = [what for what, stream in carry_out(platform, SEQUENTIAL, True, steps=1) if stream.device_id == 0]
    assert apart == ["product begins", "product ends"] * STEP.products + [
        f"{bucket} {what}" for bucket in range(3) for what in ("begins", "ends")
    ]


def test_collectives_go_before_products_where_a_gpu_can_choose(opened: Open) -> None:
    platform = opened(Machine(2), 4)
    streams = platform.compute.products(STEP.size).streams
    assert {rank_stream.stream.priority for rank_stream in platform.streams.values()} == {-5}
    assert {rank_stream.stream.priority for rank_stream in streams} == {0}
    assert [rank_stream.device for rank_stream in streams] == [
        rank_stream.device for rank_stream in platform.streams.values()
    ]
    platform = opened(Machine(1), 2, steps=(None,))  # a sweep without steps is measured as it always was
    assert {rank_stream.stream.priority for rank_stream in platform.streams.values()} == {0}


def test_matrices_that_cannot_be_multiplied_are_said_in_one_line(opened: Open) -> None:
    platform = opened(Machine(1, without_cublas=True), 2)
    with pytest.raises(PlatformError, match=r"^matrices of 8 x 8 cannot .*libcublas.*: pip install nvidia-cublas"):
        platform.compute.products(8)


def test_one_wrong_element_is_seen_on_the_device_and_named_until_the_chain_starts_anew(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine, 2)
    products = platform.compute.products(STEP.size)

    def flaw(spoil: Callable[[Any], None]) -> Any:
        products.reset()
        for rank in (0, 1):
            products.enqueue(rank, 3)
        platform.launcher.synchronize()
        spoil(products._of[1]._last._numbers)
        return products.check()

    def add(numbers: Any) -> None:
        numbers[3, 4] += 1

    def void(numbers: Any) -> None:
        numbers[[0, 7], [0, 7]] = float("nan")

    def stale(numbers: Any) -> None:
        numbers[...] = products._of[1]._next._numbers

    assert flaw(lambda numbers: None) is None
    found = flaw(add)
    assert (found.rank, found.row, found.column, found.wrong) == (1, 3, 4, 1)
    assert float(found.got) == float(found.expected) + 1
    assert flaw(void).wrong == 2
    assert flaw(stale).products == 3
    assert flaw(lambda numbers: None) is None


def test_what_is_right_is_compared_on_the_device_and_never_copied(opened: Open) -> None:
    size = 64
    machine = Machine(1)
    platform = opened(machine, 2, names=("ring-flags",), steps=(replace(STEP, size=size),))
    case = a_case(2, replace(STEP, size=size))
    for launches in ({}, {RING.name: 2}, {RING.name: 2}):
        (result,) = measure_steps(case, [RING], platform, replace(QUICK, iters=3), launches=launches)
        assert result.right
    assert 0 < machine.taken < 4 * size * 8
    products = platform.compute.products(size)
    products._of[0]._made += 1
    assert products.check()
    assert machine.taken > 4 * size**2


def test_every_phase_that_may_last_is_begun_with_a_word_and_matrices_are_made_once(opened: Open) -> None:
    platform = opened(Machine(1), 2, names=("ring-flags",))
    made = [f"{what} {rank}" for rank in (0, 1) for what in MAKING]
    first = (*made, "first check", "calibration", "series 1", "last check")
    for launches, phases in (({}, first), ({RING.name: 2}, ("first check", "series 1", "last check"))):
        begun: list[tuple[str, str]] = []

        def heartbeat(name: str, phase: str = "", begun: list[tuple[str, str]] = begun) -> None:
            begun.append((name, phase))

        list(measure_steps(a_case(2), [RING], platform, replace(QUICK, iters=2), heartbeat, launches))
        assert [phase for phase in dict.fromkeys(phase for _, phase in begun) if phase] == list(phases)
        assert {name for name, phase in begun if phase not in made} == {RING.name}


def test_the_clocks_of_devices_are_set_anew_every_few_seconds(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_FRESH", 1e9)
    platform = opened(Machine(2), 2)
    moments = [platform.clock.moment(0)]
    origins = dict(platform.clock.clocks._ties)
    platform.launcher.synchronize()
    moments.append(platform.clock.moment(0))
    assert platform.clock.clocks._ties == origins
    monkeypatch.setattr(timing, "_FRESH", 0.0)
    platform.launcher.synchronize()
    moments.append(platform.clock.moment(0))
    assert platform.clock.clocks._ties != origins
    platform.launcher.synchronize()
    assert [moment() for moment in moments] == sorted(moment() for moment in moments)


def test_what_fails_in_the_middle_of_a_step_fails_it(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for schedule in (SEQUENTIAL, STREAM):
        machine = Machine(2)
        platform = opened(machine, 2, names=("ring-flags",))
        platform.compute.products(STEP.size)
        machine.enabled.clear()
        with pytest.raises(CaseFailed, match="cudaErrorIllegalAddress: an illegal memory access was encountered"):
            list(measure_steps(a_case(2, replace(STEP, schedule=schedule)), [RING], platform, QUICK))
    monkeypatch.setattr(launch, "SPINS", 500)
    platform = opened(Machine(2, dead={1}), 2)
    with pytest.raises(CaseFailed, match="a rank waited in vain for another's flag"):
        list(measure_steps(a_case(2), [RING], platform, QUICK))
