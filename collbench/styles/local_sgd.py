"""`local-sgd`: every rank makes steps of its own, and all weights are averaged after so many (Stich, ICLR 2019)."""

from collections.abc import Sequence

from collbench.learning.seat import Held, Seat
from collbench.learning.trail import Averaged, Copied, Kept, Name, Origin, Part, Stepped, rate_of, share_of
from collbench.styles import Style, Training


def _prepare(seat: Seat) -> Training:
    job, add = seat.job, seat.adding("ring-flags")
    own, common = seat.memory(job.steps), seat.memory(-(-job.steps // job.every))
    weights, change = seat.first(), seat.first()
    rate, share = rate_of(job, 1), share_of(seat.ranks)

    def go(until: int) -> None:
        for step in range(len(own), until):
            seat.learn(weights, step, change)
            weights[:] -= rate * change
            own.keep(weights)
            if averages(seat, step):
                seat.sent[:] = weights
                add()
                weights[:] = share * seat.received
                common.keep(weights)

    def trail() -> Sequence[Kept]:
        steps = [step for step in range(len(own)) if averages(seat, step)]
        apart = (_apart(seat, step, own[step]) for step in range(len(own)))
        return [*apart, *(_together(seat, step, common[place]) for place, step in enumerate(steps))]

    return Training(go, trail)


def averages(seat: Seat, step: int) -> bool:
    """Whether weights are averaged after that step; after the last one in any case."""
    return (step + 1) % seat.job.every == 0 or step + 1 == seat.job.steps


def _apart(seat: Seat, step: int, held: Held) -> Kept:
    """A rank's own step, on what all share or on what its last one left."""
    before: Name = (seat.rank, step)
    if step == 0 or averages(seat, step - 1):
        before = step * seat.ranks
    return Kept((seat.rank, step + 1), *held, Stepped(before, (Part(seat.rank, step, before),), 1))


def _together(seat: Seat, step: int, held: Held) -> Kept:
    name = (step + 1) * seat.ranks
    if seat.rank:  # numbers below 0: what it shares
        return Kept((seat.rank, -1 - step), *held, Copied(name))
    origin: Origin = Averaged(tuple((rank, step + 1) for rank in range(seat.ranks)))
    return Kept(name, *held, origin)


STYLE = Style(
    name="local-sgd",
    summary="own steps, and weights averaged after every K of them (--every)",
    prepare=_prepare,
    uses=("ring-flags",),
    order=4,
)
