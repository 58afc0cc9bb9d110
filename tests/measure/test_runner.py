"""The order of measuring: check, calibrate, warm up, samples in turn, check again; on a platform of made-up times."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import pytest

from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.errors import CaseFailed, Unsupported
from collbench.flaws import Mismatch, Overrun
from collbench.implementations import Implementation
from collbench.measure.runner import measure
from collbench.measurement import Measurement, Skipped
from collbench.note import Note
from collbench.platforms.roles import Limits, Prepared
from collbench.platforms.stress import Plan
from tests.conftest import case

LARGE = 2**20  # bytes of a case whose first operation is believed if it takes long
MISMATCH = Mismatch(1, 0, 0, "1", "2", 3)
LIMITS = Limits(1e-9, 1e12, "made up")
OVERRUN = Overrun(1, "send buffer", 4, 8)

TOY_NOTE = Note.of("toy note")


@dataclass
class ToyPlatform:
    """A platform whose operations take the time that `seconds[name]` says, and are wrong when `wrong` says so."""

    seconds: dict[str, Callable[[], float]]
    wrong: Callable[[str, int], bool] = lambda name, launch: False
    name: str = "toy"
    note: Note = TOY_NOTE
    region: float = 200e-6
    log: list[tuple[str, Any]] = field(default_factory=list)
    running: str = ""
    together: bool = False
    floors: tuple[str, ...] = ()  # names of the ways that move the fewest bytes
    limits: Limits = LIMITS
    stressed: Callable[[str], Mismatch | None] = lambda name: None
    hesitates: bool = False
    written: Callable[[str], Overrun | None] = lambda name: None

    def prepare(self, name: str) -> Prepared:
        def launch(launches: int) -> None:
            self.running = name

        assert self.together, "what may fail on one process only runs where all learn of it"
        return Prepared(launch, note=Note.of(f"{name} note"), estimate=3e-6)

    def floor(self, case: Any) -> list[Prepared]:
        return [self.prepare(name) for name in self.floors]

    def time(self, prepared: Prepared, launches: int) -> float:
        prepared.launch(launches)
        self.log.append((self.running, launches))
        return self.seconds[self.running]()

    @property
    def team(self) -> "ToyPlatform":
        return self

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        self.together = True
        yield
        self.together = False

    def singly(self, prepared: Prepared) -> Prepared | None:
        return None

    def fill(self, case: Any, seed: int, wire: Any = None) -> None:
        self.log.append(("fill", seed))

    def check(self, case: Any, seed: int, wire: Any = None) -> Mismatch | None:
        self.log.append(("check", seed))
        return MISMATCH if self.wrong(self.running, seed) else None

    def stress(self, case: Any, prepared: Prepared, plan: Plan) -> Mismatch | None:
        prepared.launch(1)
        self.log.append(("stress", plan))
        return self.stressed(self.running)

    def hesitant(self, seconds: float) -> "ToyPlatform | None":
        self.log.append(("hesitant", seconds))
        return self if self.hesitates else None

    def overrun(self, case: Any) -> Overrun | None:
        self.log.append(("overrun", self.running))
        return self.written(self.running)


def ways(platform: ToyPlatform, rung: int = 0) -> list[Implementation]:
    """One implementation for each name that has a time."""
    return [
        Implementation(name, "", ("toy",), ("allreduce",), lambda case, _, name=name: platform.prepare(name), rung=rung)
        for name in platform.seconds
    ]


def constant(value: float) -> Callable[[], float]:
    """The same time always."""
    return lambda: value


def in_turn(*values: float) -> Callable[[], float]:
    """One after the other, and round again."""
    times = cycle(values)
    return lambda: next(times)


def run(platform: ToyPlatform, in_place: bool = False, nbytes: int = 1024, **sampling: Any) -> list[Any]:
    """All results of one case."""
    return list(measure(case(nbytes=nbytes, in_place=in_place), ways(platform), platform, Sampling(**sampling)))  # type: ignore[arg-type]


def test_nothing_is_timed_before_it_was_checked() -> None:
    """The first thing that happens to an implementation is one launch on fresh buffers, and a check."""
    platform = ToyPlatform({"a": constant(1e-3)})
    run(platform, nbytes=LARGE, iters=3)
    assert platform.log[:3] == [("fill", 1), ("a", 1), ("check", 1)]
    assert [what for what, _ in platform.log[3:5]] == ["stress", "overrun"]


def stressed(platform: ToyPlatform, rung: int) -> tuple[list[Any], list[Plan]]:
    """The results of a check alone, and the plans of calls back to back."""
    results = measure(case(), ways(platform, rung), platform, Sampling(check_only=True))  # type: ignore[arg-type]
    return list(results), [plan for what, plan in platform.log if what == "stress"]


def test_kernels_that_hesitate_are_tried_as_well() -> None:
    """With other seeds; those of a library, and where ranks can be halted, there are none."""
    platform = ToyPlatform({"a": constant(1e-4)}, hesitates=True)
    (result,), (plain, slow) = stressed(platform, rung=1)
    assert result.mismatch is None
    assert slow.seed >= plain.seed + plain.calls
    assert ("hesitant", 1e-4) in platform.log
    assert len(stressed(ToyPlatform({"a": constant(1e-4)}, hesitates=True), rung=0)[1]) == 1
    assert len(stressed(ToyPlatform({"a": constant(1e-4)}), rung=1)[1]) == 1


def test_a_stress_check_that_cannot_be_made_fails_the_case() -> None:
    """A weaker check would pass for the whole one."""

    def cannot(seconds: float) -> None:
        raise Unsupported("no room")

    platform = ToyPlatform({"a": constant(1e-4)})
    platform.hesitant = cannot  # type: ignore[method-assign]
    with pytest.raises(CaseFailed, match="the stress check cannot be made: no room"):
        stressed(platform, rung=1)


def test_what_is_wrong_only_where_kernels_hesitate_is_wrong() -> None:
    answers = iter([None, MISMATCH])
    platform = ToyPlatform({"a": constant(1e-4)}, hesitates=True, stressed=lambda name: next(answers))
    (result,), plans = stressed(platform, rung=1)
    assert result.mismatch == MISMATCH
    assert len(plans) == 2


def test_what_fails_back_to_back_or_writes_beside_its_buffers_is_not_timed() -> None:
    """Each of the two is a reason of its own, and nothing is launched after it."""
    for changes in ({"stressed": lambda name: MISMATCH}, {"written": lambda name: OVERRUN}):
        platform = ToyPlatform({"a": constant(1e-3)}, **changes)  # type: ignore[arg-type]
        (result,) = run(platform, nbytes=LARGE, iters=3)
        assert result.mismatch == (MISMATCH if "stressed" in changes else OVERRUN)
        assert result.seconds == ()
        assert [launches for name, launches in platform.log if name == "a"] == [1]


def test_what_is_written_beside_buffers_while_timed_is_wrong() -> None:
    """The guards are looked at again at the end."""
    platform = ToyPlatform({"a": constant(1e-3)})
    platform.written = lambda name: OVERRUN if ("fill", 4) in platform.log else None
    (result,) = run(platform, iters=3)
    assert result.mismatch == OVERRUN


def test_each_phase_has_inputs_of_its_own() -> None:
    """What is left over from one passes for no result of another."""
    platform = ToyPlatform({"a": constant(1e-3)})
    run(platform, iters=3)
    seeds = [seed for what, seed in platform.log if what == "fill"]
    (plan,) = [plan for what, plan in platform.log if what == "stress"]
    assert len({*seeds, *range(plan.seed, plan.seed + plan.calls)}) == len(seeds) + plan.calls == 4 + plan.calls


@pytest.mark.parametrize("name", [name for name, collective in COLLECTIVES.items() if collective.parts > 1])
def test_times_are_of_a_part_where_an_operation_has_several(name: str) -> None:
    """A message of a window, half a round trip, one barrier of two; how long to sample goes by whole operations."""
    parts = COLLECTIVES[name].parts
    platform = ToyPlatform({"a": constant(64e-6)})
    way = replace(ways(platform)[0], collectives=(name,))
    (result,) = measure(case(name, nbytes=4), [way], platform, Sampling(iters=3))  # type: ignore[arg-type]
    assert result.seconds == (64e-6 / parts,) * 3
    assert result.launches == 4  # 200 us of 64 us each
    (plan,) = [plan for what, plan in platform.log if what == "stress"]
    whole = ToyPlatform({"a": constant(64e-6)})
    run(whole, nbytes=4, iters=3)
    assert plan == dict(whole.log)["stress"]


def test_a_share_of_a_window_may_be_shorter_than_any_message_takes() -> None:
    """The whole operation may not."""
    limits = Limits(1e-6, 1e15, "made up")
    for seconds, right in ((64e-6, True), (0.9e-6, False)):
        platform = ToyPlatform({"a": constant(seconds)}, limits=limits)
        way = replace(ways(platform)[0], collectives=("bandwidth",))
        (result,) = measure(case("bandwidth"), [way], platform, Sampling(iters=3))  # type: ignore[arg-type]
        assert result.right == right, result.mismatch


def test_a_pair_takes_two_ranks() -> None:
    """One alone is skipped with the reason."""
    way = replace(ways(ToyPlatform({"a": constant(1e-6)}))[0], collectives=("pingpong",))
    with pytest.raises(Unsupported, match="pingpong takes 2 ranks"):
        way.refuse(case("pingpong", ranks=1))


def test_a_time_that_does_not_grow_with_the_launches_is_implausible() -> None:
    """A loop that runs once; the arithmetic is in the row, and the others are measured."""
    counts: list[int] = []
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)})
    time = platform.time

    def once(prepared: Prepared, launches: int) -> float:
        seconds = time(prepared, launches)
        counts.append(launches)
        return 3e-7 / launches if platform.running == "a" else seconds

    platform.time = once  # type: ignore[method-assign]
    wrong, right = run(platform, iters=3)
    assert str(wrong.mismatch) == (
        "implausible: 2147483648 operations take 300 ns and 32768 take 300 ns: the time does not grow with their number"
    )
    assert right.right


def test_ranks_that_are_slow_to_begin_are_no_reason_for_doubt() -> None:
    """An operation of 1 us behind a start of 5 ms: only very many show that their number counts."""
    platform = ToyPlatform({"a": constant(1e-6)})
    time = platform.time
    platform.time = lambda prepared, launches: time(prepared, launches) + 5e-3 / launches  # type: ignore[method-assign]
    (result,) = run(platform, iters=3)
    assert result.right


@pytest.mark.parametrize(("share", "right"), [(0.5, False), (1.0, True)])
def test_operations_that_take_longer_one_by_one_are_left_out_of_their_own_loop(share: float, right: bool) -> None:
    """Every other one, here; with a loop of the package's own that takes as long nothing is amiss."""
    platform = ToyPlatform({"a": constant(1e-6)})
    time, own = platform.time, Prepared(lambda launches: setattr(platform, "running", "a"))

    def in_own_loop(prepared: Prepared, launches: int) -> float:
        return time(prepared, launches) * (1 if prepared is own else share)

    platform.singly = lambda prepared: own  # type: ignore[method-assign]
    platform.time = in_own_loop  # type: ignore[method-assign]
    (result,) = run(platform, iters=3)
    assert result.right == right
    assert right or str(result.mismatch) == (
        "implausible: an operation takes 500 ns in its own loop and 1 us one by one, of 512: some are left out"
    )


