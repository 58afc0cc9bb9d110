"""`ring`: after every step the gradients of all ranks are added round a ring, and each rank makes the same step.

Synchronous stochastic gradient descent with the all-reduce of Patarasuk & Yuan (2009), as the rung `ring-flags`.
"""

from collections.abc import Callable

from collbench.learning.seat import Held, Seat
from collbench.learning.trail import Copied, Kept, Name, Origin, Part, Stepped, rate_of
from collbench.styles import Style, Training


def every_step(seat: Seat, add: Callable[[], None]) -> Training:
    """Training whose gradients are added by `add` after every step."""
    weights, memory = seat.first(), seat.memory(seat.job.steps)
    rate = rate_of(seat.job, seat.ranks)

    def go(until: int) -> None:
        for step in range(len(memory), until):
            seat.learn(weights, step, seat.sent)
            add()
            weights[:] -= rate * seat.received
            memory.keep(weights)

    return Training(go, lambda: [_kept(seat, step, memory[step]) for step in range(len(memory))])


def _kept(seat: Seat, step: int, held: Held) -> Kept:
    """Rank 0's weights are all gradients' doing, the other ranks' are the same."""
    before, after = step * seat.ranks, (step + 1) * seat.ranks
    name: Name = after if seat.rank == 0 else (seat.rank, step + 1)
    parts = tuple(Part(rank, step, before) for rank in range(seat.ranks))
    origin: Origin = Stepped(before, parts, seat.ranks) if seat.rank == 0 else Copied(after)
    return Kept(name, *held, origin)


def by(implementation: str) -> Callable[[Seat], Training]:
    """Such training with that implementation's all-reduce."""
    return lambda seat: every_step(seat, seat.adding(implementation))


STYLE = Style(
    name="ring",
    summary="gradients added round a ring (ring-flags) after every step",
    prepare=by("ring-flags"),
    uses=("ring-flags",),
    order=1,
)
