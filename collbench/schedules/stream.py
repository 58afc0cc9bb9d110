"""`stream`: a bucket is communicated on one stream of a GPU while the next is computed on another.

The host enqueues everything and waits for nothing, so rungs that it drives itself are left out.
"""

from collbench.errors import Unsupported
from collbench.platforms.products import Moment
from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf, send


def _prepare(parts: Parts) -> StepOf:
    if any(operation.host_driven for operation in parts.operations):
        raise Unsupported("the host drives it, and cannot enqueue what is to be computed meanwhile")
    platform, products = parts.platform, parts.products
    work = parts.shares

    def step(recorder: Recorder | None) -> Moments:
        for bucket, _ in enumerate(parts.operations):
            for rank, shares in work:
                begun = products.moment(rank) if recorder else None
                products.enqueue(rank, shares[bucket])
                products.hand_over(rank)
                if recorder and begun:
                    recorder.computed(rank, bucket, begun, products.moment(rank))
            send(parts, bucket, recorder)
        computed = [products.moment(rank) for rank in platform.local]
        for rank, _ in work:
            products.take_over(rank)
        return [(one, _later(one, other)) for one, other in zip(computed, parts.moments(), strict=True)]

    return step


def _later(one: Moment, other: Moment) -> Moment:
    return lambda: max(one(), other())


SCHEDULE = Schedule("stream", "one stream computes, another communicates", _prepare, platforms=("gpu",), overlaps=True)
