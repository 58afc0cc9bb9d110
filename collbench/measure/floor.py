"""What the machine gives while a case is measured: its memory, and the distance of its cores.

The floor of a case is how long all ranks take to move the fewest bytes it must move.  A barrier of the ranks tells how
far their cores are apart, which on a virtual machine is another from one minute to the next: a hypervisor puts two
virtual cores on one chip or on two, and small messages take three times as long.  Both are asked in every round of a
case's samples, not once.
"""

from dataclasses import dataclass, field
from statistics import median

from collbench.cases import Case
from collbench.platforms.interface import Platform, Prepared

_BARRIERS = 128  # in a row, some tens of microseconds


@dataclass
class Floor:
    """The ways that a platform knows, and the seconds that each took in every round so far; of a barrier likewise."""

    platform: Platform
    ways: dict[int, Prepared]
    samples: dict[int, list[float]]
    barrier: Prepared | None = None
    barriers: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, case: Case, platform: Platform) -> "Floor":
        """*Collective*: of a case, each way taken once before it counts.

        None where a time is of a part of an operation: messages in flight meet the same bytes again, in caches.
        """
        with platform.team.agreeing():
            ways = dict(enumerate(platform.clock.floor(case))) if case.collective.parts == 1 else {}
        for way in ways.values():
            platform.clock.time(way, 1)
        with platform.team.agreeing():
            barrier = platform.clock.barrier()
        return cls(platform, ways, {number: [] for number in ways}, barrier)

    def sample(self) -> float:
        """*Collective*: take each way once; the seconds that all of it took."""
        taken = 0.0
        if self.barrier:
            seconds = self.platform.clock.time(self.barrier, _BARRIERS)
            self.barriers.append(seconds)
            taken += seconds * _BARRIERS
        for number, way in self.ways.items():
            seconds = self.platform.clock.time(way, 1)
            self.samples[number].append(seconds)
            taken += seconds
        return taken

    @property
    def of_barrier(self) -> float | None:
        """The median seconds of a barrier; None where there is none."""
        return median(self.barriers) if self.barriers else None

    @property
    def seconds(self) -> float | None:
        """The median of the fastest way; None where there is none."""
        return min((median(times) for times in self.samples.values() if times), default=None)
