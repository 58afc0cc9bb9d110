"""Rows of a scaling as curves: for every number of ranks the speedup over the fewest, with an interval.

Ratios are taken round by round of those that took turns, so that drift of the machine cancels; the interval is that of
their median.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from collbench.analysis.rounds import Estimate, by_round, estimated
from collbench.cases import STRONG, WEAK
from collbench.results import Result, StepPrediction, StepRow, StepTimes


@dataclass(frozen=True)
class Point:
    """A number of ranks on a curve."""

    row: StepRow
    efficiency: Estimate  # over the fewest ranks of the curve
    rounds: tuple[float, ...] = ()  # the efficiencies that it is the median of

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.row.case.ranks


@dataclass(frozen=True)
class Curve:
    """A step by one implementation on several numbers of ranks, the fewest first."""

    name: str  # of the implementation, as people are shown it
    mode: str  # WEAK or STRONG
    points: tuple[Point, ...]

    @property
    def base(self) -> Point:
        """The fewest ranks."""
        return self.points[0]

    @property
    def last(self) -> Point:
        """The most."""
        return self.points[-1]

    @cached_property
    def more(self) -> Sequence[Point]:
        """All but the fewest."""
        return self.points[1:]

    def speedup(self, point: Point) -> Estimate:
        """How many times as much a second as on one rank, taking the fewest for perfect."""
        return point.efficiency.times(point.ranks)

    def relative(self, point: Point) -> float:
        """Ranks of a point over the fewest."""
        return point.ranks / self.base.ranks


def curves(results: Iterable[Result]) -> list[Curve]:
    """Every curve of a scaling's rows, in their order; rows without a time are left out."""
    return [curve for rows in _passes(results) for curve in _of_pass(rows)]


def _passes(results: Iterable[Result]) -> Iterator[list[StepRow]]:
    """Rows that took turns: from the fewest ranks to the most, of one mode."""
    rows: list[StepRow] = []
    before = 0
    for result in results:
        if not result.case.step:
            continue
        if result.case.ranks < before and rows:
            yield rows
            rows = []
        before = result.case.ranks
        if isinstance(result, StepPrediction) or (
            isinstance(result, StepTimes) and result.right and not result.disturbed
        ):
            rows.append(result)
    if rows:
        yield rows


def _of_pass(rows: Sequence[StepRow]) -> Iterator[Curve]:
    """One for each implementation that was carried out on more than the fewest ranks."""
    fewest = min(row.case.ranks for row in rows)
    bases = {row.implementation: row for row in rows if row.case.ranks == fewest}
    names = dict.fromkeys(row.implementation for row in rows if row.case.ranks > fewest)
    for name in names:
        base = bases.get(name) or (next(iter(bases.values())) if fewest == 1 else None)
        if base is None:
            continue
        own = [row for row in rows if row.implementation == name and row.case.ranks > fewest]
        mode = _mode(base, own[-1])
        more = (_point(base, row) for row in own)
        yield Curve(own[0].label, mode, (Point(base, Estimate(1.0, 1.0, 1.0)), *more))


def _mode(base: StepRow, row: StepRow) -> str:
    """As the run file says.  Older ones do not: there as much work of every rank counts as weak."""
    first, last = base.case.step, row.case.step
    assert first
    assert last
    if last.mode:
        return last.mode
    return WEAK if (first.products, first.seconds) == (last.products, last.seconds) else STRONG


def share_of(base: StepRow, row: StepRow) -> float:
    """The work of a rank over that of a rank in the base: products are whole, so that not every number divides them."""
    first, own = base.case.step, row.case.step
    assert first
    assert own
    return own.products / first.products if first.products else own.seconds / first.seconds


def _point(base: StepRow, row: StepRow) -> Point:
    share = share_of(base, row)
    if isinstance(base, StepTimes) and isinstance(row, StepTimes):
        ratios = [share * first / own for first, own in zip(by_round(base), by_round(row), strict=False)]
        return Point(row, estimated(ratios), tuple(ratios))
    low, high = row.band
    return Point(row, Estimate(*(share * base.typical / seconds for seconds in (row.typical, high, low))))
