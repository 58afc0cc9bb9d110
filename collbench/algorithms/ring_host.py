"""`ring-host` and `ring-events`: the ring all-reduce with steps enqueued by the host.

Each of the 2 (n - 1) steps copies a chunk from the previous rank, which is bandwidth-optimal. `ring-host` waits for
every rank after each step, which costs a round trip to the host. `ring-events` enqueues all steps at once.

A rank's stream is in order, so only buffers that two ranks touch need an event. Call the result buffer of
rank r R(r), its left neighbour l and its right neighbour q.  A rank writes its own buffers only, and reads R(l):

* Read after write.  In step t rank r reads from R(l) the chunk that l wrote in step t - 1, so it first waits for l's
  event after step t - 1.  For the first step that is l's copy of its input, or whatever l did before if in place.
* Write after read, within an operation.  R(r) is written again where q has read it in one case only: a chunk that q
  took while adding is later overwritten by its finished sum.  That exists only after q added what it read, since each
  rank that the sum passed waited for the one before.
* Write after read, by later work on the stream (the caller may change its input). q may still read R(r), so r's
stream finally waits for q's event after its last step. Launches share no state.
* Staging is written and read by r's own stream only: one slot is enough.

Each of these waits is needed (tests/platforms/gpu/test_events.py leaves out one at a time).  Events reach between
streams of one process only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.collectives import chunk_bounds
from collbench.errors import Unsupported
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared, Watch
from collbench.platforms.layout import Region, buffers
from collbench.results.collectives import ADDED, MOVED


class Action(NamedTuple):
    """Something to enqueue, and which part of the time that is."""

    phase: str
    run: Callable[[], None]


Step = dict[int, list[Action]]
"""The actions of each local rank, in order, after its left neighbour's part of the step before."""


@dataclass(frozen=True)
class Ring:
    """The steps of one case; the caller synchronises between them."""

    case: Case
    platform: Platform

    def steps(self) -> list[Step]:
        """Return all steps: the start, n - 1 that add and n - 1 that copy."""
        adding = [self.start(), *(self.hop(step, adds=True) for step in range(1, self.case.ranks))]
        for rank, action in self.complete().items():
            adding[-1][rank] += action
        return [*adding, *(self.hop(step, adds=False) for step in range(self.case.ranks - 1))]

    def chunk(self, rank: int, index: int) -> tuple[int, int]:
        """Address and length in elements of a chunk of a rank's result."""
        chunks = list(chunk_bounds(self.case.block, self.case.ranks, self.case.dtype.itemsize))
        first, count = chunks[index % self.case.ranks]
        return buffers(self.platform.memory, self.case, rank)[1] + first * self.case.dtype.itemsize, count

    def copy(self, rank: int, target: int, source: int, count: int) -> Action:
        """Return the action in which a rank copies `count` elements."""
        nbytes = count * self.case.dtype.itemsize
        return Action(MOVED, partial(self.platform.launcher.copy, rank, target, source, nbytes))

    def compute(self, rank: int, entry: str, count: int, *arguments: np.generic) -> Action:
        """Return the action in which a rank runs an entry of kernels/steps.cu on `count` elements."""
        kernel = self.platform.launcher.kernel("steps.cu", entry, self.case.dtype, self.case.redop)
        return Action(ADDED, self.platform.launcher.bind_one(kernel, rank, count, *arguments))

    def start(self) -> Step:
        """The result starts as the rank's own input."""
        places = {rank: buffers(self.platform.memory, self.case, rank) for rank in self.platform.local}
        return {
            rank: [self.copy(rank, receive, send, self.case.block)] if send != receive else []
            for rank, (send, receive) in places.items()
        }

    def hop(self, step: int, adds: bool) -> Step:
        """Return the step in which each rank adds the chunk that its left neighbour finished, or takes it over."""
        actions: Step = {}
        for rank in self.platform.local:
            # A chunk goes on by one rank a step, so the chunk of a rank goes back by one.
            source, count = self.chunk((rank - 1) % self.case.ranks, rank - step)
            target, _ = self.chunk(rank, rank - step)
            if adds:
                staging = self.platform.memory.address(Region.STAGING, rank)
                add = self.compute(rank, "add", count, np.uint64(target), np.uint64(staging), np.uint64(count))
                taken = [self.copy(rank, staging, source, count), add]
            else:
                taken = [self.copy(rank, target, source, count)]
            actions[rank] = taken if count else []
        return actions

    def complete(self) -> Step:
        """Return the step in which each rank divides the chunk whose whole sum it has, for an average."""
        if self.case.redop.name != "avg":
            return {}
        actions: Step = {}
        for rank in self.platform.local:
            target, count = self.chunk(rank, rank + 1)
            arguments = np.uint64(target), np.uint64(count), np.uint32(self.case.ranks)
            actions[rank] = [self.compute(rank, "complete", count, *arguments)] if count else []
        return actions


