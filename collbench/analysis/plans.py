"""What plans of a training run say: the best layout, how it scales, what an interconnect or money buys."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from collbench.results import PlannedStep, by_key, words
from collbench.results.base import CaseResult
from collbench.units import (
    counted,
    digits,
    format_count,
    format_figure,
    format_interval,
    format_rounded,
    format_seconds,
    unit_of,
)

LEVELS = (0.9, 0.8, 0.7)
"""Efficiencies below which a scaling may fall."""
UNHIDDEN = ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel", "data_parallel")
"""Parts of a step that are communication."""


def planned(results: Iterable[CaseResult], purpose: str) -> list[PlannedStep]:
    """Return the plans of that purpose, in their order."""
    return [row for row in results if isinstance(row, PlannedStep) and row.purpose == purpose]


def rate(row: PlannedStep) -> float:
    """Return the tokens of a GPU and second."""
    return row.tokens / row.gpus / row.typical


def communication(row: PlannedStep) -> float:
    """Return the fraction of a step that is exposed communication."""
    return sum(row.parts.get(part, 0.0) for part in UNHIDDEN) / row.typical


class Scaled(NamedTuple):
    """The plans of a system by their number of GPUs, and the rate of the first."""

    system: str
    rows: tuple[PlannedStep, ...]
    base: float  # tokens of a GPU and second

    def efficiency(self, row: PlannedStep, seconds: float | None = None) -> float:
        """Return the efficiency of a plan, or of a plan whose step takes so many seconds; infinite for no time."""
        spent = row.typical if seconds is None else seconds
        return row.tokens / row.gpus / spent / self.base if spent > 0 else math.inf


def scaled(rows: Sequence[PlannedStep]) -> list[Scaled]:
    """Return the plans by system, for systems with several numbers of GPUs; of each number the plan of most tokens."""
    found = []
    for system, of_system in by_key(rows, lambda row: row.system).items():
        best = {gpus: max(alike, key=rate) for gpus, alike in by_key(of_system, lambda row: row.gpus).items()}
        counts = sorted(best)
        if len(counts) > 1:
            found.append(Scaled(system, tuple(best[count] for count in counts), rate(best[counts[0]])))
    return found


def leaving(scaling: Scaled) -> dict[float, float | None]:
    """Return for each of LEVELS the number of GPUs at which a scaling falls below it for good; None if it does not.

    Between two sizes it is straight against the logarithm of the GPUs.
    """
    points = [(row.gpus, scaling.efficiency(row)) for row in scaling.rows]
    found: dict[float, float | None] = {}
    for level in LEVELS:
        last = max(place for place, (_, value) in enumerate(points) if value >= level or place == 0)
        found[level] = None
        if last + 1 < len(points):
            (gpus, high), (more, low) = points[last], points[last + 1]
            share = (high - level) / (high - low) if high > low else 0.0
            found[level] = math.exp(math.log(gpus) + share * math.log(more / gpus))
    return found


def front(rows: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Return the Pareto front: plans than which none is as fast and cheaper, or as cheap and faster; fastest first."""
    best: list[PlannedStep] = []
    for row in sorted(rows, key=lambda row: (row.seconds, row.cost)):
        if not best or row.cost < best[-1].cost:
            best.append(row)
    return best


def cheapest(rows: Sequence[PlannedStep], deadline: float) -> PlannedStep | None:
    """Return the cheapest plan whose run is done in so many seconds."""
    return min((row for row in rows if row.seconds <= deadline), key=lambda row: row.cost, default=None)


def certain_digits(row: PlannedStep) -> int:
    """Return how many digits the band of a plan's step leaves of all that is in proportion to it."""
    low, high = row.band
    return digits((high - low) / 2 / row.typical)


def duration_text(row: PlannedStep) -> str:
    """Return how long the run of a plan takes and its band, as `24 days (22 .. 29)`: digits as the band leaves them."""
    scale, unit = unit_of(row.seconds)
    form = partial(format_rounded, count=certain_digits(row))
    low, high = (end / row.typical * row.seconds / scale for end in row.band)
    return f"{form(row.seconds / scale)} {unit}{format_interval(low, high, form)}"


