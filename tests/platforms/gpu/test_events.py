"""Order by events: what `ring-events` waits for, and what CUDA does with events and captures.

On the made-up machine in an order of our choice, so that a wait which is missing shows at once and always.
"""

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from collbench.cases import Case, Sampling
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import Unsupported
from collbench.implementations import implementations, ring_events
from collbench.implementations.ring_host import Action
from collbench.platforms.layout import Region, buffers
from collbench.platforms.roles import Prepared
from collbench.tracks import MOVED
from tests.platforms.gpu.fake_cuda import Machine
from tests.platforms.gpu.fake_errors import (
    CAPTURED_EVENT,
    CAPTURING,
    ISOLATION,
    MERGE,
    RUNTIME,
    UNJOINED,
    UNMATCHED,
    CUDARuntimeError,
)
from tests.platforms.gpu.opening import Open

RING = implementations()["ring-events"]
PLACES = [(1, 2), (1, 3), (1, 4), (2, 2), (2, 4), (3, 5)]  # devices, ranks
ARITHMETIC = [("float", "sum"), ("double", "prod"), ("half", "avg"), ("bfloat16", "max"), ("int8", "min")]
FORMS = pytest.mark.parametrize("graph", [True, False], ids=["graph", "launches"])


@pytest.fixture
def opened(opened: Open) -> Open:
    """The same for this one rung, where a case has the largest elements."""

    def open_on(machine: Machine, ranks: int, graph: bool = True, in_place: bool = False) -> Any:
        return opened(
            machine,
            collectives=(COLLECTIVES["allreduce"],),
            sizes=(80000,),
            dtypes=(DATATYPES["double"],),
            ranks=ranks,
            implementations=("ring-events",),
            in_place=in_place,
            sampling=Sampling(graph=graph),
        )

    return open_on


def a_case(ranks: int, count: int = 1000, dtype: str = "uint32", redop: str = "sum", in_place: bool = False) -> Case:
    element = DATATYPES[dtype]
    return Case(COLLECTIVES["allreduce"], count * element.itemsize, element, REDUCTIONS[redop], 0, ranks, in_place)


def slow(rank: int) -> Callable[[Any], Any]:
    """An order in which one rank's stream does nothing while any other can."""
    return lambda stream: (stream.ptr == rank + 1, stream.ptr)


def right_after(platform: Any, case: Case, prepared: Prepared, launches: int) -> bool:
    """Whether every rank has what it must after so many operations of unsigned integers: in place the sums pile up."""
    platform.fill(case, 1)
    platform.time(prepared, launches)
    times = case.ranks ** (launches - 1) if case.in_place else 1
    for rank in range(case.ranks):
        got = platform._queues[rank].fetch(buffers(platform, case, rank)[1], np.zeros(case.block, np.uint32))
        if not np.array_equal(got, case.expected(rank, 1)[0][1] * np.uint32(times)):
            return False
    return True


@FORMS
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("devices", "ranks"), PLACES)
def test_whatever_the_order_the_result_is_right(
    devices: int, ranks: int, in_place: bool, graph: bool, opened: Open
) -> None:
    """Several operations back to back, each stream the slow one by turns; sizes with short and empty chunks."""
    machine = Machine(devices)
    platform = opened(machine, ranks, graph, in_place)
    for late, count in product(range(ranks), (1, 33, 1000)):
        machine.order = slow(late)
        case = a_case(ranks, count, in_place=in_place)
        assert right_after(platform, case, RING.prepare(case, platform), 3), f"rank {late} late, {count} elements"


@FORMS
@pytest.mark.parametrize(("dtype", "redop"), ARITHMETIC)
def test_streams_that_run_at_once_agree_too(dtype: str, redop: str, graph: bool, opened: Open) -> None:
    platform = opened(Machine(2), 3, graph)
    case = a_case(3, 10000, dtype, redop)
    prepared = RING.prepare(case, platform)
    for seed in (1, 2):
        platform.fill(case, seed)
        platform.time(prepared, 4)
        assert platform.check(case, seed) is None


class WithoutOne:
    """A platform on which one of an operation's waits is left out, in every operation."""

    def __init__(self, platform: Any, left_out: int, each: int) -> None:
        self._platform, self._left_out, self._each, self._seen = platform, left_out, each, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)

    def after(self, rank: int, token: Any) -> None:
        if self._seen % self._each != self._left_out:
            self._platform.after(rank, token)
        self._seen += 1


def waits(ranks: int) -> list[int]:
    """The places of the waits: one of each rank in each step but the first, and one at the end."""
    return list(range(ranks * (2 * (ranks - 1) + 1)))


def with_results_used(platform: Any, case: Case, prepared: Prepared) -> Prepared:
    """The operation, and what a caller does next: keep the result where the input was, and write over it."""

    def launch(launches: int) -> None:
        prepared.launch(launches)
        for rank in platform.local:
            send, receive = buffers(platform, case, rank)
            platform.copy(rank, send, receive, case.nbytes)
            platform._cuda.runtime.memsetAsync(receive, 0, case.nbytes, platform._queues[rank].enter().ptr)

    return Prepared(launch, one_graph=True)


def all_right(platform: Any, case: Case, prepared: Prepared) -> bool:
    platform.fill(case, 1)
    platform.time(prepared, 1)
    kept = [
        platform._queues[rank].fetch(platform.address(Region.SEND, rank), np.zeros(case.block, np.uint32))
        for rank in platform.local
    ]
    return all(np.array_equal(result, case.expected(0, 1)[0][1]) for result in kept)


