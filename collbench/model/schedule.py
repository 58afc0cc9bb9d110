"""NCCL's schedules of each collective: rings, trees, or direct transfers."""

from collections.abc import Callable
from dataclasses import dataclass

from collbench.errors import Unsupported


@dataclass(frozen=True)
class NcclSchedule:
    """The model's record of one collective.

    With `rounds`, every rank owns a share of the array, and all shares go around at once: once for an all-gather, twice
    for an all-reduce.  Without, the whole array passes one rank after the other.
    """

    collective: str
    rounds: int = 0
    direct: str = ""  # instead, a key of nccl_terms.DIRECT: sends from rank to rank, which NCCL's table does not cover
    pattern: str = ""  # between nodes, a key of network.PATTERNS; empty: that of NCCL's algorithm
    leaving: Callable[[int, int], float] | None = None  # bytes out of a node of (ranks, gpus) for each of the array

    @property
    def both_ways(self) -> bool:
        """Whether it reduces and then distributes, which trees and switches that add do on the same way up and down."""
        return self.rounds > 1

    def steps(self, ranks: int) -> int:
        """Return the number of consecutive sends on a ring of `ranks` ranks."""
        return max(1, self.rounds) * (ranks - 1)

    def sent(self, members: int) -> float:
        """Return the bytes that each member of a ring sends, for each byte of the array."""
        return self.steps(members) / members if self.rounds else 1.0


SCHEDULES = {
    schedule.collective: schedule
    for schedule in (
        NcclSchedule("allreduce", rounds=2),
        NcclSchedule("allgather", rounds=1),
        NcclSchedule("reducescatter", rounds=1),
        NcclSchedule("broadcast"),
        NcclSchedule("reduce"),
        NcclSchedule("alltoall", 0, "alltoall", "alltoall", leaving=lambda ranks, gpus: gpus * (ranks - gpus) / ranks),
        NcclSchedule("sendrecv", direct="sendrecv"),
        NcclSchedule("gather", direct="rooted"),
        NcclSchedule("scatter", direct="rooted"),
    )
}
TABLED = tuple(name for name, schedule in SCHEDULES.items() if not schedule.direct)


def schedule_of(collective: str) -> NcclSchedule:
    """Return the record of a collective; Unsupported, saying where to add it, if there is none."""
    if collective not in SCHEDULES:
        raise Unsupported(f"{collective} has no model; add its schedule to collbench/model/schedule.py")
    return SCHEDULES[collective]