def cost(case: Case, wait: Wait = Wait.HOST) -> Cost:
    """The input is copied first; a chunk is copied and added (7 accesses an element in all), or copied over."""
    share = (case.ranks - 1) / case.ranks
    return Cost(wait, 2 * case.ranks - 1, link=2 * share, memory=7 * share + 2 * (not case.in_place))


def under(watch: Watch, steps: Sequence[Step]) -> list[Step]:
    """Return the same steps with each action watched."""

    def watched(rank: int, action: Action) -> Action:
        def run() -> None:
            with watch(rank, action.phase):
                action.run()

        return Action(action.phase, run)

    watched_steps: list[Step] = []
    for step in steps:
        watched_steps.append({})
        for rank, actions in step.items():
            watched_steps[-1][rank] = [watched(rank, action) for action in actions]
    return watched_steps


def _prepare_host(case: Case, platform: Platform) -> Prepared:
    steps = Ring(case, platform).steps()

    def once(steps: Sequence[Step]) -> None:
        for step in steps:
            for action in chain.from_iterable(step.values()):
                action.run()
            platform.launcher.synchronize()

    def launch(launches: int) -> None:
        for _ in range(launches):
            once(steps)

    return Prepared(launch, host_driven=True, watched=lambda watch: once(under(watch, steps)))


RING_HOST = Implementation(
    name="ring-host",
    summary="ring; the host copies, adds and waits after every step",
    prepare=_prepare_host,
    order=1,
    neighbours_only=True,
    cost=cost,
)


def _supports_events(case: Case) -> None:
    if case.ranks == 1 and case.in_place:
        raise Unsupported("one rank in place has nothing to enqueue")


def _enqueue(platform: Platform, steps: Sequence[Step], ranks: int) -> None:
    behind: dict[int, Any] = {}  # each rank's event behind its last step
    for number, step in enumerate(steps):
        before, behind = behind, {}
        for rank, actions in step.items():
            if number:
                platform.launcher.after(rank, before[(rank - 1) % ranks])
            for action in actions:
                action.run()
            behind[rank] = platform.launcher.mark(rank)
    for rank in behind:
        platform.launcher.after(rank, behind[(rank + 1) % ranks])


def _prepare_events(case: Case, platform: Platform) -> Prepared:
    if len(platform.local) != case.ranks:
        raise Unsupported("CUDA events order streams of one process only; give all ranks to one process")
    steps = Ring(case, platform).steps()

    def launch(launches: int) -> None:
        for _ in range(launches):
            _enqueue(platform, steps, case.ranks)

    return Prepared(launch, one_graph=True, watched=lambda watch: _enqueue(platform, under(watch, steps), case.ranks))


RING_EVENTS = Implementation(
    name="ring-events",
    summary="the same, all steps enqueued at once: events keep the order",
    platforms=("gpu",),
    prepare=_prepare_events,
    supports=_supports_events,
    order=2,
    neighbours_only=True,
    cost=lambda case: cost(case, Wait.EVENT),
)
IMPLEMENTATIONS = RING_HOST, RING_EVENTS
