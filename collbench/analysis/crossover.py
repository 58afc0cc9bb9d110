"""From which message size on which implementation wins, and by how much, as far as the intervals tell them apart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from collbench.algorithms import find
from collbench.analysis.advantage import Advantage
from collbench.cases import Case
from collbench.labels import family
from collbench.measurement import Prediction, Result, timed
from collbench.observed import Timed
from collbench.units import format_size
from collbench.wires import wire_nbytes


@dataclass(frozen=True)
class Contest:
    """A hand-written implementation against a library, over the sizes that both have a time for."""

    case: Case  # of the largest size
    library: str
    challenger: str
    points: tuple[Advantage, ...]  # by size, two or more

    @property
    def crossovers(self) -> list[tuple[int, int]]:
        """Sizes in bytes between which the faster one changes: at both it is known who that is, between them not."""
        decided = [point for point in self.points if point.sign]
        return [(one.nbytes, other.nbytes) for one, other in pairwise(decided) if one.sign != other.sign]

    @property
    def expected(self) -> bool:
        """Whether a model says so, and nobody measured it."""
        return any(point.expected for point in self.points)


def contests(results: Sequence[Result | Timed], libraries: Sequence[str]) -> list[Contest]:
    """Every pair of a library and a hand-written implementation with two sizes or more in common.

    Of libraries of one kind (`mpi`, `mpi@openmpi`) the fastest at each size is the opponent.
    """
    groups: dict[tuple[Case, str], dict[int, Timed]] = {}
    for result in timed(results):
        kind = result.case.kind
        groups.setdefault((kind, result.implementation), {})[result.case.nbytes] = result
    pairs = []
    for (kind, challenger), times in groups.items():
        for library in libraries:
            name, reference = _opponent(kind, library, groups)
            sizes = sorted(times.keys() & reference.keys())
            if _hand_written(challenger) and len(sizes) > 1:
                points = tuple(Advantage.of(times[size], reference[size]) for size in sizes)
                pairs.append(Contest(times[sizes[-1]].case, name, challenger, points))
    return pairs


def _hand_written(name: str) -> bool:
    """Also what another tool ran by a name that nobody here knows."""
    way = find(name)
    return way is None or not way.library


def _opponent(
    kind: Case, library: str, groups: Mapping[tuple[Case, str], Mapping[int, Timed]]
) -> tuple[str, Mapping[int, Timed]]:
    """The name and the times, by size, of a library; of several of its kind the fastest at each size."""
    members = {name: times for (case, name), times in groups.items() if case == kind and family(name) == library}
    if len(members) < 2:
        return next(iter(members.items()), (library, {}))
    sizes = {size for times in members.values() for size in times}
    every = {size: [times[size] for times in members.values() if size in times] for size in sizes}
    return f"the fastest {library}", {size: min(those, key=lambda one: one.typical) for size, those in every.items()}


def library_of(results: Iterable[Result | Timed], libraries: Sequence[str], like: Result | Timed) -> Timed | None:
    """The library's time that a result is compared with: expected if that is, measured if not.

    Of several libraries the first that has a time for the same case, and the fastest of its kind (`mpi`,
    `mpi@openmpi`); of a case measured twice the later.
    """
    predicted = isinstance(like, Prediction)
    same = {
        result.implementation: result
        for result in timed(results)
        if family(result.implementation) in libraries
        and result.case == like.case
        and isinstance(result, Prediction) == predicted
    }
    return min(
        same.values(),
        key=lambda result: (libraries.index(family(result.implementation)), result.typical),
        default=None,
    )


def rivals(results: Iterable[Result]) -> list[Timed]:
    """What has a time and bytes, without what is not exact, or only picks or calls others, unless that is all.

    Those are level with what they pick or call, and would be called the fastest by chance alone.  A prediction that is
    a bound is never one: nothing measured stands behind it.
    """
    every = [result for result in timed(results) if result.case.nbytes and not result.note.bound]
    own = [result for result in every if not _indirect(result.implementation)]
    return own or every


def _indirect(name: str) -> bool:
    """Whether an implementation is not exact, or only picks or calls others."""
    way = find(name)
    return wire_nbytes(name) is not None or bool(way and (way.uses() or way.calls))


def in_words(contest: Contest) -> str:
    """`ring-flags beats mpi up to 512 B and loses from 2 KiB on: 3x at 8 B, 0.15x at 128 KiB`.

    What the intervals do not tell apart is neither: `ring-flags and mpi are not told apart at any size`.
    """
    verbs = _EXPECTED if contest.expected else _MEASURED
    decided = [point for point in contest.points if point.sign]
    if not decided:
        return f"{contest.challenger} and {contest.library} are not told apart at any size"
    first, last = decided[0], decided[-1]
    told = sorted({first, max(decided, key=lambda point: point.ratio), last}, key=lambda point: point.nbytes)
    words = f"{contest.challenger} {_outcome(contest, decided, verbs)}: {', '.join(map(str, told))}"
    return f"{words}{_doubt(contest)}"


class _Verbs(NamedTuple):
    first: Mapping[int, str]  # by sign
    second: Mapping[int, str]


_MEASURED = _Verbs({1: "beats", -1: "loses to"}, {1: "wins", -1: "loses"})
_EXPECTED = _Verbs({1: "should beat", -1: "should lose to"}, {1: "win", -1: "lose"})


def _outcome(contest: Contest, decided: Sequence[Advantage], verbs: _Verbs) -> str:
    first, last, rival = decided[0].sign, decided[-1].sign, contest.library
    verb, other = verbs.first[first], verbs.second[-first]
    if not contest.crossovers:
        every = len(decided) == len(contest.points)
        return f"{verb} {rival} at {'every size' if every else _sizes(contest, lambda point: point.sign != 0)}"
    if _at_one_place(contest):
        ((before, after),) = contest.crossovers
        return f"{verb} {rival} up to {format_size(before)} and {verbs.second[last]} from {format_size(after)} on"
    wins = _sizes(contest, lambda point: point.sign == first)
    losses = _sizes(contest, lambda point: point.sign == -first)
    return f"{verb} {rival} at {wins} and {other} at {losses}"


def _at_one_place(contest: Contest) -> bool:
    """Whether the faster one changes once, and all sizes that are not told apart are there."""
    if len(contest.crossovers) != 1:
        return False
    ((before, after),) = contest.crossovers
    return all(point.sign or before < point.nbytes < after for point in contest.points)


def _doubt(contest: Contest) -> str:
    """Where nobody can tell, if that was not said."""
    if contest.expected:
        where = _sizes(contest, lambda point: not point.apart)
        return f"; the bands overlap at {where}" if where else ""
    where = "" if _at_one_place(contest) else _sizes(contest, lambda point: not point.sign)
    return f"; not told apart at {where}" if where else ""


def _sizes(contest: Contest, chosen: Callable[[Advantage], bool]) -> str:
    """`8 B to 2 KiB, 1 MiB`: the sizes that are chosen, neighbours as one range."""
    parts = []
    for taken, group in groupby(contest.points, chosen):
        members = list(group)
        if taken:
            parts.append(format_span(members[0].nbytes, members[-1].nbytes))
    return ", ".join(parts)


def format_span(first: int, last: int) -> str:
    """`8 B to 2 KiB`, or the one size."""
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


class Range(NamedTuple):
    """Neighbouring sizes at which the same are fastest."""

    first: int
    last: int
    names: tuple[str, ...]  # the fastest, then those that are not told apart from it, by time

    def __str__(self) -> str:
        """`one-shot 8 B to 2 KiB`; `one-shot or two-shot 4 KiB`; `one of 5 (one-shot, two-shot, ...) 8 KiB`."""
        names = (
            f"one of {len(self.names)} ({self.names[0]}, {self.names[1]}, ...)" if len(self.names) > MOST_NAMED else ""
        )
        return f"{names or ' or '.join(self.names)} {format_span(self.first, self.last)}"


MOST_NAMED = 3  # as perhaps the fastest


def winners(results: Sequence[Result | Timed]) -> list[tuple[Case, list[Range]]]:
    """For each kind of case, who is fastest over which range of sizes, and who may as well be."""
    sizes: dict[Case, dict[int, dict[str, Timed]]] = {}
    for result in timed(results):
        sizes.setdefault(result.case.kind, {}).setdefault(result.case.nbytes, {})[result.implementation] = result
    every: list[tuple[Case, list[Range]]] = []
    for of_kind in sizes.values():
        rows = {size: sorted(of_kind[size].values(), key=lambda row: row.typical) for size in sorted(of_kind)}
        every.append((rows[max(rows)][0].case, _ranges({size: _fastest(those) for size, those in rows.items()})))
    return every


def _fastest(rows: Sequence[Timed]) -> tuple[str, ...]:
    """Of rows of a case by time: the first, and those that are not told apart from it; of predictions the first."""
    first, *rest = rows
    return (first.implementation, *(row.implementation for row in rest if not Advantage.of(first, row).sign))


def _ranges(fastest: Mapping[int, tuple[str, ...]]) -> list[Range]:
    """Neighbouring sizes with the same names, in whatever order, as one range."""
    ranges: list[Range] = []
    for size, names in fastest.items():
        if ranges and set(ranges[-1].names) == set(names):
            ranges[-1] = ranges[-1]._replace(last=size)
        else:
            ranges.append(Range(size, size, names))
    return ranges


def fastest_in_words(case: Case, ranges: Sequence[Range], expected: bool) -> str:
    """`fastest, allreduce, float, sum, 2 ranks: one-shot 8 B to 2 KiB; one-shot or two-shot 8 KiB`."""
    return f"{'likely ' if expected else ''}fastest, {case.title}: {'; '.join(map(str, ranges))}"
