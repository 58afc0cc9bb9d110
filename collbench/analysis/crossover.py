"""Advantages of one implementation over another, and the sizes where they cross.

Differences count only if the intervals of the rows are apart.  `tradeoffs` compares time and errors of narrow wires.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from collbench.algorithms import apart, find, is_library, libraries
from collbench.cases import Case
from collbench.datatypes import Study, wire_nbytes
from collbench.results import Measurement, Observed, Prediction, Reported, Result, Timed, by_key, family, timed
from collbench.results.collectives import Untimed
from collbench.stats import Estimate
from collbench.units import format_size

STRETCH = 1.5
"""Factor on the 95 % interval.  A summary compares hundreds of pairs.  Without any difference, the intervals of one
pair in two hundred are apart, or more if successive samples are correlated.  With this factor it is one pair in thirty
thousand for independent samples."""

LEAST = 1.05
"""Smallest ratio that counts.  Smaller ones depend on the placement in memory and change from run to run.  The same
code under two names differed by 3 % in one run with intervals apart (1 of 140 pairs, while other programs ran)."""
ONE_PROCESS = (
    "nvls ran in one process for all GPUs, which slows NCCL down; compare with "
    "`mpirun -n GPUS collbench sweep --impl library,paths`"
)
ASSUMED = 0.1  # relative half-width of the interval of another tool's single figure


@dataclass(frozen=True)
class Advantage:
    """The speed ratio of one row over another of the same case, with an interval."""

    nbytes: int
    ratio: Estimate  # the other row's time over this row's: above 1 is faster
    expected: bool = False  # predicted by a model; then the likelier side counts even if bands overlap

    @classmethod
    def of(cls, row: Timed, other: Timed) -> "Advantage":
        """Return the advantage of a row over another; both have times above 0."""
        (fast, slow), (least, most) = span(row), span(other)
        expected = isinstance(row, Prediction) or isinstance(other, Prediction)
        ratio = Estimate(other.typical / row.typical, least / slow, most / fast if fast else math.inf)
        return cls(row.case.nbytes, ratio, expected)

    @property
    def apart(self) -> bool:
        """Whether the intervals are apart, and the difference is not too small."""
        return not self.level and (self.ratio.surely_above(1) or self.ratio.surely_below(1))

    @property
    def level(self) -> bool:
        """Whether the difference is too small to count, however sure it is."""
        return 1 / LEAST < self.ratio.value < LEAST

    @property
    def sign(self) -> int:
        """1 for faster, -1 for slower, 0 for not distinguishable; the likelier side for predictions."""
        if not self.apart and (self.level or not self.expected):
            return 0
        return 1 if self.ratio.value > 1 else -1

    def __str__(self) -> str:
        """Return `3.5x at 8 B`."""
        return f"{self.times} at {format_size(self.nbytes)}"

    @property
    def times(self) -> str:
        """The ratio as text: `3.5x`, `120x`."""
        return format_times(self.ratio.value)


def format_times(ratio: float) -> str:
    """Return a ratio with two digits and without an exponent: `3.5x`, `120x`."""
    return f"{float(f'{ratio:.2g}'):g}x"


def span(row: Timed) -> tuple[float, float]:
    """Return the assumed interval of a row's time in seconds; (0, inf) if unknown."""
    if isinstance(row, Reported) and not row.samples:
        return row.typical / (1 + ASSUMED), row.typical * (1 + ASSUMED)
    low, high = row.band
    if not (math.isfinite(high) and 0 < low <= row.typical <= high):
        return 0.0, math.inf
    if isinstance(row, Prediction):
        return low, high
    return row.typical * (low / row.typical) ** STRETCH, row.typical * (high / row.typical) ** STRETCH


@dataclass(frozen=True)
class Contest:
    """A hand-written implementation against a library, over their common sizes."""

    case: Case  # with the largest size
    library: str
    challenger: str
    points: tuple[Advantage, ...]  # by size, at least two
    lacking: bool = False  # whether only one side has a time at some sizes

    @property
    def crossovers(self) -> list[tuple[int, int]]:
        """Pairs of sizes in bytes with different faster sides; the side is unknown between them."""
        decided = [point for point in self.points if point.sign]
        return [(before.nbytes, after.nbytes) for before, after in pairwise(decided) if before.sign != after.sign]

    @property
    def expected(self) -> bool:
        """Whether a point is predicted, not measured."""
        return any(point.expected for point in self.points)

    @property
    def sure(self) -> bool:
        """Whether the intervals of some size are apart."""
        return any(point.apart for point in self.points)


