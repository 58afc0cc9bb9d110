"""`hierarchical`: gradients are added in groups of ranks, then among the first ranks of all groups, and handed back."""

import numpy as np

from collbench.learning.seat import Seat
from collbench.styles import Style, Training
from collbench.styles.ring import every_step


def _prepare(seat: Seat) -> Training:
    """By MPI's communicators: one for each group, one for all first ranks, one for the rest that nobody uses."""
    world = seat.platform.comm
    group = world.Split(seat.rank // seat.job.group, seat.rank)
    seat.closing.callback(group.Free)
    first = group.Get_rank() == 0
    leaders = world.Split(0 if first else 1, seat.rank)
    seat.closing.callback(leaders.Free)
    of_group = np.empty(seat.job.weights, np.float32)

    def add() -> None:
        group.Reduce(seat.sent, of_group)
        if first:
            leaders.Allreduce(of_group, seat.received)
        group.Bcast(seat.received)

    return every_step(seat, add)


STYLE = Style(
    name="hierarchical",
    summary="gradients added in groups, then between the groups, after every step",
    prepare=_prepare,
    order=3,
)
