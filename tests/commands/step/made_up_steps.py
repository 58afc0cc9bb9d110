"""Steps of made-up ranks that leave every collective together: what each computes is all that differs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.commands.step.rows import Series
from collbench.commands.step.stragglers import Finding, Floats, RankStatistics, StepArrays

USUAL = 1e-3  # seconds of computing
LEAVING = 1e-4  # seconds of communication


def series(computing: Floats, late_to_leave: Floats | float = 0.0) -> Series:
    """Of ranks that compute so long, (ranks, steps); `late_to_leave` is by rank, after the collective."""
    ends = np.cumsum(computing.max(axis=0) + LEAVING + np.max(late_to_leave))
    starts = np.concatenate([[0.0], ends[:-1]])
    leave = np.broadcast_to(np.asarray(late_to_leave), (len(computing),))
    done = ends + (leave - leave.max())[:, None]
    begun = np.concatenate([np.zeros((len(computing), 1)), done[:, :-1]], axis=1)
    assert (begun.max(axis=0) <= starts + 1e-12).all()
    return Series(
        (0.0,) * len(computing),
        tuple(map(tuple, (begun + computing).tolist())),
        tuple(map(tuple, np.maximum(done, begun + computing).tolist())),
    )


def quiet(generator: np.random.Generator, ranks: int, steps: int) -> Floats:
    """A per cent of noise, mostly."""
    return USUAL * (1 + 0.01 * np.abs(generator.standard_normal((ranks, steps))))


def disturbed(generator: np.random.Generator, ranks: int, steps: int, share: float = 0.4) -> Floats:
    """The same, and now and then somebody else takes half of a rank's core for tens of milliseconds."""
    computing = quiet(generator, ranks, steps)
    for rank in range(ranks):
        place = 0
        while place < steps:
            calm, busy = generator.exponential(60 * (1 - share)), generator.exponential(60 * share)
            start, place = int(place + calm), int(place + calm + busy) + 1
            computing[rank, start:place] *= generator.uniform(1.2, 2.5)
    return computing


def steps_of(computing: Floats, parts: int = 16, **more: Any) -> StepArrays:
    """In so many series."""
    return StepArrays.of([series(part, **more) for part in np.array_split(computing, parts, axis=1)])


def ranks_that_are(finding: Finding, statistics: Sequence[RankStatistics]) -> list[int]:
    """The ranks of which that is said."""
    return [one.rank for one in statistics if one.finding is finding]