def contests(results: Sequence[Result | Timed], libraries: Sequence[str]) -> list[Contest]:
    """Return every pair of a library and a hand-written implementation with at least two common sizes.

    Of libraries of one kind (`mpi`, `mpi@openmpi`) the fastest at each size counts. A path (`nccl@registered`) may
    represent its library.
    """
    curves: dict[tuple[Case, str], dict[int, Timed]] = {}
    for row in timed(results):
        curves.setdefault(row.curve, {})[row.case.nbytes] = row
    names = by_key(curves, lambda curve: curve[0])
    pairs = []
    for (kind, challenger), times in curves.items():
        implementation = find(challenger)
        if implementation and implementation.library:
            continue
        # By name: a library with a single path would give the same reference twice.
        references: dict[str, Mapping[int, Timed]] = {}
        for library in libraries:
            alike = [name for _, name in names[kind] if library in (family(name), apart(name)[0])]
            references |= [_reference(library, {name: curves[kind, name] for name in alike})]
        for name, reference in references.items():
            sizes = sorted(times.keys() & reference.keys())
            if len(sizes) > 1:
                points = tuple(Advantage.of(times[size], reference[size]) for size in sizes)
                pairs.append(Contest(times[sizes[-1]].case, name, challenger, points, times.keys() != reference.keys()))
    return pairs


def best_of(every: Iterable[Contest]) -> list[Contest]:
    """Return a contest for each kind of case and library, with the best challenger at each size."""
    groups = by_key(every, lambda contest: (contest.case.kind, contest.library))
    best: list[Contest] = []
    for (_, library), group in groups.items():
        # A sure advantage beats a larger unsure one; sorted ascending, the best of a size stays.
        every_point = chain.from_iterable(contest.points for contest in group)
        ranked = sorted(every_point, key=lambda point: (point.sign, point.ratio))
        points = {point.nbytes: point for point in ranked}
        name = group[0].challenger if len(group) == 1 else "the best kernel"
        largest = max((contest.case for contest in group), key=lambda case: case.nbytes)
        lacking = all(contest.lacking for contest in group)
        joined = Contest(largest, library, name, tuple(points[size] for size in sorted(points)), lacking)

        # A path that is its library's fastest at every size is compared only once.
        if all((other.case, other.points) != (joined.case, joined.points) for other in best):
            best.append(joined)
    return best


def _reference(library: str, members: Mapping[str, Mapping[int, Timed]]) -> tuple[str, Mapping[int, Timed]]:
    """Return the name and the times by size of a library, or of the fastest of several libraries of its kind."""
    if len(members) < 2:
        return next(iter(members.items()), (library, {}))
    every = chain.from_iterable(times.values() for times in members.values())
    return f"the fastest {library}", fastest_by_size(every)


def fastest_by_size(rows: Iterable[Timed]) -> dict[int, Timed]:
    """Return the fastest row of each size in bytes; the first wins a tie."""
    by_size = by_key(rows, lambda row: row.case.nbytes).items()
    return {size: min(alike, key=lambda row: row.typical) for size, alike in by_size}


def library_of(results: Iterable[Result | Timed], libraries: Sequence[str], like: Result | Timed) -> Timed | None:
    """Return the library's time for the case of a result; predictions are compared with predictions.

    The fastest of the first kind of library with a time counts (`mpi`, `mpi@openmpi`).  The later of two
    measurements of a case counts.
    """
    # Only the few rows of the case are judged, since an interval takes a sort.
    alike = (row for row in results if row.case == like.case and family(row.implementation) in libraries)
    same = {row.implementation: row for row in timed(alike) if row.predicted == like.predicted}
    return min(same.values(), key=lambda row: (libraries.index(family(row.implementation)), row.typical), default=None)


def handicaps(results: Iterable[Result | Timed]) -> list[str]:
    """Return the handicaps of libraries in these results, a line for each, to be shown with ratios to them."""
    lines, results = [], list(results)
    for row in results:
        library = find(row.implementation)
        if row.note.shared and library and library.shared_without:
            line = f"when ranks share a GPU, {row.implementation} runs without {library.shared_without}"
            settings = [remark for remark in row.note.remarks if remark not in row.note.brief.remarks]
            if settings:
                line += f", with {', '.join(settings)}"
            lines.append(line)
    for row in timed(results):
        implementation = find(row.note.picked or row.implementation)
        if implementation and implementation.multicast and not isinstance(row, Prediction):
            rival = library_of(results, libraries(), row)
            lines += [ONE_PROCESS] if rival and Advantage.of(row, rival).sign > 0 else []
    return list(dict.fromkeys(lines))


