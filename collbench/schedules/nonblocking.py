"""`nonblocking`: buckets are begun by MPI's non-blocking collectives and finished at the end of the step.

A library without a thread of its own goes on with them only while it is called: when the next bucket is begun, and at
the end.
"""

from collections.abc import Callable, Sequence

from collbench.errors import Unsupported
from collbench.platforms.interface import Pending
from collbench.platforms.products import Products
from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf

Compute = Callable[[Products, int, int, Sequence[Pending]], None]
"""So many products of a rank, while these operations are under way."""


def prepare(parts: Parts, compute: Compute) -> StepOf:
    """Begin a bucket once it is computed, and finish all in the end; Unsupported for what cannot be begun."""
    pending = [operation.pending for operation in parts.operations if operation.pending]
    if len(pending) < len(parts.operations):
        raise Unsupported("it has no non-blocking form; choose mpi, or another schedule")
    products = parts.products
    ((rank, shares),) = parts.shares

    def step(recorder: Recorder | None) -> Moments:
        sent = []
        for bucket, one in enumerate(pending):
            start = products.moment(rank)
            compute(products, rank, shares[bucket], pending[:bucket])
            sent.append(products.moment(rank))
            if recorder:
                recorder.computed(rank, bucket, start, sent[-1])
            one.begin()
        for bucket, one in enumerate(pending):
            one.finish()
            if recorder:
                recorder.communicated(rank, bucket, sent[bucket], products.moment(rank))
        return [sent[-1]], [products.moment(rank)]

    return step


def _at_once(products: Products, rank: int, count: int, pending: Sequence[Pending]) -> None:
    products.enqueue(rank, count)


SCHEDULE = Schedule(
    "nonblocking",
    "MPI_Iallreduce for every bucket, and MPI_Wait at the end",
    lambda parts: prepare(parts, _at_once),
    platforms=("cpu",),
    overlaps=True,
)
