"""Measuring a collective: what is found wrong, how long samples are, when they end; on platforms of made-up times."""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from typing import Any

import pytest

from collbench.algorithms import Implementation
from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.errors import CaseFailed, Unsupported
from collbench.measure.checks import SEEDS, left_out, too_fast
from collbench.measure.sampling import Reference, measure
from collbench.platforms.checking import StressPlan
from collbench.platforms.interface import Limits, Prepared
from collbench.platforms.processes import SchedulingWatch
from collbench.results.collectives import Measurement
from collbench.results.facts import Mismatch, Note, Overrun
from tests.conftest import case

LARGE = 2**20  # bytes of a case whose first operation is believed if it takes long
MISMATCH = Mismatch(1, 0, 0, "1", "2", 3)
LIMITS = Limits(1e-9, 1e12, "made up")
OVERRUN = Overrun(1, "send buffer", 4, 8)

TOY_NOTE = Note.of("toy note")


@dataclass
class ToyPlatform:
    """A platform whose operations take the time that `seconds[name]` says; `works` says which calls do anything."""

    seconds: dict[str, Callable[[], float]]
    works: Callable[[str, int], bool] = lambda name, call: True
    name: str = "toy"
    memory: None = None
    note: Note = TOY_NOTE
    region: float = 200e-6
    log: list[tuple[str, int]] = field(default_factory=list)  # operations, and of how many launches
    running: str = ""
    inputs: int = 0  # seed of what the buffers were filled with
    fills: list[int] = field(default_factory=list)  # all of these seeds
    output: int = 0  # seed that the result follows from
    fresh: bool = True  # whether nothing was launched since
    together: bool = False
    floors: tuple[str, ...] = ()  # names of the ways that move the fewest bytes
    limits: Limits = LIMITS
    scheduled: SchedulingWatch = field(default_factory=SchedulingWatch)
    plans: list[StressPlan] = field(default_factory=list)  # of calls back to back
    stressed: Callable[[str], Mismatch | None] = lambda name: None
    delays: list[float] | None = None  # seconds of the operations whose delays were asked for, if there are delays
    written: Callable[[str], Overrun | None] = lambda name: None

    @property
    def clock(self) -> "ToyPlatform":
        return self

    launcher = checker = team = clock

    def prepare(self, name: str) -> Prepared:
        def launch(launches: int) -> None:
            self.running = name
            if self.works(name, len(self.log)):
                self.output = self.inputs if self.fresh and launches == 1 else -self.inputs
            self.fresh = False
            self.log.append((name, launches))

        assert self.together, "what may fail on one process only runs where all learn of it"
        return Prepared(launch, note=Note.of(f"{name} note"), estimate=3e-6)

    def floor(self, case: Any) -> list[Prepared]:
        return [self.prepare(name) for name in self.floors]

    def barrier(self) -> Prepared | None:
        return self.prepare("barrier") if "barrier" in self.floors else None

    def time(self, prepared: Prepared, launches: int) -> float:
        prepared.launch(launches)
        return self.seconds[self.running]()

    def exchange(self, mine: Any) -> list[Any]:
        return [mine]

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        self.together = True
        yield
        self.together = False

    def singly(self, prepared: Prepared) -> Prepared | None:
        return None

    def enqueue_seconds(self, prepared: Prepared) -> float | None:
        return None

    def fill(self, case: Any, seed: int, wire: Any = None) -> None:
        self.inputs, self.output, self.fresh = seed, 0, True
        self.fills.append(seed)

    def check(self, case: Any, seed: int, wire: Any = None) -> Mismatch | None:
        """In place a second launch has the result of the first as its input."""
        return None if self.output == seed or (self.output == -seed and not case.in_place) else MISMATCH

    def stress(self, case: Any, prepared: Prepared, plan: StressPlan) -> Mismatch | None:
        prepared.launch(1)
        self.plans.append(plan)
        return self.stressed(self.running)

    def with_delays(self, seconds: float) -> "ToyPlatform | None":
        if self.delays is None:
            return None
        self.delays.append(seconds)
        return self

    def overrun(self, case: Any) -> Overrun | None:
        return self.written(self.running)


def ways(platform: ToyPlatform, rung: int = 0) -> list[Implementation]:
    return [
        Implementation(name, "", lambda case, _, name=name: platform.prepare(name), ("toy",), order=rung)
        for name in platform.seconds
    ]


def constant(value: float) -> Callable[[], float]:
    return lambda: value


