"""Scaling of a training step: efficiency with intervals, a verdict, and remedies.

Ratios are computed round by round of interleaved rows, so that machine drift cancels.  Intervals are those of the
median over rounds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, TypeGuard

from collbench.commands.step.rows import StepParts, StepPrediction, StepRow, StepTimes
from collbench.commands.step.work import STRONG, WEAK, Step, step_of
from collbench.platforms import platforms
from collbench.results import Result
from collbench.stats import Estimate

THRESHOLD = 0.75
"""The lowest efficiency of healthy scaling."""

HEALTHY, POOR, INCONCLUSIVE = "healthy", "poor", "inconclusive"
_LARGER = 4  # factor of the batch, or micro-batches per synchronisation
_MOST_REMEDIES = 3  # in a verdict


def in_rounds(values: Sequence[float], rounds: Sequence[int]) -> list[float]:
    """Return the mean of each round, given the number of values in each; the values themselves without rounds."""
    means, start = [], 0
    for count in rounds or (1,) * len(values):
        means.append(fmean(values[start : start + count]))
        start += count
    return means


def by_round(result: StepRow) -> list[float]:
    """Return the seconds of a step by round, or by series without rounds; a prediction has one value."""
    if isinstance(result, StepPrediction):
        return [result.typical]
    return in_rounds(result.times, result.rounds)


@dataclass(frozen=True)
class Point:
    """A point of a curve: one number of ranks."""

    row: StepRow
    efficiency: Estimate  # relative to the fewest ranks of the curve

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.row.case.ranks


@dataclass(frozen=True)
class ScalingCurve:
    """A step by one implementation on several numbers of ranks, the fewest first."""

    name: str  # of the implementation, as tables show it
    mode: str  # WEAK or STRONG
    points: tuple[Point, ...]

    @property
    def base(self) -> Point:
        """Return the point with the fewest ranks."""
        return self.points[0]

    @property
    def last(self) -> Point:
        """Return the point with the most ranks."""
        return self.points[-1]

    def speedup(self, point: Point) -> Estimate:
        """Return the speed-up over one rank, assuming ideal scaling up to the fewest ranks."""
        return point.efficiency.scaled(point.ranks)


def curves(results: Iterable[Result]) -> list[ScalingCurve]:
    """Return every curve of a scaling run, in the order of its rows; rows without a time are omitted."""
    passes: list[list[StepRow]] = [[]]
    before = 0
    for result in results:
        if isinstance(result.case.work, Step):
            # Ranks go up within a mode, so fewer ranks than before begin the next mode.
            if result.case.ranks < before:
                passes.append([])
            before = result.case.ranks
            if is_timed(result):
                passes[-1].append(result)
    return [curve for rows in passes if rows for curve in _curves_of_pass(rows)]


def is_timed(result: Result) -> TypeGuard[StepRow]:
    """Return whether a row is a step with a time to compare: predicted, or measured, right and undisturbed."""
    measured = isinstance(result, StepTimes) and result.right and not result.disturbed
    return measured or isinstance(result, StepPrediction)


def _curves_of_pass(rows: Sequence[StepRow]) -> Iterator[ScalingCurve]:
    fewest = min(row.case.ranks for row in rows)
    bases = {row.implementation: row for row in rows if row.case.ranks == fewest}
    for name in dict.fromkeys(row.implementation for row in rows if row.case.ranks > fewest):
        # One rank communicates nothing: any implementation's row will do.
        base = bases.get(name, next(iter(bases.values())) if fewest == 1 else None)
        if base is None:
            continue
        more = [row for row in rows if row.implementation == name and row.case.ranks > fewest]
        points = (Point(base, Estimate(1.0, 1.0, 1.0)), *(_point(base, row) for row in more))
        # Older run files do not say the mode: equal work of every rank counts as weak.
        first, last = step_of(base.case), step_of(more[-1].case)
        equal = (first.products, first.seconds) == (last.products, last.seconds)
        yield ScalingCurve(more[0].label, last.mode or (WEAK if equal else STRONG), points)


def share_of(base: StepRow, row: StepRow) -> float:
    """Return the work of a rank relative to the base, which rounding to whole products changes a little."""
    first, step = step_of(base.case), step_of(row.case)
    return step.products / first.products if first.products else step.seconds / first.seconds


def _point(base: StepRow, row: StepRow) -> Point:
    share = share_of(base, row)
    if isinstance(base, StepTimes) and isinstance(row, StepTimes):
        pairs = zip(by_round(base), by_round(row), strict=False)
        return Point(row, Estimate.of_median([share * first / seconds for first, seconds in pairs]))
    low, high = row.band
    # A prediction has no rounds; the longest step is the lowest efficiency.
    return Point(row, Estimate(*(share * base.typical / seconds for seconds in (row.typical, high, low))))


class Remedy(NamedTuple):
    """A change to try, with the efficiency that it would give."""

    words: str
    efficiency: float
    at_best: bool = True  # whether the efficiency may turn out lower


def remedies(alone: float, parts: StepParts, platform: str) -> list[Remedy]:
    """Return all remedies for a step with these *parts*, given the seconds that a rank computes *alone*."""
    computing, waiting, exposed = parts
    kind = platforms().get(platform)
    apart = kind.apart if kind else ""

    def efficiency(computing: float, waiting: float, exposed: float, work: float = 1.0) -> float:
        return work * alone / (computing + waiting + exposed)

    larger_batch = efficiency(_LARGER * computing, _LARGER * waiting, exposed, _LARGER)
    # Waiting for random delays averages out over micro-batches; waiting for a slow rank does not.
    accumulated = efficiency(_LARGER * computing, _LARGER**0.5 * waiting, exposed, _LARGER)
    half_exposed = efficiency(computing, waiting, exposed / 2)  # a bound, as latency is not halved
    return [
        Remedy(f"a batch {_LARGER} times as large on every rank", larger_batch, at_best=False),
        Remedy(f"accumulation of {_LARGER} micro-batches", accumulated),
        Remedy("overlap", efficiency(max(computing, exposed), waiting, 0.0)),
        Remedy("a wire datatype half as wide", half_exposed),
        Remedy("an interconnect twice as fast", half_exposed),
        Remedy("no late rank", efficiency(computing, 0.0, exposed)),
        Remedy(apart or "resources of a lone rank for every rank", efficiency(alone, waiting, exposed)),
    ]


def alone_of(curve: ScalingCurve, point: Point) -> float:
    """Return the seconds that a rank of *point* would compute alone, from its share of the base's work."""
    return curve.base.row.typical * share_of(curve.base.row, point.row)