def test_a_busy_machine_is_no_reason_for_doubt() -> None:
    """Nine of ten times are ten times as long; the shortest decide."""
    times = in_turn(*([1e-5] * 9), 1e-6)
    (result,) = run(ToyPlatform({"a": times}), iters=3)
    assert result.right


@pytest.mark.parametrize(("seconds", "right"), [(1.1e-9, True), (0.9e-9, False)])
def test_an_operation_faster_than_the_hardware_is_implausible(seconds: float, right: bool) -> None:
    """1 KiB in 1 ns is 1 TB/s, which is this platform's limit, and so is 1 ns."""
    (result,) = run(ToyPlatform({"a": constant(seconds)}, limits=Limits(1e-9, 1024e9 / 1.0, "")), iters=3)
    assert result.right == right
    assert right or str(result.mismatch).startswith("implausible: 1 KiB received in 0.9 ns is 1,138 GB/s; more than")


def sampled(platform: ToyPlatform) -> str:
    """Who was timed once samples were taken, in order."""
    start = platform.log.index(("fill", 3))
    return "".join(name for name, _ in platform.log[start:] if name in ("a", "b"))


def test_samples_are_taken_in_turn_and_back() -> None:
    """A B B A A B: drift of the machine cancels in the ratio."""
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)})
    run(platform, iters=5, warmup=0)
    assert sampled(platform).startswith("abbaabba")