def in_turn(*values: float) -> Callable[[], float]:
    times = cycle(values)
    return lambda: next(times)


def run(
    platform: ToyPlatform,
    in_place: bool = False,
    nbytes: int = 1024,
    collective: str = "allreduce",
    rung: int = 0,
    **sampling: Any,
) -> list[Any]:
    every = [replace(way, collectives=(collective,)) for way in ways(platform, rung)]
    subject = case(collective, nbytes=nbytes, in_place=in_place)
    return list(measure(subject, every, platform, Sampling(**sampling)))  # type: ignore[arg-type]


def stressed(platform: ToyPlatform, rung: int) -> tuple[list[Any], list[StressPlan]]:
    """The results of a check alone, and the plans of calls back to back."""
    return run(platform, rung=rung, check_only=True), platform.plans


def timed_with(platform: ToyPlatform, seconds: Callable[[Prepared, int, float], float]) -> ToyPlatform:
    time = platform.clock.time
    platform.clock.time = lambda prepared, launches: seconds(prepared, launches, time(prepared, launches))  # type: ignore[method-assign]
    return platform


def test_an_operation_that_stops_working_is_wrong_whichever_call_is_its_last() -> None:
    for in_place in (False, True):
        whole = ToyPlatform({"a": constant(1e-4)})
        (result,) = run(whole, in_place, iters=3)
        assert (result.right, len(result.seconds)) == (True, 3)
        assert len(set(whole.fills)) == len(whole.fills) - in_place, "every phase has inputs of its own"
        for last in range(len(whole.log)):
            platform = ToyPlatform({"a": constant(1e-4)}, works=lambda name, call, last=last: call < last)  # type: ignore[misc]
            (result,) = run(platform, in_place, iters=3)
            assert (result.mismatch, result.seconds) == (MISMATCH, ()), (in_place, last)


def test_kernels_of_ladders_are_also_checked_with_delays_and_those_of_libraries_are_not() -> None:
    platform = ToyPlatform({"a": constant(1e-4)}, delays=[])
    (result,), (plain, slow) = stressed(platform, rung=1)
    assert result.mismatch is None
    assert platform.delays == [1e-4]
    seeds = [*SEEDS, *range(plain.seed, plain.seed + plain.calls), *range(slow.seed, slow.seed + slow.calls)]
    assert len(set(seeds)) == len(seeds), "no result of one phase passes in another"
    assert len(stressed(ToyPlatform({"a": constant(1e-4)}, delays=[]), rung=0)[1]) == 1
    assert len(stressed(ToyPlatform({"a": constant(1e-4)}), rung=1)[1]) == 1
    answers = iter([None, MISMATCH])
    (result,), plans = stressed(
        ToyPlatform({"a": constant(1e-4)}, delays=[], stressed=lambda name: next(answers)), rung=1
    )
    assert (result.mismatch, len(plans)) == (MISMATCH, 2)


def test_a_stress_check_that_cannot_be_made_fails_the_case() -> None:
    def cannot(seconds: float) -> None:
        raise Unsupported("no room")

    platform = ToyPlatform({"a": constant(1e-4)})
    platform.with_delays = cannot  # type: ignore[method-assign]
    with pytest.raises(CaseFailed, match="the stress check cannot be made: no room"):
        stressed(platform, rung=1)


def test_delays_are_planned_by_the_shortest_of_three_operations_unless_these_are_long() -> None:
    for nbytes, seconds, late in ((8, 5e-3, 2e-4), (LARGE, 5e-3, 5e-3), (LARGE, 5e-4, 1.25e-4)):
        platform = ToyPlatform({"a": in_turn(seconds, seconds / 2, seconds / 4)})
        run(platform, nbytes=nbytes, check_only=True)
        assert platform.plans[0].late == pytest.approx(late), (nbytes, seconds)


def test_what_is_wrong_at_any_check_has_no_time_and_what_is_wrong_at_first_is_not_launched_again() -> None:
    for failure, calls, changes in (
        (MISMATCH, 1, {"works": lambda name, call: name != "a"}),
        (MISMATCH, 2, {"stressed": lambda name: MISMATCH if name == "a" else None}),
        (OVERRUN, 2, {"written": lambda name: OVERRUN if name == "a" else None}),
    ):
        platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)}, **changes)  # type: ignore[arg-type]
        wrong, right = run(platform, nbytes=LARGE, iters=3)
        assert (wrong.implementation, wrong.mismatch, wrong.seconds) == ("a", failure, ()), changes
        assert (right.mismatch, len(right.seconds)) == (None, 3), changes
        assert len([name for name, _ in platform.log if name == "a"]) == calls, changes
    platform = ToyPlatform({"a": constant(1e-3)})
    platform.written = lambda name: OVERRUN if len(platform.log) > 5 else None
    (result,) = run(platform, iters=3)
    assert (result.mismatch, result.seconds) == (OVERRUN, ())