def helpful_remedies(curve: ScalingCurve) -> list[Remedy]:
    """Return the remedies that raise efficiency at the largest number of ranks, the best first."""
    point = curve.last
    tried = remedies(alone_of(curve, point), point.row.parts, point.row.platform)
    helpful = [remedy for remedy in tried if remedy.efficiency > 1.005 * point.efficiency.value]
    return sorted(helpful, key=lambda remedy: -remedy.efficiency)


def judged(efficiency: Estimate) -> str:
    """Return HEALTHY or POOR if the whole interval is on one side of THRESHOLD, else INCONCLUSIVE."""
    if efficiency.low >= THRESHOLD:
        return HEALTHY
    return POOR if efficiency.surely_below(THRESHOLD) else INCONCLUSIVE


def answer(results: Iterable[Result]) -> list[str]:
    """Return one line: efficiency at the largest number of ranks, its limits, and that nothing overlaps."""
    efficiencies = "; ".join(map(_efficiency_line, curves(results)))
    if not efficiencies:
        return []
    instead = "`collbench step overlap` shows what overlap hides, `collbench train` plans with it"
    return [f"without overlap, {efficiencies}. Each step computes, then communicates: {instead}."]


def verdict(curve: ScalingCurve) -> list[str]:
    """Return lines: the verdict on the largest number of ranks, and remedies unless it is healthy."""
    lines = [_efficiency_line(curve)]
    if all(curve.speedup(point).value < 1 for point in curve.points[1:]):
        lines.append("more ranks do less work per second than one")
    if judged(curve.last.efficiency) == HEALTHY:
        return lines
    remedies = helpful_remedies(curve)[:_MOST_REMEDIES]
    if named := [f"{each.words} ({'at most ' if each.at_best else ''}{each.efficiency:.0%})" for each in remedies]:
        lines.append(f"would raise efficiency: {', '.join(named)}")
    return lines


def _efficiency_line(curve: ScalingCurve) -> str:
    point = curve.last
    speedup, efficiency = curve.speedup(point), point.efficiency
    computing, waiting, exposed = point.row.parts
    whole = computing + waiting + exposed
    base = "" if curve.base.ranks == 1 else f" (assuming ideal scaling to {curve.base.ranks} ranks)"
    remarks = [f"{exposed / whole:.0%} of the step is communication", f"{waiting / whole:.0%} waiting"]
    slower = computing / alone_of(curve, point) - 1
    if slower > 0.02:
        remarks.append(f"computing takes {slower:.0%} longer than alone")
    return (
        f"{curve.name}, {curve.mode}: {point.ranks:,} ranks give {speedup.text(unit='x')}{base}: "
        f"{efficiency.value:.0%}, {judged(efficiency)} (healthy from {THRESHOLD:.0%}); "
        f"{', '.join(remarks)}"
    )
