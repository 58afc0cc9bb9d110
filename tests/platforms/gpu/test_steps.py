"""Steps on GPUs that are made up: what is computed, what is communicated, and in which order streams do both.

The order is shown by a toy that notes when it runs: on the stream of a device's first rank, as the kernels of ranks
that wait for each other do, or on every rank's own, as NCCL does.  The machine lets one stream be late, or early, so
that a wait which is missing shows at once and always.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from collbench.cases import Case, Sampling
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import CaseFailed, PlatformError
from collbench.implementations import implementations
from collbench.measure.stepping import measure_steps
from collbench.measurement import Skipped
from collbench.platforms.gpu import device_clocks, launch
from collbench.platforms.roles import Prepared
from collbench.schedules import Parts, find_schedule, schedules
from collbench.step_times import COMMUNICATED, COMPUTED, StepTimes
from collbench.steps import COMMUNICATE, COMPUTE, SEQUENTIAL, Step
from tests.platforms.gpu.opening import Open
from tools.gpu.refusals import Here, unjust
from tools.stand_in.cases import ALL, EXACT, ON_GPU
from tools.stand_in.cuda import Machine, Stream

ON_GPUS = [name for name, schedule in schedules().items() if "gpu" in schedule.platforms]
BOTH = [name for name in ON_GPUS if schedules()[name].communicates and schedules()[name].computes]
STREAM = "stream"
STEP = Step(5, 8, bucket=1024)
NBYTES = 2800  # two whole buckets and a part of one
STEPS = 3
RING = implementations()["ring-flags"]
QUICK = Sampling(iters=1, region=0.0)


def a_case(ranks: int, step: Step = STEP, in_place: bool = False, nbytes: int = NBYTES) -> Case:
    return Case(COLLECTIVES["allreduce"], nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, ranks, in_place, step)


@pytest.fixture
def opened(opened: Open) -> Open:
    """The same, for steps."""

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
            steps=steps,
        )

    return open_on


@pytest.mark.parametrize(
    "places", [((1, 2), (2, 3)), pytest.param(((1, 1), (2, 4), (4, 4)), marks=pytest.mark.full)], ids=str
)
def test_a_step_is_right_whoever_communicates_and_wherever(places: Any, opened: Open) -> None:
    """In buckets of which the last is smaller; or it is skipped with a reason that is just."""
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


def test_moments_of_a_step_follow_each_other(opened: Open) -> None:
    """A rank begins a step, has computed, and is done; and what it did for every bucket lies in between."""
    names = ("nccl", "ring-flags", "ring-events", "one-shot")
    platform = opened(Machine(2), 3, names=names)
    for schedule in ON_GPUS:
        case = a_case(3, replace(STEP, schedule=schedule))
        for result in measure_steps(case, [implementations()[name] for name in names], platform, QUICK):
            expect_sensible(result, schedule, ranks=3)


def test_whichever_stream_is_late_its_moments_follow_each_other(opened: Open) -> None:
    """A stream comes to an event as late as it likes, so whatever is to be in order waits for what comes before."""
    machine = Machine(1)
    platform = opened(machine, 2, names=("ring-events",))
    platform.products(STEP.size)
    for schedule, order in product(ON_GPUS, all_orders(machine)):
        machine.order = order
        case = a_case(2, replace(STEP, schedule=schedule))
        (result,) = measure_steps(case, [implementations()["ring-events"]], platform, replace(QUICK, region=1e-3))
        expect_sensible(result, schedule, ranks=2)


def expect_sensible(result: Any, schedule: str, ranks: int) -> None:
    """Every rank did everything once, in order, the communicating of a bucket behind its computing."""
    assert isinstance(result, StepTimes), result
    assert result.right, result.wrong
    for series in result.series:
        for rank in range(series.ranks):
            rows = zip(series.begins(rank), series.computed[rank], series.done[rank], strict=True)
            assert all(begun <= computed <= done for begun, computed, done in rows), schedule
    buckets = range(3)
    did = {(one.what, one.rank, one.bucket): one for one in result.activities}
    assert len(did) == len(result.activities)
    computed = {
        (COMPUTED, rank, bucket) for rank in range(ranks) for bucket in (buckets if schedule == STREAM else (0,))
    }
    sent = {(COMMUNICATED, rank, bucket) for rank in range(ranks) for bucket in buckets}
    communicates, computes = find_schedule(schedule).communicates, find_schedule(schedule).computes
    assert did.keys() == (computed if computes else set()) | (sent if communicates else set())
    assert all(one.seconds >= 0 for one in did.values())
    for what, rank, bucket in did:
        if what == COMMUNICATED and computes:
            before = did[COMPUTED, rank, bucket if schedule == STREAM else 0]
            assert before.start + before.seconds <= did[what, rank, bucket].start + 1e-9


def toy(platform: Any, bucket: int, everywhere: bool) -> Prepared:
    """An operation that notes what streams do: those of every rank, or of each device's first."""
    places = platform._places
    ranks = platform.local if everywhere else [places.on(device)[0] for device in places.devices]

    def launch(launches: int) -> None:
        for _ in range(launches):
            for rank in ranks:
                stream = platform._queues[rank].use()
                stream.enqueue(lambda stream=stream: run(stream))

    def run(stream: Stream) -> None:
        stream.machine.noted(f"{bucket} begins", stream)
        stream.machine.noted(f"{bucket} ends", stream)

    return Prepared(launch)