def test_times_are_of_a_part_where_an_operation_has_several() -> None:
    whole = ToyPlatform({"a": constant(64e-6)})
    run(whole, nbytes=4, iters=3)
    for name, collective in COLLECTIVES.items():
        if collective.parts > 1:
            platform = ToyPlatform({"a": constant(64e-6)})
            (result,) = run(platform, nbytes=4, collective=name, iters=3)
            assert result.seconds == (64e-6 / collective.parts,) * 3, name
            assert result.launches == 4, name  # 200 us of 64 us each
            assert platform.plans == whole.plans, name
    limits = Limits(1e-6, 1e15, "made up")  # a message may be shorter than any operation, the whole window may not
    for seconds, right in ((64e-6, True), (0.9e-6, False)):
        (result,) = run(ToyPlatform({"a": constant(seconds)}, limits=limits), collective="bandwidth", iters=3)
        assert result.right == right, result.mismatch


def test_a_time_that_does_not_grow_with_the_launches_is_implausible() -> None:
    def once(prepared: Prepared, launches: int, seconds: float) -> float:
        return 3e-7 / launches if platform.running == "a" else seconds

    platform = timed_with(ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)}), once)
    wrong, right = run(platform, iters=3)
    assert "the time does not grow with their number" in str(wrong.mismatch)
    assert right.right
    (result,) = run(ToyPlatform({"a": constant(0.0)}), iters=3)
    assert result.launches == 2**16, "a clock that sees nothing does not double for ever"
    assert "does not grow" in str(result.mismatch)


def test_slow_starts_and_a_busy_machine_are_no_reason_for_doubt() -> None:
    slow = timed_with(ToyPlatform({"a": constant(1e-6)}), lambda _, launches, seconds: seconds + 5e-3 / launches)
    assert run(slow, iters=3)[0].right
    for before in range(10):
        times = in_turn(*[1e-5] * before, 1e-6, *[1e-5] * (9 - before))
        assert run(ToyPlatform({"a": times}), iters=3)[0].right, before


def test_what_lies_there_already_and_every_message_of_an_operation_count_for_its_speed() -> None:
    slow, far = Limits(1e-9, 1e9), Limits(1e-6, 1e15)
    for ranks, in_place, seconds in ((2, False, 1024e-9), (2, True, 512e-9), (1, False, 1024e-9), (1, True, 0.0)):
        gather = case("allgather", 1024, ranks=ranks, in_place=in_place)
        assert too_fast(gather, seconds, slow) is None, gather
        assert seconds == 0 or too_fast(gather, 0.9 * seconds, slow), gather
    assert too_fast(case("allreduce", 1024, ranks=1, in_place=True), 0.0, slow) is None
    assert too_fast(case("pingpong", 8), 0.6e-6, far) is None
    assert too_fast(case("pingpong", 8), 0.4e-6, far)
    assert too_fast(case("allreduce", 8), 0.6e-6, far)


def test_a_loop_that_is_faster_than_its_operations_one_by_one_leaves_some_out() -> None:
    for share, right in ((0.5, False), (1.0, True)):
        platform = ToyPlatform({"a": constant(1e-6)})
        singly = Prepared(lambda launches, platform=platform: setattr(platform, "running", "a"))  # type: ignore[misc]
        platform.clock.singly = lambda prepared, singly=singly: singly  # type: ignore[method-assign, misc]
        timed_with(
            platform,
            lambda prepared, _, seconds, singly=singly, share=share: seconds * (1 if prepared is singly else share),  # type: ignore[misc]
        )
        (result,) = run(platform, iters=3)
        assert result.right == right
        assert right or "some are left out" in str(result.mismatch)


class Busy:
    """Ranks wait about 2 ms for a core in every operation; a loop takes `share` of it, and `lucky` hardly waits."""

    def __init__(self, seed: int, share: float, lucky: int = 0) -> None:
        self._share, self._lucky, self._calls = share, lucky, 0
        self._chance = random.Random(seed)
        self._own = Prepared(lambda launches: None)
        self.clock = self

    def singly(self, prepared: Prepared) -> Prepared:
        return self._own

    def time(self, prepared: Prepared, launches: int) -> float:
        wait = self._chance.lognormvariate(math.log(2e-3), 0.3)
        if prepared is self._own:
            return wait
        self._calls += 1
        return 0.3e-3 if self._calls == self._lucky else self._share * wait