def test_warm_up_comes_first_and_counts_for_nothing() -> None:
    """Three rounds of samples as long as the others, and none of them in the result."""
    platform = ToyPlatform({"a": in_turn(*[1e-3] * 9, 5e-3, 5e-3, 5e-3, 1e-3, 1e-3), "b": constant(1e-3)})
    (result, _) = run(platform, nbytes=LARGE, iters=2, warmup=3)
    assert sampled(platform) == "ababab" + "ab" + "ab"
    assert result.seconds == (1e-3, 1e-3)


def test_the_last_sample_is_checked_with_fresh_data() -> None:
    """It is a launch that counts, on a refilled input and a poisoned output."""
    platform = ToyPlatform({"a": constant(1e-6)})
    (result,) = run(platform, iters=4)
    assert platform.log[-4:] == [("fill", 4), ("a", 256), ("check", 4), ("overrun", "a")]
    assert len(result.seconds) == 4


def test_a_wrong_result_has_no_time() -> None:
    """The number would mean nothing."""
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)}, wrong=lambda name, seed: name == "a")
    wrong, right = run(platform, iters=3)
    assert (wrong.implementation, wrong.mismatch, wrong.seconds) == ("a", MISMATCH, ())
    assert right.mismatch is None
    assert len(right.seconds) == 3
    assert [launches for name, launches in platform.log if name == "a"] == [1], "what is wrong is not timed"