def carry_out(platform: Any, schedule: str, everywhere: bool, steps: int = STEPS) -> list[tuple[str, Stream]]:
    """What streams did in so many steps of three buckets."""
    case = a_case(platform.ranks, replace(STEP, schedule=schedule))
    products = platform.products(STEP.size)
    operations = [toy(platform, bucket, everywhere) for bucket in range(3)]
    parts = Parts(case, platform, products, operations)
    step = find_schedule(schedule).prepare(parts)
    platform.moment(0)  # the clock of a device is set once
    platform.synchronize()
    platform._cuda.cupy.asarray.__self__._machine.log.clear()
    for _ in range(steps):
        step(None)
    platform.synchronize()
    log: list[tuple[str, Stream]] = platform._cuda.cupy.asarray.__self__._machine.log
    return log


def out_of_order(log: Sequence[tuple[str, Stream]], platform: Any, schedule: str) -> list[str]:
    """What came too early: a bucket before a rank of its device had computed it, a product before the last step ended.

    A device's streams are counted together: what its ranks communicate they may communicate in one kernel.
    """
    said = []
    for device in platform._places.devices:
        ranks = platform._places.on(device)
        computing = {platform.products(STEP.size)._of[rank].queue.stream: rank for rank in ranks}
        made = dict.fromkeys(ranks, 0)
        ended, most = 0, 3 * sum(stream.device_id == device for what, stream in log if what == "0 ends") // STEPS
        for what, stream in log:
            if stream.device_id != device:
                continue
            if stream in computing:
                rank = computing[stream]
                step, made[rank] = divmod(made[rank], STEP.products)[0], made[rank] + (what == "product ends")
                if ended < step * most:
                    said.append(f"rank {rank} computes in step {step}, before the one before has ended")
            elif what.endswith("begins"):
                bucket, step = int(what[0]), ended // most
                needed = STEP.products * step + ready(schedule, bucket)
                said += [f"{what} in step {step} before rank {rank} is ready" for rank in ranks if made[rank] < needed]
            else:
                ended += 1
    return said


def ready(schedule: str, bucket: int) -> int:
    """The products of a step behind which a bucket may go out."""
    return sum(list(STEP.shares(3, 0))[: bucket + 1]) if schedule == STREAM else STEP.products


def late(place: int) -> Callable[[Stream], Any]:
    """An order in which one stream does nothing while any other can."""
    return lambda stream: (stream.ptr == place, stream.ptr)


def early(place: int) -> Callable[[Stream], Any]:
    """An order in which one stream does whatever it can first."""
    return lambda stream: (stream.ptr != place, -stream.ptr)


def all_orders(machine: Machine) -> list[Callable[[Stream], Any]]:
    return [order(place) for place in machine.streams for order in (late, early)]


@pytest.mark.parametrize(
    "places", [((1, 2), (2, 3)), pytest.param(((1, 1), (1, 4), (2, 4), (4, 4)), marks=pytest.mark.full)], ids=str
)
def test_whichever_stream_is_late_a_bucket_waits_for_its_products_and_a_step_for_the_last_one(
    places: Any, opened: Open
) -> None:
    """The next step's products would be those of weights that the last one's gradients have not changed yet."""
    for (devices, ranks), schedule, everywhere in product(places, BOTH, (False, True)):
        machine = Machine(devices)
        platform = opened(machine, ranks, names=("ring-flags",))
        platform.products(STEP.size)
        for order in all_orders(machine):
            machine.order = order
            log = carry_out(platform, schedule, everywhere)
            assert len(log) == 2 * STEPS * (STEP.products * ranks + 3 * (ranks if everywhere else devices))
            assert out_of_order(log, platform, schedule) == [], f"{devices=}, {ranks=}, {schedule}, {everywhere=}"


def test_a_bucket_is_communicated_while_the_next_is_computed(opened: Open) -> None:
    """Where its stream goes on whenever it can; one part after the other nothing of the kind happens."""
    machine = Machine(2)
    platform = opened(machine, 2, names=("ring-flags",))
    platform.products(STEP.size)
    machine.order = late(platform.products(STEP.size)._of[0].queue.stream.ptr)
    overlapped = [what for what, stream in carry_out(platform, STREAM, True, steps=1) if stream.device_id == 0]
    assert overlapped.index("0 ends") < len(overlapped) - 1 - overlapped[::-1].index("product begins")
    apart = [what for what, stream in carry_out(platform, SEQUENTIAL, True, steps=1) if stream.device_id == 0]
    assert apart == ["product begins", "product ends"] * STEP.products + [
        f"{bucket} {what}" for bucket in range(3) for what in ("begins", "ends")
    ]