def test_waits_for_a_core_prove_nothing_and_operations_left_out_are_found_in_spite_of_them() -> None:
    def doubts(share: float, lucky: int = 0) -> list[Any]:
        prepared = Prepared(lambda launches: None)
        return [left_out(prepared, Busy(seed, share, lucky), 4) for seed in range(50)]  # type: ignore[arg-type]

    for lucky in (0, 7, 8, 9):
        assert not any(doubts(1.0, lucky)), lucky
    assert sum("some are left out" in str(doubt) for doubt in doubts(1 / 3)) >= 48


def test_samples_are_taken_in_turn_and_back_after_a_warm_up_that_does_not_count() -> None:
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)})
    run(platform, iters=5, warmup=0)
    order = "".join(name for name, _ in platform.log)
    assert "abbaabba" in order, "drift of the machine cancels in the ratio"
    cold = iter([1e-3] * 9 + [5e-3] * 3)  # checks and calibration, then three samples of a cold machine
    (result,) = run(ToyPlatform({"a": lambda: next(cold, 1e-3)}), nbytes=LARGE, iters=2, warmup=3)
    assert result.seconds == (1e-3, 1e-3)


def test_short_operations_are_repeated_until_a_sample_is_long_enough() -> None:
    assert run(ToyPlatform({"a": constant(1e-6)}), iters=3)[0].launches == 256
    assert run(ToyPlatform({"a": constant(1e-6)}), iters=3, region=1e-3)[0].launches == 1024
    assert run(ToyPlatform({"a": in_turn(1e-6, 1e-2)}), iters=3)[0].launches == 256
    disturbed = iter([1e-6] * 3 + [1e-3] * 2)  # the check's own trials, then those of the calibration
    assert run(ToyPlatform({"a": lambda: next(disturbed, 1e-6)}), iters=3)[0].launches == 256


def by_launches(platform: ToyPlatform, seconds: Callable[[int], float]) -> Callable[[], float]:
    return lambda: seconds(platform.log[-1][1])


def test_an_operation_that_is_slower_among_many_is_sampled_among_fewer() -> None:
    growing: dict[str, tuple[Callable[[int], float], list[int], bool]] = {
        "same among all": (lambda launches: 1e-6, [256], True),
        "slower from 64 on": (lambda launches: 1e-6 if launches < 64 else 3e-6, [32], True),
        "faster among many": (lambda launches: 1e-6 + 5e-6 / launches, [256], True),
        "slower with each": (lambda launches: 1e-7 * (1 + launches), [1, 2], False),
        "a tenth slower now and then": (lambda launches: 1e-6 * (1 + 0.1 * random.random()), [256], True),
    }
    for name, (seconds, launches, steady) in growing.items():
        platform = ToyPlatform({})
        platform.seconds[name] = by_launches(platform, seconds)
        (result,) = run(platform, iters=2, warmup=0)
        assert isinstance(result, Measurement), name
        assert result.launches in launches, name
        assert (str(result.note) == str(TOY_NOTE | Note.of(f"{name} note"))) is steady, name
        assert result.estimate == 3e-6


def test_what_is_known_of_a_sample_is_not_calibrated_anew() -> None:
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)})
    sampling = Sampling(iters=2, warmup=1)
    results = measure(case(), ways(platform), platform, sampling, launches={"a": 64})  # type: ignore[arg-type]
    assert [result.launches for result in results if isinstance(result, Measurement)] == [64, 1]
    assert {launches for name, launches in platform.log if name == "a"} == {64}, "no trial, and no check but the last"


def test_sampling_stops_when_medians_are_known_and_goes_on_while_one_is_not() -> None:
    (result,) = run(ToyPlatform({"a": constant(1e-3)}), budget=0.5)
    assert 0.05 <= sum(result.seconds) <= 0.08, "equal samples need a tenth of the budget"
    (result,) = run(ToyPlatform({"a": constant(0.0058)}), budget=0.5)
    assert len(result.seconds) >= 16, "a few equal samples are no evidence"
    noisy = in_turn(*(1e-3 * (1 + 0.06 * (step % 5)) for step in range(15)))
    results = run(ToyPlatform({"a": constant(1e-3), "b": noisy}), budget=0.2, precision=0.01)
    assert sum(sum(result.seconds) for result in results) >= 0.2
    (result,) = run(ToyPlatform({"a": constant(1.0)}), budget=0.5)
    assert len(result.seconds) == 7, "slow operations have an interval whatever the budget says"
    (result,) = run(ToyPlatform({"a": constant(1e-3)}), iters=3)
    assert len(result.seconds) == 3