def test_a_result_that_goes_wrong_while_timed_is_wrong() -> None:
    """Passing the first check is not enough."""
    platform = ToyPlatform({"a": constant(1e-3)}, wrong=lambda name, seed: seed == 4)
    (result,) = run(platform, iters=3)
    assert result.mismatch == MISMATCH
    assert result.seconds == ()


def test_in_place_the_launch_that_is_checked_starts_from_fresh_data() -> None:
    """Timed launches feed on their own results, so one more is made on a refilled buffer."""
    platform = ToyPlatform({"a": constant(1e-6)})
    (result,) = run(platform, in_place=True, iters=3)
    assert platform.log[-4:] == [("fill", 4), ("a", 1), ("check", 4), ("overrun", "a")]
    assert len(result.seconds) == 3


def test_short_operations_are_repeated_until_a_sample_is_long_enough() -> None:
    """200 us for a sample of 1 us operations: 256 launches, by doubling."""
    platform = ToyPlatform({"a": constant(1e-6)})
    (result,) = run(platform, iters=3)
    assert result.launches == 256
    (result,) = run(platform, iters=3, region=1e-3)
    assert result.launches == 1024


def test_a_calibration_is_not_misled_by_one_slow_trial() -> None:
    """The quicker of two counts: what is disturbed lasts long enough by mistake."""
    (result,) = run(ToyPlatform({"a": in_turn(1e-6, 1e-2)}), iters=3)
    assert result.launches == 256


def test_a_calibration_that_was_disturbed_is_mended() -> None:
    """The warm-up shows that a sample lasts a fraction of what it should."""
    disturbed = iter([1e-6] * 3 + [1e-3] * 2)  # the check's own trials, then those of the calibration
    (result,) = run(ToyPlatform({"a": lambda: next(disturbed, 1e-6)}), iters=3)
    assert result.launches == 256


