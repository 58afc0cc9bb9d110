"""`ring-host`: the ring all-reduce with the host as its clock (baidu-allreduce, 2017).

Each of the 2 (n - 1) steps copies a chunk from the previous rank, adds it, and waits until every rank has done so.
The algorithm is bandwidth-optimal and the code obvious; what loses is that every step costs a round trip to the host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.collectives import chunk_bounds
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.layout import Region, buffers
from collbench.platforms.roles import Launching, Prepared, Watch
from collbench.results import ADDED, MOVED


class Action(NamedTuple):
    """Something to enqueue, and which part of the time that is."""

    phase: str
    run: Callable[[], None]


Step = dict[int, list[Action]]
"""What each local rank enqueues, in order, once its left neighbour has done its part of the step before."""


@dataclass(frozen=True)
class Ring:
    """The steps of one case; who must have finished what between them is the caller's business."""

    case: Case
    platform: Launching

    def steps(self) -> list[Step]:
        """All of them: the start, n - 1 that add and n - 1 that copy."""
        adding = [self.start(), *(self.reduce_step(step) for step in range(1, self.case.ranks))]
        for rank, action in self.complete().items():
            adding[-1][rank] += action
        return [*adding, *(self.gather_step(step) for step in range(self.case.ranks - 1))]

    def chunk(self, rank: int, index: int) -> tuple[int, int]:
        """Address and length in elements of a chunk of a rank's result."""
        chunks = list(chunk_bounds(self.case.block, self.case.ranks, self.case.dtype.itemsize))
        first, count = chunks[index % self.case.ranks]
        return buffers(self.platform, self.case, rank)[1] + first * self.case.dtype.itemsize, count

    def copy(self, rank: int, target: int, source: int, count: int) -> Action:
        """A copy of so many elements by a rank."""
        return Action(MOVED, partial(self.platform.copy, rank, target, source, count * self.case.dtype.itemsize))

    def start(self) -> Step:
        """The result starts as the rank's own input."""
        places = {rank: buffers(self.platform, self.case, rank) for rank in self.platform.local}
        return {
            rank: [self.copy(rank, receive, send, self.case.block)] if send != receive else []
            for rank, (send, receive) in places.items()
        }

    def reduce_step(self, step: int) -> Step:
        """Each rank adds the chunk that its left neighbour finished adding to one step before."""
        actions: Step = {}
        add = self.platform.kernel("steps.cu", "add", self.case.dtype, self.case.redop)
        for rank in self.platform.local:
            source, count = self.chunk((rank - 1) % self.case.ranks, rank - step)
            target, _ = self.chunk(rank, rank - step)
            staging = self.platform.address(Region.STAGING, rank)
            arguments = np.uint64(target), np.uint64(staging), np.uint64(count)
            both = [
                self.copy(rank, staging, source, count),
                Action(ADDED, self.platform.bind_one(add, rank, count, *arguments)),
            ]
            actions[rank] = both if count else []
        return actions

    def complete(self) -> Step:
        """Each rank divides the chunk that it has the whole sum of, if the average is wanted."""
        if self.case.redop.name != "avg":
            return {}
        actions: Step = {}
        kernel = self.platform.kernel("steps.cu", "complete", self.case.dtype, self.case.redop)
        for rank in self.platform.local:
            target, count = self.chunk(rank, rank + 1)
            arguments = np.uint64(target), np.uint64(count), np.uint32(self.case.ranks)
            divide = Action(ADDED, self.platform.bind_one(kernel, rank, count, *arguments))
            actions[rank] = [divide] if count else []
        return actions

    def gather_step(self, step: int) -> Step:
        """Each rank takes over one finished chunk from its left neighbour."""
        actions: Step = {}
        for rank in self.platform.local:
            source, count = self.chunk((rank - 1) % self.case.ranks, rank - step)
            target, _ = self.chunk(rank, rank - step)
            actions[rank] = [self.copy(rank, target, source, count)] if count else []
        return actions


def cost(case: Case, wait: Wait = Wait.HOST) -> Cost:
    """The input is copied first; a chunk is copied and added (7 accesses an element in all), or copied over."""
    share = (case.ranks - 1) / case.ranks
    return Cost(wait, 2 * case.ranks - 1, link=2 * share, memory=7 * share + 2 * (not case.in_place))


def under(watch: Watch, steps: Sequence[Step]) -> list[Step]:
    """The same steps, each action of which is watched."""

    def watched(rank: int, action: Action) -> Action:
        def run() -> None:
            with watch(rank, action.phase):
                action.run()

        return Action(action.phase, run)

    return [{rank: [watched(rank, action) for action in actions] for rank, actions in step.items()} for step in steps]


def _prepare(case: Case, platform: Launching) -> Prepared:
    steps = Ring(case, platform).steps()

    def once(steps: Sequence[Step]) -> None:
        for step in steps:
            for action in chain.from_iterable(step.values()):
                action.run()
            platform.synchronize()

    def launch(launches: int) -> None:
        for _ in range(launches):
            once(steps)

    return Prepared(launch, host_driven=True, watched=lambda watch: once(under(watch, steps)))


IMPLEMENTATION = Implementation(
    name="ring-host",
    summary="ring; the host copies, adds and waits after every step",
    platforms=("gpu", "cpu"),
    collectives=("allreduce",),
    prepare=_prepare,
    rung=1,
    neighbours_only=True,
    cost=cost,
)