@FORMS
@pytest.mark.parametrize(("ranks", "left_out"), [(ranks, wait) for ranks in (2, 3, 4) for wait in (-1, *waits(ranks))])
def test_no_wait_can_be_left_out(ranks: int, left_out: int, graph: bool, opened: Open) -> None:
    """With one missing something is wrong in some order, and with none missing (-1) in no order."""
    machine = Machine(1)
    platform = opened(machine, ranks, graph)
    case = a_case(ranks)
    lacking = RING.prepare(case, WithoutOne(platform, left_out, len(waits(ranks))))  # type: ignore[arg-type]
    found = []
    for late in range(ranks):
        machine.order = slow(late)
        found.append(all_right(platform, case, with_results_used(platform, case, lacking)))
    assert all(found) is (left_out < 0)


def test_the_waits_are_counted_right(opened: Open) -> None:
    """Else the test above would leave out none."""
    platform = opened(Machine(1), 3)
    seen: list[int] = []
    counting = WithoutOne(platform, -1, 1)
    counting.after = lambda rank, token: seen.append(rank)  # type: ignore[method-assign]
    ring_events._enqueue(counting, ring_events.Ring(a_case(3), platform).steps(), 3)  # type: ignore[arg-type]
    assert len(seen) == len(waits(3))


def test_one_graph_holds_all_ranks_and_is_timed_to_its_end(opened: Open) -> None:
    """By the first rank's two events, though the slowest rank be another."""
    machine = Machine(2)
    platform = opened(machine, 2)
    case = a_case(2)
    steps = ring_events.Ring(case, platform).steps()
    steps[-1][1].append(Action(MOVED, lambda: platform._queues[1].enter().enqueue(lambda: time.sleep(0.05))))
    prepared = Prepared(lambda launches: ring_events._enqueue(platform, steps, 2), one_graph=True)
    assert platform.time(prepared, 1) >= 0.05
    assert (machine.captures, machine.replays, len(machine.graphs)) == (1, 1, 1)


def test_ranks_that_other_processes_hold_are_refused(opened: Open) -> None:
    platform = opened(Machine(1), 2)
    platform.local = (0,)
    with pytest.raises(Unsupported, match="events order streams of one process only"):
        RING.prepare(a_case(2), platform)
    platform.local = range(2)


def test_one_rank_copies_its_input_and_in_place_has_nothing_to_do(opened: Open) -> None:
    platform, case = opened(Machine(1), 1), a_case(1)
    assert right_after(platform, case, RING.prepare(case, platform), 2)
    with pytest.raises(Unsupported, match="nothing to enqueue"):
        RING.refuse(a_case(1, in_place=True))


@pytest.fixture
def streams() -> Iterator[tuple[Machine, Any, Any]]:
    machine = Machine(1)
    cuda = machine.cupy().cuda
    yield machine, cuda, [cuda.Stream(non_blocking=True) for _ in range(2)]
    machine.stop()


def refused(status: int) -> Any:
    return pytest.raises(CUDARuntimeError, match=f"^{RUNTIME[status][0]}: ")


def recorded(cuda: Any, stream: Any) -> Any:
    event = cuda.Event(disable_timing=True)
    event.record(stream)
    return event


def test_captures_of_their_own_cannot_wait_for_each_other(streams: Any) -> None:
    """CUDA: a merge of two captures (902); for what is outside a capture, a dependency across its border (905)."""
    _, cuda, (one, two) = streams
    outside = recorded(cuda, two)
    one.begin_capture()
    with refused(ISOLATION):
        one.wait_event(outside)
    two.begin_capture()
    with refused(MERGE):
        two.wait_event(recorded(cuda, one))


def test_a_capture_is_ended_where_it_began_and_with_all_that_joined_it(streams: Any) -> None:
    """CUDA: 903, 904."""
    _, cuda, (one, two) = streams
    one.begin_capture()
    two.wait_event(recorded(cuda, one))
    two.enqueue(lambda: None)
    with refused(UNMATCHED):
        two.end_capture()
    with refused(CAPTURING):
        two.synchronize()
    with refused(UNJOINED):
        one.end_capture()


def test_an_event_of_a_capture_is_of_no_use_outside(streams: Any) -> None:
    """CUDA: 907."""
    _, cuda, (one, two) = streams
    one.begin_capture()
    event = recorded(cuda, one)
    one.end_capture()
    with refused(CAPTURED_EVENT):
        two.wait_event(event)
    with refused(CAPTURED_EVENT):
        cuda.get_elapsed_time(event, event)


def test_a_graph_keeps_to_its_dependencies_only(streams: Any) -> None:
    """The branch of the younger stream comes first unless told otherwise."""
    machine, cuda, (one, two) = streams
    done: list[str] = []
    one.begin_capture()
    two.wait_event(recorded(cuda, one))
    one.enqueue(lambda: done.append("one"))
    two.enqueue(lambda: done.append("two"))
    one.wait_event(recorded(cuda, two))
    one.enqueue(lambda: done.append("joined"))
    graph = one.end_capture()
    graph.launch(one)
    one.synchronize()
    assert done == ["two", "one", "joined"]
    machine.order = lambda stream: stream.ptr
    graph.launch(one)
    one.synchronize()
    assert done[3:] == ["one", "two", "joined"]