def cost_text(row: PlannedStep) -> str:
    """Return what a plan's run costs and its band, as `1.2 M USD (1 M .. 1.4 M)`, with as many digits."""
    form = partial(format_count, count=certain_digits(row))
    low, high = (end / row.typical * row.cost for end in row.band)
    return " ".join(filter(None, (form(row.cost), row.currency))) + format_interval(low, high, form)


FAILURES = 419 / (16_384 * 54 * 86_400)
"""Failures of a GPU in a second, with its part of all else: unexpected interruptions of Llama 3 405B on H100 in 54
days (arXiv:2407.21783, section 3.3.4)."""
RESTART = 600.0
"""Seconds until a job runs again: detection and diagnosis of MegaScale take less (arXiv:2402.15627, section 6.3)."""


class Restarts(NamedTuple):
    """Failures that a run has to expect, and what they cost with checkpoints as often as is best."""

    failures: float
    between: float  # seconds from one to the next
    every: float  # seconds from one checkpoint to the next
    lost: float  # seconds of checkpoints, of steps done again and of restarts, for each second of steps


def restarts(row: PlannedStep, checkpoint: float) -> Restarts:
    """Return what failures do to a plan's run, whose checkpoints hold it up for so many seconds.

    Sources: Young 1974 for the time between checkpoints, the square root of 2 x checkpoint x time between failures;
    Daly 2006 for what is lost: to first order half of that time at each failure, and the restart.
    """
    between = 1 / (FAILURES * row.gpus)
    every = math.sqrt(2 * checkpoint * between)
    return Restarts(row.seconds / between, between, every, checkpoint / every + (every / 2 + RESTART) / between)


def verdicts(results: Sequence[CaseResult]) -> list[str]:
    """Return what the plans say, in sentences that begin with `predicted`."""
    layouts, scale, systems, costs = (planned(results, name) for name in ("layout", "scale", "interconnect", "cost"))
    priced = [row for row in costs if row.price > 0]
    return [*_first(layouts), *map(_scales, scaled(scale)), *_differs(systems), *_costs(priced)]


def _first(rows: Sequence[PlannedStep]) -> Iterator[str]:
    if not rows:
        return
    best = rows[0]
    low, high = (format_seconds(end) for end in best.band)
    spent = {part: seconds for part, seconds in best.parts.items() if part != "computing" and seconds > 0}
    most = max(spent, key=lambda part: spent[part], default="")
    other = f"; besides computing, most goes to {words(most)}, {spent[most] / best.typical:.1%}" if most else ""
    yield (
        f"predicted: {best.implementation} comes first of the {counted(len(rows), 'layout')} shown, "
        f"{format_seconds(best.typical)} a step ({low} to {high}), MFU {best.utilisation:.0%}{other}"
    )
    level = [row for row in rows if row is not best and row.low / row.tokens <= best.typical / best.tokens]
    if level:
        which = "all others" if len(level) == len(rows) - 1 else f"{len(level):,} of the others"
        yield f"predicted: {which} may be as fast, by their bands"


def _scales(scaling: Scaled) -> str:
    first, last = scaling.rows[0], scaling.rows[-1]
    ratio = f"{counted(last.gpus, 'GPU')} keep {scaling.efficiency(last):.0%} of the rate of {first.gpus:,}"
    parts = [f"predicted: on {scaling.system}, {ratio}"]
    for level, gpus in leaving(scaling).items():
        if gpus:
            parts.append(f"less than {level:.0%} beyond about {gpus:,.0f}")
    return ", ".join(parts)


def _differs(rows: Sequence[PlannedStep]) -> Iterator[str]:
    best = min(rows, key=lambda row: row.typical / row.tokens, default=None)
    for row in rows:
        if best and row.system != best.system:
            more = format_figure(row.typical / row.tokens / (best.typical / best.tokens))
            yield (
                f"predicted: a token takes {more}x as long on {row.system} as on {best.system}; "
                f"communication takes {communication(row):.0%} of a step there, {communication(best):.0%} here"
            )


def _costs(rows: Sequence[PlannedStep]) -> Iterator[str]:
    best = front(rows)
    if not best:
        return
    ends = [("fastest", best[0]), ("cheapest", best[-1])] if len(best) > 1 else [("best", best[0])]
    parts = []
    for name, row in ends:
        what = f"{counted(row.gpus, 'GPU')} of {row.system}"
        parts.append(f"{name} are {what}: {duration_text(row)} for {cost_text(row)}")
    yield f"predicted: {'; '.join(parts)}"