def test_collectives_go_before_products_where_a_gpu_can_choose(opened: Open) -> None:
    """CUDA: smaller numbers are more urgent, and what is beyond a device's range counts as the nearest in it."""
    platform = opened(Machine(2), 4)
    queues = platform.products(STEP.size).queues
    assert {queue.stream.priority for queue in platform._queues.values()} == {-5}
    assert {queue.stream.priority for queue in queues} == {0}
    assert [queue.device for queue in queues] == [queue.device for queue in platform._queues.values()]
    platform = opened(Machine(1), 2, steps=(None,))  # a sweep without steps is measured as it always was
    assert {queue.stream.priority for queue in platform._queues.values()} == {0}


def test_matrices_are_made_once_for_a_size(opened: Open) -> None:
    """Rounds take turns, and each of them asks for products: new ones would fill a GPU, and take seconds."""
    machine = Machine(1)
    platform = opened(machine, 2)
    first = platform.products(8)
    streams = len(machine.streams)
    assert platform.products(8) is first
    assert platform.shifted(128).products(8) is first
    assert len(machine.streams) == streams
    assert platform.products(16) is not first
    assert platform._stopwatch.besides == platform.products(16).queues


def test_matrices_that_cannot_be_multiplied_are_said_in_one_line(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's own error for a full GPU is a MemoryError, and none of CUDA's."""
    platform = opened(Machine(1, without_cublas=True), 2)
    with pytest.raises(PlatformError, match=r"^matrices of 8 x 8 cannot .*libcublas.*: pip install nvidia-cublas"):
        platform.products(8)
    platform = opened(Machine(1), 2)

    def full(*arguments: Any) -> None:
        raise MemoryError("Out of memory allocating 1,073,741,824 bytes (allocated so far: 0 bytes).")

    monkeypatch.setattr(platform._cuda.cupy, "asarray", full)
    with pytest.raises(PlatformError, match=r"^matrices of 8 x 8 cannot be multiplied: Out of memory allocating 1,073"):
        platform.products(8)


def test_whoever_computes_alone_needs_no_implementation_that_works(opened: Open) -> None:
    """An NCCL that cannot share a GPU computes as well as any."""
    platform = opened(Machine(1, nccl_version=22304), 2)
    outcomes = {}
    for schedule in (COMPUTE, COMMUNICATE):
        case = a_case(2, replace(STEP, schedule=schedule))
        outcomes[schedule] = next(measure_steps(case, [implementations()["nccl"]], platform, QUICK))
    assert isinstance(outcomes[COMPUTE], StepTimes)
    assert outcomes[COMPUTE].right
    assert isinstance(outcomes[COMMUNICATE], Skipped)


def test_a_product_that_is_made_twice_is_seen(opened: Open) -> None:
    platform = opened(Machine(2), 2)
    products = platform.products(8)
    products.reset()
    products.enqueue(0, 3)
    products.enqueue(1, 3)
    assert products.check() is None
    products._of[1]._made -= 1
    assert (products.check().rank, products.check().products) == (1, 2)


def test_all_streams_are_waited_for(opened: Open) -> None:
    """Memory is only looked at, and moments are only asked for, once products are done too."""
    platform = opened(Machine(1, product_seconds=0.05), 1)
    products = platform.products(8)
    platform.synchronize()
    begun = products.moment(0)
    products.enqueue(0, 2)
    ended = products.moment(0)
    platform.synchronize()
    assert ended() - begun() >= 0.1


def test_the_clocks_of_devices_are_set_anew_every_few_seconds(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA counts the time between two events in floats of 32 bits; a moment keeps the clock that it was taken by."""
    monkeypatch.setattr(device_clocks, "_FRESH", 1e9)
    platform = opened(Machine(2), 2)
    moments = [platform.moment(0)]
    origins = dict(platform._stopwatch.clocks._ties)
    platform.synchronize()
    moments.append(platform.moment(0))
    assert platform._stopwatch.clocks._ties == origins
    monkeypatch.setattr(device_clocks, "_FRESH", 0.0)
    platform.synchronize()
    moments.append(platform.moment(0))
    assert platform._stopwatch.clocks._ties != origins
    platform.synchronize()
    assert [moment() for moment in moments] == sorted(moment() for moment in moments)


def test_what_fails_in_the_middle_of_a_step_fails_it(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that waits in vain; and what breaks a GPU, in words of CUDA's, whichever call is the first to be told."""
    for schedule in (SEQUENTIAL, STREAM):
        machine = Machine(2)
        platform = opened(machine, 2, names=("ring-flags",))
        platform.products(STEP.size)
        machine.enabled.clear()
        with pytest.raises(CaseFailed, match="cudaErrorIllegalAddress: an illegal memory access was encountered"):
            list(measure_steps(a_case(2, replace(STEP, schedule=schedule)), [RING], platform, QUICK))
    monkeypatch.setattr(launch, "SPINS", 500)
    platform = opened(Machine(2, dead={1}), 2)
    with pytest.raises(CaseFailed, match="a rank waited in vain for another's flag"):
        list(measure_steps(a_case(2), [RING], platform, QUICK))
