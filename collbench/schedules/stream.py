"""`stream`: a bucket is communicated on one stream of a GPU while the next is computed on another.

The host enqueues everything and waits for nothing, so rungs that it drives itself are left out.
"""

from collbench.errors import Unsupported
from collbench.platforms.products import Moment
from collbench.schedules import Moments, Parts, Recorder, Schedule, StepOf, sender


def _prepare(parts: Parts) -> StepOf:
    if any(operation.host_driven for operation in parts.operations):
        raise Unsupported("the host drives it, and cannot enqueue what is to be computed meanwhile")
    products, work, send = parts.products, parts.shares, sender(parts)

    def step(recorder: Recorder | None) -> Moments:
        computed: dict[int, Moment] = {}
        for bucket, _ in enumerate(parts.operations):
            for rank, shares in work:
                begun = products.moment(rank) if recorder else None
                products.enqueue(rank, shares[bucket])
                computed[rank] = products.moment(rank)
                if recorder and begun:
                    recorder.computed(rank, bucket, begun, computed[rank])
                products.hand_over(rank)
            send(bucket, recorder)
        done = parts.moments()
        for rank, _ in work:
            products.take_over(rank)
        return list(computed.values()), done

    return step


SCHEDULE = Schedule("stream", "one stream computes, another communicates", _prepare, platforms=("gpu",), overlaps=True)