def buffers_in_words(results: Iterable[Result]) -> list[str]:
    """Return a line on allocation and registration of libraries' buffers, if all rows of a library agree."""
    # Rows of an earlier part of a resumed run lack it, and may have had other buffers.
    measured = by_key((row for row in results if not isinstance(row, Untimed)), lambda row: row.implementation)
    by_name = {name: {row.note.buffers for row in rows} for name, rows in measured.items()}
    agreed = by_key([name for name, each in by_name.items() if len(each) == 1], lambda name: min(by_name[name]))
    lines = [f"{buffers} ({', '.join(names)})" for buffers, names in agreed.items() if buffers]
    return [f"buffers: {'; '.join(lines)}"] if lines else []


def rivals(results: Iterable[Result]) -> list[Timed]:
    """Return the results that may be called the fastest, with a time and bytes.

    Implementations that are inexact, or only pick or call others, count only without other results: a picker is as
    fast as its choice, and would win by chance.  A prediction that is only a bound never counts.
    """
    every = [result for result in timed(results) if result.case.nbytes and not result.note.bound]
    return [result for result in every if _exact(result)] or every


def unsure_rivals(results: Iterable[Result]) -> list[Observed]:
    """Return the uncertain results that might be the fastest, mostly disturbed ones, whose times are upper bounds."""
    unsure = (row for row in results if isinstance(row, Observed) and row.right and row.unsure)
    return [row for row in unsure if row.case.nbytes and not row.case.work and _exact(row)]


def _exact(result: Timed) -> bool:
    implementation = find(result.implementation)
    indirect = implementation and implementation.uses()
    return wire_nbytes(result.implementation) is None and not indirect


def in_words(contest: Contest) -> str:
    """Return `ring-flags beats mpi up to 512 B and loses from 2 KiB on: 3x at 8 B, 0.15x at 128 KiB`.

    Without a sure difference, return `ring-flags and mpi are not distinguishable at any size`.
    """
    decided = [point for point in contest.points if point.sign]
    if not decided:
        return f"{contest.challenger} and {contest.library} are not distinguishable at any size"
    first, last = decided[0], decided[-1]
    named = sorted({first, max(decided, key=lambda point: point.ratio), last}, key=lambda point: point.nbytes)

    # Does the faster side change only once, with all indistinguishable sizes at that place?
    at_one_place = False
    if len(contest.crossovers) == 1:
        ((before, after),) = contest.crossovers
        at_one_place = all(point.sign or before < point.nbytes < after for point in contest.points)
    outcome = _outcome(contest, first.sign, last.sign, at_one_place)
    sentence = f"{contest.challenger} {outcome}: {', '.join(map(str, named))}"
    if contest.expected:
        where = _sizes(contest, lambda point: not point.apart)
        overlap = f"only likely at {where}, where the bands overlap" if contest.sure else "all bands overlap"
        return f"{sentence}; {overlap}" if where else sentence
    where = "" if at_one_place else _sizes(contest, lambda point: not point.sign)
    return f"{sentence}; not distinguishable at {where}" if where else sentence


def _outcome(contest: Contest, first: int, last: int, at_one_place: bool) -> str:
    """Return the verbs with their sizes, given the signs of the first and the last decided size."""
    should = ("should " if contest.sure else "will likely ") if contest.expected else ""
    library, ending = contest.library, "" if contest.expected else "s"
    against = {1: f"{should}beat{ending} {library}", -1: f"{should}lose{ending} to {library}"}
    alone = {1: f"win{ending}", -1: f"lose{ending}"}
    if not contest.crossovers:
        where = f"all {len(contest.points)} sizes that can be compared" if contest.lacking else "every size"
        if not all(point.sign for point in contest.points):
            where = _sizes(contest, lambda point: point.sign != 0)
        return f"{against[first]} at {where}"
    if at_one_place:
        ((before, after),) = contest.crossovers
        return f"{against[first]} up to {format_size(before)} and {alone[last]} from {format_size(after)} on"
    wins = _sizes(contest, lambda point: point.sign == first)
    losses = _sizes(contest, lambda point: point.sign == -first)
    return f"{against[first]} at {wins} and {alone[-first]} at {losses}"


def _sizes(contest: Contest, chosen: Callable[[Advantage], bool]) -> str:
    """Return the chosen sizes as `8 B to 2 KiB, 1 MiB`, with ranges of neighbours."""
    parts = []
    for is_chosen, group in groupby(contest.points, chosen):
        members = list(group)
        if is_chosen:
            parts.append(format_span(members[0].nbytes, members[-1].nbytes))
    return ", ".join(parts)


def format_span(first: int, last: int) -> str:
    """Return `8 B to 2 KiB`, or a single size."""
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


