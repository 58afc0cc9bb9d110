"""What a training job yields: the loss of its weights when they were there, and what every rank did meanwhile."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from collbench.flaws import Flaw
from collbench.note import NO_NOTE, Note
from collbench.observed import CaseResult


class Point(NamedTuple):
    """Weights that all ranks shared."""

    batches: int  # that went into them, of all ranks
    seconds: float  # after the start
    loss: float  # on samples that nobody learnt from


@dataclass(frozen=True)
class Trained(CaseResult):
    """One checked training run; of a style of synchronisation, which stands for the implementation."""

    platform: str
    points: tuple[Point, ...]  # from the first weights to the last
    seconds: float  # until the last update
    steps: tuple[int, ...]  # of every rank, those that went into the weights
    computing: tuple[float, ...]  # seconds of every rank, for those steps
    age: float = 0.0  # of a gradient, the mean: updates between reading the weights and changing them
    mismatch: Flaw | None = None
    note: Note = field(default=NO_NOTE, kw_only=True)

    @property
    def wrong(self) -> str:
        """What the check says against it."""
        return str(self.mismatch or "")

    @property
    def right(self) -> bool:
        """Whether it has figures, which what is wrong has not."""
        return bool(self.points) and not self.mismatch

    @property
    def rate(self) -> float:
        """Samples learnt from in a second, by all ranks together."""
        assert self.case.job
        return sum(self.steps) * self.case.job.batch / self.seconds

    @property
    def least(self) -> float:
        """The lowest loss at any point; NaN counts as none."""
        return min((point.loss for point in self.points if point.loss == point.loss), default=math.inf)

    def reached(self, target: float) -> Point | None:
        """Where the loss is first as low as that, between two points on a line; None if it never is."""
        if self.points and self.points[0].loss <= target:
            return self.points[0]
        for before, after in pairwise(self.points):
            if before.loss > target >= after.loss:
                share = (before.loss - target) / (before.loss - after.loss)
                batches = before.batches + share * (after.batches - before.batches)
                return Point(round(batches), before.seconds + share * (after.seconds - before.seconds), target)
        return None
