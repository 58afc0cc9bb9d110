"""Order by events: what `ring-events` waits for, and what CUDA does with events and captures.

On the made-up machine in an order of our choice, so that a wait which is missing shows at once and always.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from collbench.algorithms import implementations, ring_host
from collbench.algorithms.ring_host import Action
from collbench.cases import Case, Sampling
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import Unsupported
from collbench.platforms.gpu import timing
from collbench.platforms.interface import Prepared
from collbench.platforms.layout import buffers
from collbench.results.collectives import MOVED
from tests.platforms.gpu.opening import Open
from tools.kernels.buffers import received
from tools.stand_in.clocks import MadeUpClock
from tools.stand_in.cuda import Machine

RING = implementations()["ring-events"]


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


def fetched(platform: Any, case: Case, which: int) -> list[Any]:
    return [
        platform.streams[rank].fetch(buffers(platform.memory, case, rank)[which], np.zeros(case.block, np.uint32))
        for rank in platform.local
    ]


def right_after(platform: Any, case: Case, prepared: Prepared, launches: int) -> bool:
    """Whether every rank has what it must after so many operations of unsigned integers: in place the sums pile up."""
    platform.checker.fill(case, 1)
    platform.clock.time(prepared, launches)
    return right(platform, case, launches)


def right(platform: Any, case: Case, launches: int) -> bool:
    times = case.ranks ** (launches - 1) if case.in_place else 1
    got = fetched(platform, case, 1)
    return all(np.array_equal(one, received(case, rank, 1)[0][1] * np.uint32(times)) for rank, one in enumerate(got))


@pytest.mark.parametrize(
    "places", [((1, 3), (2, 4)), pytest.param(((1, 2), (1, 4), (2, 2), (3, 5)), marks=pytest.mark.full)], ids=str
)
def test_whatever_the_order_the_result_is_right(places: Any, opened: Open) -> None:
    for devices, ranks in places:
        for graph, in_place in ((True, False), (True, True), (False, False), (False, True)):
            machine = Machine(devices)
            platform = opened(machine, ranks, graph, in_place)
            for late in range(ranks):
                machine.order = slow(late)
                for count in (1, 33, 1000):
                    case = a_case(ranks, count, in_place=in_place)
                    context = f"rank {late} of {ranks} late, {count} elements, {graph=}, {in_place=}"
                    assert right_after(platform, case, RING.prepare(case, platform), 3), context


def with_results_used(platform: Any, case: Case, prepared: Prepared) -> Prepared:
    """The operation, and what a caller does next: keep the result where the input was, and write over it."""

    def launch(launches: int) -> None:
        prepared.launch(launches)
        for rank in platform.local:
            send, receive = buffers(platform.memory, case, rank)
            platform.launcher.copy(rank, send, receive, case.nbytes)
            platform._cuda.runtime.memsetAsync(receive, 0, case.nbytes, platform.streams[rank].enter().ptr)

    return Prepared(launch, one_graph=True)


def test_results_may_be_used_and_overwritten_right_after_the_operation(opened: Open) -> None:
    for ranks, graph in ((2, True), (3, False), (4, True)):
        machine = Machine(1)
        platform, case = opened(machine, ranks, graph), a_case(ranks)
        prepared = with_results_used(platform, case, RING.prepare(case, platform))
        for late in range(ranks):
            machine.order = slow(late)
            platform.checker.fill(case, 1)
            platform.clock.time(prepared, 1)
            for result in fetched(platform, case, 0):
                assert np.array_equal(result, received(case, 0, 1)[0][1]), f"rank {late} of {ranks} late, {graph=}"


def test_one_graph_holds_all_ranks_and_is_timed_to_its_end(opened: Open) -> None:
    machine = Machine(2)
    platform = opened(machine, 2)
    steps = ring_host.Ring(a_case(2), platform).steps()
    steps[-1][1].append(Action(MOVED, lambda: platform.streams[1].enter().enqueue(lambda: time.sleep(0.05))))
    prepared = Prepared(lambda launches: ring_host._enqueue(platform, steps, 2), one_graph=True)
    assert platform.clock.time(prepared, 1) >= 0.05
    assert (machine.captures, machine.replays, len(machine.graphs)) == (1, 1, 1)


def test_an_operation_that_is_watched_goes_at_the_devices_pace_not_the_hosts(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, case = Machine(1), a_case(2)
    platform = opened(machine, 2)
    ring = RING.prepare(case, platform)
    assert ring.watched
    noted: list[Any] = []

    @contextmanager
    def slowly(rank: int, phase: str) -> Iterator[None]:
        noted.append((rank, phase, platform.clock.moment(rank)))
        machine.clock.sleep(1.0)
        yield

    once = Prepared(lambda launches: ring.watched(slowly), notes_moments=True)
    machine.clock = MadeUpClock()
    platform.checker.fill(case, 1)
    assert platform.clock.time(once, 1) == 0
    assert machine.clock.now == len(noted) == 8, "of each rank: the input, a chunk fetched, added, passed on"
    assert machine.captures == 0
    assert len({moment() for _, _, moment in noted}) == 1, "no action waited for the host"
    assert right(platform, case, 1)
    monkeypatch.setattr(timing, "_GATED", 1)
    assert platform.clock.time(once, 1) > 0


def test_one_rank_copies_its_input_and_what_events_cannot_order_is_refused(opened: Open) -> None:
    platform, case = opened(Machine(1), 1), a_case(1)
    assert right_after(platform, case, RING.prepare(case, platform), 2)
    with pytest.raises(Unsupported, match="nothing to enqueue"):
        RING.refuse(a_case(1, in_place=True))
    platform = opened(Machine(1), 2)
    platform.local = (0,)
    with pytest.raises(Unsupported, match="events order streams of one process only"):
        RING.prepare(a_case(2), platform)
    platform.local = range(2)