class BusyPlatform(ToyPlatform):
    """Of 1 us an operation, where a rank waits so many seconds for a core before the first of them."""

    wait = 4e-3

    def time(self, prepared: Prepared, launches: int) -> float:
        super().time(prepared, launches)
        return 1e-6 + self.wait / launches


def test_a_wait_for_a_core_is_no_operation() -> None:
    """A sample has so many operations that they last longer than the wait, which is nearly all of one operation."""
    (result,) = run(BusyPlatform({"a": constant(0.0)}), iters=3)
    assert 4096 <= result.launches <= 2**16
    assert result.typical < 2e-6


@pytest.mark.parametrize(("seconds", "nbytes"), [(5e-3, 1024), (5e-3, 2**24), (50e-3, 1024)])
def test_an_operation_that_takes_as_long_as_a_wait_is_timed_by_itself(seconds: float, nbytes: int) -> None:
    """As its time grows with the launches; where that is likely, nobody tries."""
    platform = ToyPlatform({"a": constant(seconds)})
    (result,) = run(platform, nbytes=nbytes, iters=3)
    assert result.launches == 1
    tried = (seconds, nbytes) == (5e-3, 1024)
    assert (("a", 8) in platform.log) == tried


def test_a_clock_that_sees_nothing_does_not_double_for_ever() -> None:
    """65536 launches are the most; and no time at all is implausible."""
    (result,) = run(ToyPlatform({"a": constant(0.0)}), iters=3)
    assert result.launches == 2**16
    assert "does not grow" in str(result.mismatch)


def test_what_is_known_of_a_sample_is_not_calibrated_anew() -> None:
    """As many launches as an earlier round had, and no fewer; others begin with one."""
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)})
    sampling = Sampling(iters=2, warmup=1)
    results = measure(case(), ways(platform), platform, sampling, launches={"a": 64})  # type: ignore[arg-type]
    assert [result.launches for result in results if isinstance(result, Measurement)] == [64, 1]
    assert {launches for name, launches in platform.log if name == "a"} == {1, 64}
    assert platform.log.count(("a", 1)) == 1  # the check; neither a trial nor a warm-up


def test_what_is_timed_works_on_data_that_the_first_check_did_not_see() -> None:
    """A result left over from it must not pass the second."""
    platform = ToyPlatform({"a": constant(1e-3)})
    run(platform, nbytes=LARGE, iters=3)
    assert platform.log[5] == ("fill", 2)


def test_sampling_stops_when_the_median_is_known() -> None:
    """Equal samples need a tenth of the budget at most."""
    platform = ToyPlatform({"a": constant(1e-3)})
    (result,) = run(platform, budget=0.5)
    assert 0.05 <= sum(result.seconds) <= 0.08


def test_a_few_equal_samples_are_no_evidence() -> None:
    """A tenth of the budget is spent after nine; whether to stop is asked of every eighth, so sixteen are taken."""
    (result,) = run(ToyPlatform({"a": constant(0.0058)}), budget=0.5)
    assert len(result.seconds) == 16


def test_sampling_goes_on_while_one_median_is_not_known() -> None:
    """However well the others are; and 3 % are not the 1 % that were asked for."""
    noisy = in_turn(*(1e-3 * (1 + 0.06 * (step % 5)) for step in range(15)))
    results = run(ToyPlatform({"a": constant(1e-3), "b": noisy}), budget=0.2, precision=0.01)
    assert sum(sum(result.seconds) for result in results) >= 0.2


def test_sampling_stops_when_the_budget_is_spent() -> None:
    """Noisy samples get all of it, shared among the implementations."""
    values = iter(range(10**6))
    noisy = lambda: 1e-3 * (1 + next(values) % 7)  # noqa: E731 - a name for a closure
    platform = ToyPlatform({"a": noisy, "b": noisy})
    results = run(platform, budget=0.5, precision=0.0)
    assert 0.5 <= sum(sum(result.seconds) for result in results) <= 0.53


def test_a_sample_of_many_launches_spends_as_many_times_its_seconds() -> None:
    """Means over 128 or 256 launches."""
    noisy = in_turn(*(1e-6 * (1 + step * 7 % 997 / 997) for step in range(997)))
    (result,) = run(ToyPlatform({"a": noisy}), budget=0.5, precision=0.0)
    assert 0.5 <= result.launches * sum(result.seconds) <= 0.51


