"""`ring-events`: the ring of `ring-host`, whose order is kept by events instead of by the host.

The host enqueues all steps at once and goes its way; nothing waits for a time, only for what it needs.  A rank's own
queue is in order, so only what one rank writes and another touches needs an event.  Call the result buffer of rank r
R(r), its left neighbour l and its right neighbour q.  A rank writes its own buffers only, and reads R(l) besides:

* Read after write.  In step t rank r reads from R(l) the chunk that l wrote in step t - 1, so it first waits for l's
  event behind step t - 1.  For the first step that is l's copy of its input, or whatever l did before if in place.
* Write after read, within an operation.  R(r) is written again where q has read it in one case only: a chunk that q
  took while adding is later overwritten by its finished sum.  That sum has been through q: it exists only after q added
  what it read, and each rank it passed since waited for the one before.
* Write after read, of the next operation or of whoever is next on the queue (the caller may change its input).  q may
  still read R(r), so the last thing that r's queue waits for is q's event behind its last step.  Nothing is therefore
  left to remember from one launch to the next.
* Staging is written and read by r's own queue only: one slot is enough, and nobody has to hand it back.

None of these waits follows from the others (tests/platforms/gpu/test_events.py leaves out each).  Between queues of one
process an event is all that is needed; another process could not wait for it.
"""

from collections.abc import Sequence
from typing import Any

from collbench.algorithms import Implementation
from collbench.algorithms.ring_host import Ring, Step, cost, under
from collbench.cases import Case
from collbench.errors import Unsupported
from collbench.platforms.cost import Wait
from collbench.platforms.roles import Launching, Prepared, Watch


def _supports(case: Case) -> None:
    if case.ranks == 1 and case.in_place:
        raise Unsupported("one rank in place has nothing to enqueue")


def _enqueue(platform: Launching, steps: Sequence[Step], ranks: int) -> None:
    """One operation."""
    behind: dict[int, Any] = {}  # each rank's event behind its last step
    for number, step in enumerate(steps):
        before, behind = behind, {}
        for rank, actions in step.items():
            if number:
                platform.after(rank, before[(rank - 1) % ranks])
            for action in actions:
                action.run()
            behind[rank] = platform.mark(rank)
    for rank in behind:
        platform.after(rank, behind[(rank + 1) % ranks])


def _prepare(case: Case, platform: Launching) -> Prepared:
    if len(platform.local) != case.ranks:
        raise Unsupported("events order streams of one process only")
    steps = Ring(case, platform).steps()

    def launch(launches: int) -> None:
        for _ in range(launches):
            _enqueue(platform, steps, case.ranks)

    def watched(watch: Watch) -> None:
        _enqueue(platform, under(watch, steps), case.ranks)

    return Prepared(launch, one_graph=True, watched=watched)


IMPLEMENTATION = Implementation(
    name="ring-events",
    summary="the same, all steps enqueued at once: events keep the order",
    platforms=("gpu",),
    collectives=("allreduce",),
    prepare=_prepare,
    supports=_supports,
    rung=2,
    neighbours_only=True,
    cost=lambda case: cost(case, Wait.EVENT),
)
