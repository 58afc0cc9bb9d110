"""The floor of a case: how long all ranks take to move the fewest bytes it must move, measured along with it.

A machine is shared and drifts, so what its memory gives is asked in every round of a case's samples, not once.
"""

from dataclasses import dataclass
from statistics import median

from collbench.cases import Case
from collbench.platforms.roles import Platform, Prepared


@dataclass
class Floor:
    """The ways that a platform knows, and the seconds that each took in every round so far."""

    platform: Platform
    ways: dict[int, Prepared]
    samples: dict[int, list[float]]

    @classmethod
    def of(cls, case: Case, platform: Platform) -> "Floor":
        """*Collective*: of a case, each way taken once before it counts.

        None where a time is of a part of an operation: messages in flight meet the same bytes again, in caches.
        """
        with platform.team.agreeing():
            ways = dict(enumerate(platform.floor(case))) if case.collective.parts == 1 else {}
        for way in ways.values():
            platform.time(way, 1)
        return cls(platform, ways, {number: [] for number in ways})

    def sample(self) -> float:
        """*Collective*: take each way once; the seconds that all of it took."""
        taken = 0.0
        for number, way in self.ways.items():
            seconds = self.platform.time(way, 1)
            self.samples[number].append(seconds)
            taken += seconds
        return taken

    @property
    def seconds(self) -> float | None:
        """The median of the fastest way; None where there is none."""
        return min((median(times) for times in self.samples.values() if times), default=None)