def test_sampling_stops_when_the_budget_is_spent() -> None:
    values = count()
    noisy = lambda: 1e-3 * (1 + next(values) % 7)  # noqa: E731 - a name for a closure
    results = run(ToyPlatform({"a": noisy, "b": noisy}), budget=0.5, precision=0.0)
    assert 0.5 <= sum(sum(result.seconds) for result in results) <= 0.53
    noisy = in_turn(*(1e-6 * (1 + step * 7 % 997 / 997) for step in range(997)))
    (result,) = run(ToyPlatform({"a": noisy}), budget=0.5, precision=0.0)
    assert 0.5 <= result.launches * sum(result.seconds) <= 0.51, "a sample spends the seconds of all its launches"


def test_progress_is_told_before_anything_can_hang() -> None:
    turn = ""

    def tell(name: str) -> None:
        nonlocal turn
        turn = name

    def at_work(name: str) -> Callable[[], float]:
        return lambda: 1e-3 if turn == name else math.nan

    platform = ToyPlatform({"a": at_work("a"), "b": at_work("b")})
    results = list(measure(case(), ways(platform), platform, Sampling(iters=2), tell))  # type: ignore[arg-type]
    assert [result.right and result.seconds for result in results] == [(1e-3, 1e-3)] * 2  # type: ignore[union-attr]


def with_floors(**seconds: Callable[[], float]) -> ToyPlatform:
    """A platform whose ways to move the fewest bytes take so long, with one implementation."""
    return ToyPlatform({"mpi": constant(1e-3)} | seconds, floors=tuple(seconds))


def test_the_floor_is_the_median_of_the_fastest_way_without_its_first_reading() -> None:
    readings = cycle([9e-3, 3e-3, 1e-3, 2e-3])
    floor = Reference(case(), with_floors(slow=constant(5e-3), fast=lambda: next(readings)))
    assert [floor.sample() for _ in range(3)] == [8e-3, 6e-3, 7e-3]
    assert floor.copy_seconds == 2e-3


def test_rows_have_the_floor_measured_in_their_own_rounds() -> None:
    readings = count(1)
    toy = with_floors(bare=lambda: next(readings) * 1e-3)
    (row,) = measure(case(), [ways(toy)[0]], toy, Sampling(iters=7))
    assert isinstance(row, Measurement)
    assert row.floor == pytest.approx(4.5e-3), "one that does not count, and one for each of 6 samples before the last"


@dataclass
class BusyPlatform(ToyPlatform):
    """An operation takes 1 us; in the calls that are chosen a rank is off its core, and the call takes 5 ms more."""

    off: Callable[[int, int], bool] = lambda call, launches: False
    calls: int = 0

    def time(self, prepared: Prepared, launches: int) -> float:
        seconds = super().time(prepared, launches)
        spoiled = self.off(self.calls, launches)
        self.calls += 1
        self.scheduled.off_core = 0.9 if spoiled else 0.001
        self.scheduled.switches += spoiled
        self.scheduled.cores.add(3)
        return seconds + (5e-3 / launches if spoiled else 0.0)


def test_samples_in_which_a_rank_was_off_its_core_are_taken_again() -> None:
    (result,) = run(BusyPlatform({"a": constant(1e-6)}, off=lambda call, _: call % 3 == 1), budget=0.2)
    assert result.launches == 256, "calibration is not misled"
    assert set(result.seconds) == {1e-6}
    assert result.scheduling
    assert (result.scheduling.off_core, result.scheduling.cores) == (0.0, ((3,),))
    assert result.scheduling.repeated == result.scheduling.switches > 0
    assert not result.disturbed


def test_a_row_is_disturbed_where_repeating_does_not_help_and_costs_no_more_than_half_the_budget() -> None:
    (result,) = run(BusyPlatform({"a": constant(1e-6)}, off=lambda call, _: call > 30), budget=0.2)
    assert result.disturbed
    assert result.right
    assert result.scheduling
    assert 0.08 < result.scheduling.repeated * 5.256e-3 <= 0.1
    assert len(result.seconds) >= Sampling().minimum