class Range(NamedTuple):
    """Neighbouring sizes with the same fastest implementations."""

    first: int
    last: int
    names: tuple[str, ...]  # the fastest, then indistinguishable ones by time

    def __str__(self) -> str:
        """Return `one-shot 8 B to 2 KiB`, `one-shot or two-shot 4 KiB`, `one of 5 (one-shot, two-shot, ...) 8 KiB`."""
        names = " or ".join(self.names)
        if len(self.names) > MOST_NAMED:
            names = f"one of {len(self.names)} ({self.names[0]}, {self.names[1]}, ...)"
        return f"{names} {format_span(self.first, self.last)}"


MOST_NAMED = 3  # implementations


def winners(results: Sequence[Result | Timed], unsure: Sequence[Timed] = ()) -> list[tuple[Case, list[Range]]]:
    """Return the ranges of sizes with their possibly fastest implementations, for each kind of case."""
    every: list[tuple[Case, list[Range]]] = []
    for rows in by_key(timed(results), lambda row: row.case.kind).values():
        ranges: list[Range] = []
        for size, of_size in sorted(by_key(rows, lambda row: row.case.nbytes).items()):
            first, *rest = _unbeaten(of_size)
            rest += [row for row in unsure if row.case == first.case and row.typical < first.typical]
            names = tuple(dict.fromkeys(row.implementation for row in (first, *rest)))
            if ranges and set(ranges[-1].names) == set(names):
                ranges[-1] = ranges[-1]._replace(last=size)
            else:
                ranges.append(Range(size, size, names))
        every.append((first.case, ranges))
    return every


def _unbeaten(of_size: Iterable[Timed]) -> list[Timed]:
    """Return the fastest row of a size, and rows that no row surely beats; the latest of an implementation counts."""
    latest = {row.implementation: row for row in of_size}
    rows = sorted(latest.values(), key=lambda row: row.typical)
    unbeaten = rows[:1]
    for row in rows[1:]:
        if all(Advantage.of(other, row).sign < 1 for other in rows):
            unbeaten.append(row)
    return unbeaten


def fastest_in_words(ranges: Sequence[Range], expected: bool) -> str:
    """Return `fastest: one-shot 8 B to 2 KiB; two-shot 8 KiB to 1 MiB; others may be as fast at 8 KiB`."""
    # Join neighbours while one implementation is the fastest, or indistinguishable from it, in all of them.
    joined: list[Range] = []
    for part in ranges:
        common: tuple[str, ...] = ()
        if joined:
            common = tuple(name for name in joined[-1].names if name in part.names)
        if common:
            joined[-1] = Range(joined[-1].first, part.last, common)
        else:
            joined.append(part)
    sentence = f"{'likely ' if expected else ''}fastest: {'; '.join(map(str, joined))}"

    def has_others(part: Range) -> bool:
        names = next(whole.names for whole in joined if part.last <= whole.last)
        return len(names) < len(part.names)

    level = []
    for others, group in groupby(ranges, has_others):
        members = list(group)
        if others:
            level.append(format_span(members[0].first, members[-1].last))
    return f"{sentence}; others may be as fast at {', '.join(level)}" if level else sentence


Times = Mapping[int, Timed]
"""Results by size in bytes."""


@dataclass(frozen=True)
class Tradeoff:
    """A narrow implementation in one kind of case, with the fastest exact one and the fastest library."""

    case: Case  # with the largest size
    name: str  # of the implementation
    nbytes: float  # on the wire per element
    times: Times
    exact: Times  # of the fastest exact implementations, with libraries
    libraries: Times
    study: Study | None  # None if errors were not measured

    def gain(self, others: Times) -> float | None:
        """Return the ratio of the others' time to this one's at its largest size; None without a time there."""
        size = max(self.times)
        return others[size].typical / self.times[size].typical if size in others else None

    def pays_from(self, others: Times) -> int | None:
        """Return the smallest size from which on this one is always faster; None if there is none."""
        paying = None
        for size in sorted(self.times.keys() & others.keys(), reverse=True):
            if self.times[size].typical >= others[size].typical:
                break
            paying = size
        return paying


def tradeoffs(results: Sequence[Result | Timed]) -> list[Tradeoff]:
    """Return a trade-off for each narrow implementation and kind of case, in the order of the results."""
    kinds = by_key(timed(results), lambda row: row.case.kind)
    every = []
    for (kind, name), curve in by_key(timed(results), lambda row: row.curve).items():
        nbytes = wire_nbytes(name)
        if nbytes is None:
            continue
        times = {row.case.nbytes: row for row in curve}
        exact = fastest_by_size(row for row in kinds[kind] if wire_nbytes(row.implementation) is None)
        libraries = fastest_by_size(row for row in kinds[kind] if is_library(row.implementation))
        studies = (row.errors for row in times.values() if isinstance(row, Measurement) and row.errors)
        case = times[max(times)].case
        every.append(Tradeoff(case, name, nbytes, times, exact, libraries, next(studies, None)))
    return every
