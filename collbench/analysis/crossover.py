"""From which message size on which implementation wins, and by how much."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collbench.cases import Case
from collbench.implementations import find
from collbench.labels import family
from collbench.measurement import Prediction, Result, timed
from collbench.observed import Timed
from collbench.units import format_size

Speedups = list[tuple[int, float]]
"""(nbytes, the library's time over the other's), by size."""


@dataclass(frozen=True)
class Contest:
    """A hand-written implementation against a library, over the sizes that both have a time for."""

    case: Case  # of the largest size
    library: str
    challenger: str
    speedups: Speedups

    @property
    def crossovers(self) -> list[float]:
        """Sizes at which the faster one changes: straight lines between neighbours on log-log axes.

        Where both take the same time just then, it is at that size, or half way between several.
        """
        places = []
        decided = [number for number, (_, speedup) in enumerate(self.speedups) if speedup != 1]
        for left, right in pairwise(decided):
            (size, fast), (after, later) = self.speedups[left], self.speedups[right]
            if (fast > 1) == (later > 1):
                continue
            if right > left + 1:
                places.append(math.sqrt(self.speedups[left + 1][0] * self.speedups[right - 1][0]))
            else:
                places.append(size * (after / size) ** (math.log(fast) / math.log(fast / later)))
        return places

    @property
    def ties(self) -> list[int]:
        """Sizes at which both take exactly the same time."""
        return [size for size, speedup in self.speedups if speedup == 1]


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
                speedups = [(size, reference[size].typical / times[size].typical) for size in sizes]
                pairs.append(Contest(times[sizes[-1]].case, name, challenger, speedups))
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

    Those are level with what they pick or call, and would be called the fastest by chance alone.
    """
    every = [result for result in timed(results) if result.case.nbytes]
    own = [
        result
        for result in every
        if not ((way := find(result.implementation)) and (way.uses() or way.calls or way.wire))
    ]
    return own or every


def in_words(contest: Contest) -> str:
    """`ring-flags beats mpi at every size: 15x at 8 B, 2.8x at 128 MiB`, or where it starts and stops to."""
    first, last = contest.speedups[0], contest.speedups[-1]
    best = max(contest.speedups, key=lambda speedup: speedup[1])
    told = sorted({first, best, last})
    figures = ", ".join(f"{speedup:.2g}x at {format_size(size)}" for size, speedup in told)
    return f"{contest.challenger} {_outcome(contest)}: {figures}"


def _outcome(contest: Contest) -> str:
    wins = [speedup > 1 for _, speedup in contest.speedups if speedup != 1]
    if not wins:
        return f"is level with {contest.library} at every size"
    verb, other = ("beats", "loses") if wins[0] else ("loses to", "wins")
    places = [f"about {format_size(place)}" for place in contest.crossovers]
    if not places:
        level = " and ".join(map(format_size, contest.ties))
        return f"{verb} {contest.library} at every size" + (f" but {level}, where they are level" if level else "")
    if len(places) == 1:
        return f"{verb} {contest.library} up to {places[0]} and {other} above"
    return f"{verb} {contest.library} at the smallest size; the faster one changes at {', '.join(places)}"


def winners(results: Sequence[Result | Timed]) -> list[tuple[Case, list[tuple[int, int, str]]]]:
    """For each kind of case, who is fastest over which range: (first size, last size, implementation)."""
    best: dict[Case, dict[int, Timed]] = {}
    for result in timed(results):
        sizes = best.setdefault(result.case.kind, {})
        if result.case.nbytes not in sizes or result.typical < sizes[result.case.nbytes].typical:
            sizes[result.case.nbytes] = result
    return [(sizes[max(sizes)].case, _ranges(sizes)) for sizes in best.values()]


def _ranges(winners: Mapping[int, Timed]) -> list[tuple[int, int, str]]:
    """Neighbouring sizes with the same winner as one range."""
    ranges: list[tuple[int, int, str]] = []
    for size, winner in sorted(winners.items()):
        if ranges and ranges[-1][2] == winner.implementation:
            ranges[-1] = (ranges[-1][0], size, winner.implementation)
        else:
            ranges.append((size, size, winner.implementation))
    return ranges