def test_slow_operations_get_enough_samples_for_an_interval() -> None:
    """Seven, whatever the budget says."""
    platform = ToyPlatform({"a": constant(1.0)})
    (result,) = run(platform, budget=0.5)
    assert len(result.seconds) == 7


def test_iters_fixes_the_number_of_samples() -> None:
    """-n 3 gives three."""
    (result,) = run(ToyPlatform({"a": constant(1e-3)}), iters=3)
    assert len(result.seconds) == 3


def test_what_cannot_be_done_is_skipped_with_the_reason() -> None:
    """By the record, by the implementation, or by the hardware."""

    def refuse(*ignored: Any) -> Prepared:
        raise Unsupported("no way")

    platform = ToyPlatform({})
    unable = [
        Implementation("record", "", ("toy",), ("broadcast",), refuse),
        Implementation("supports", "", ("toy",), ("allreduce",), refuse, supports=refuse),
        Implementation("hardware", "", ("toy",), ("allreduce",), refuse),
    ]
    results = list(measure(case(), unable, platform, Sampling()))  # type: ignore[arg-type]
    assert all(isinstance(result, Skipped) for result in results)
    assert [result.reason for result in results] == ["record carries out broadcast only", "no way", "no way"]


def test_a_check_alone_takes_no_samples() -> None:
    """For `collbench verify`: right or wrong, and on to the next."""
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)}, wrong=lambda name, seed: name == "b")
    right, wrong = run(platform, nbytes=LARGE, check_only=True)
    assert (right.mismatch, right.seconds, right.launches) == (None, (), 1)
    assert wrong.mismatch == MISMATCH
    assert [what for what, _ in platform.log] == ["fill", "a", "check", "stress", "overrun", "fill", "b", "check"]


def test_a_kernel_that_gives_up_ends_the_case() -> None:
    """Its flags are in disorder, so nothing more may run on this platform."""

    def give_up() -> float:
        raise CaseFailed("waited in vain")

    with pytest.raises(CaseFailed, match="in vain"):
        run(ToyPlatform({"a": give_up}))


def test_progress_is_told_before_anything_can_hang() -> None:
    """Each time an implementation is about to run."""
    platform = ToyPlatform({"a": constant(1e-3), "b": constant(1e-3)})
    told: list[str] = []

    def tell(name: str) -> None:
        told.append(name)
        platform.log.append(("turn", name))

    list(measure(case(), ways(platform), platform, Sampling(iters=2), tell))  # type: ignore[arg-type]
    for place, (what, _) in enumerate(platform.log):
        if what in ("a", "b"):
            turns = [name for kind, name in platform.log[:place] if kind == "turn"]
            assert turns[-1] == what


def test_notes_of_platform_and_implementation_reach_the_row() -> None:
    """A reader must know what the number depends on."""
    platform = ToyPlatform({"a": constant(1e-3)})
    (result,) = run(platform, iters=1)
    assert isinstance(result, Measurement)
    assert str(result.note) == "toy note; a note"
    assert result.estimate == 3e-6


@pytest.mark.parametrize(("nbytes", "seconds", "operations"), [(8, 5e-3, 3), (2**20, 5e-3, 1), (2**20, 5e-4, 3)])
def test_halts_are_planned_by_the_shortest_of_three_operations_unless_these_are_long(
    nbytes: int, seconds: float, operations: int
) -> None:
    """A busy machine makes a small one seem long, and halts would come after its end."""
    platform = ToyPlatform({"a": in_turn(seconds, seconds / 2, seconds / 4)})
    list(measure(case(nbytes=nbytes), ways(platform), platform, Sampling(check_only=True)))  # type: ignore[arg-type]
    (plan,) = [plan for what, plan in platform.log if what == "stress"]
    assert [what for what, _ in platform.log].count("a") == operations
    assert plan.within == pytest.approx(seconds if operations == 1 else seconds / 4)
