"""What would make a step scale better, and to which efficiency: one record a remedy, computed from the step's parts."""

from collections.abc import Callable
from dataclasses import dataclass

from collbench.analysis.scaling.points import Curve, Point, share_of
from collbench.platforms import platforms

_FACTOR = 4  # times the batch, or micro-batches between two synchronisations


@dataclass(frozen=True)
class Parts:
    """Seconds of a step: what it would compute alone, what it computes, waits and communicates beside others."""

    alone: float
    computing: float
    waiting: float
    exposed: float

    def efficiency(self, computing: float, waiting: float, exposed: float, work: float = 1.0) -> float:
        """With other parts, and so many times the work."""
        return work * self.alone / (computing + waiting + exposed)


@dataclass(frozen=True)
class Remedy:
    """Something to try."""

    words: str
    efficiency: Callable[[Parts], float]
    at_best: bool = False  # whether it reaches no more than that, and perhaps less


REMEDIES = (
    Remedy(
        f"a batch {_FACTOR} times as large on every rank",
        lambda own: own.efficiency(_FACTOR * own.computing, _FACTOR * own.waiting, own.exposed, _FACTOR),
    ),
    Remedy(
        f"accumulation of {_FACTOR} micro-batches",
        lambda own: own.efficiency(_FACTOR * own.computing, _FACTOR**0.5 * own.waiting, own.exposed, _FACTOR),
        at_best=True,  # waits of independent micro-batches average out; those of a slow rank do not
    ),
    Remedy(
        "overlap",
        lambda own: own.efficiency(max(own.computing, own.exposed), own.waiting, 0.0),
        at_best=True,  # the longer of the two is left
    ),
    Remedy(
        "a wire half as wide",
        lambda own: own.efficiency(own.computing, own.waiting, own.exposed / 2),
        at_best=True,  # latency stays
    ),
    Remedy(
        "an interconnect twice as fast",
        lambda own: own.efficiency(own.computing, own.waiting, own.exposed / 2),
        at_best=True,
    ),
    Remedy("no rank later than another", lambda own: own.efficiency(own.computing, 0.0, own.exposed), at_best=True),
)


def apart(platform: str) -> Remedy:
    """What ranks lack there that compute more slowly beside others."""
    kind = platforms().get(platform)
    words = kind.apart if kind else ""
    return Remedy(
        words or "as much for every rank as one alone has",
        lambda own: own.efficiency(own.alone, own.waiting, own.exposed),
        at_best=True,
    )


def parts(curve: Curve, point: Point) -> Parts:
    """Of a point of the curve; alone, a rank computes its share of what one of the base does."""
    row = point.row
    alone = curve.base.row.typical * share_of(curve.base.row, row)
    return Parts(alone, row.computing(), row.waiting(), row.exposed())


def remedies(curve: Curve, point: Point) -> list[tuple[Remedy, float]]:
    """What helps, with the efficiency that it would bring, the most first."""
    own = parts(curve, point)
    tried = [(remedy, remedy.efficiency(own)) for remedy in (*REMEDIES, apart(point.row.platform))]
    helpful = [(remedy, value) for remedy, value in tried if value > 1.005 * point.efficiency.value]
    return sorted(helpful, key=lambda pair: -pair[1])
