"""From which message size on which implementation wins, and by how much."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collbench.cases import Case
from collbench.implementations import implementations
from collbench.measurement import Prediction, Result, Timed, timed
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
        """Sizes at which the faster one changes: straight lines between neighbours on log-log axes."""
        return [
            math.exp(math.log(size) + math.log(after / size) * math.log(fast) / math.log(fast / later))
            for (size, fast), (after, later) in zip(self.speedups, self.speedups[1:], strict=False)
            if (fast - 1) * (later - 1) < 0
        ]


def contests(results: Sequence[Result | Timed], libraries: Sequence[str]) -> list[Contest]:
    """Every pair of a library and a hand-written implementation with two sizes or more in common."""
    groups: dict[tuple[Case, str], dict[int, Timed]] = {}
    for result in timed(results):
        kind = result.case.kind
        groups.setdefault((kind, result.implementation), {})[result.case.nbytes] = result
    found = []
    for (kind, challenger), times in groups.items():
        for library in libraries:
            reference = groups.get((kind, library), {})
            sizes = sorted(times.keys() & reference.keys())
            if challenger not in libraries and len(sizes) > 1:
                speedups = [(size, reference[size].typical / times[size].typical) for size in sizes]
                found.append(Contest(times[sizes[-1]].case, library, challenger, speedups))
    return found


def library_of(results: Iterable[Result | Timed], libraries: Sequence[str], like: Result | Timed) -> Timed | None:
    """The library's time that a result is compared with: expected if that is, measured if not.

    Of several libraries the first that has a time for the same case, of a case measured twice the later.
    """
    predicted = isinstance(like, Prediction)
    same = [
        result
        for result in timed(results)
        if result.implementation in libraries
        and result.case == like.case
        and isinstance(result, Prediction) == predicted
    ]
    return min(reversed(same), key=lambda result: libraries.index(result.implementation), default=None)


def rivals(results: Iterable[Result]) -> list[Timed]:
    """What has a time and bytes, without implementations that only pick others, unless there is nothing else.

    Those are level with what they pick, and would be called the fastest by chance alone.
    """
    known = implementations()
    every = [result for result in timed(results) if result.case.nbytes]
    own = [each for each in every if each.implementation not in known or not known[each.implementation].uses()]
    return own or every


def in_words(contest: Contest) -> str:
    """`ring-flags beats mpi at every size: 15x at 8 B, 2.8x at 128 MiB`, or where it starts and stops to."""
    first, last = contest.speedups[0], contest.speedups[-1]
    best = max(contest.speedups, key=lambda speedup: speedup[1])
    told = sorted({first, best, last})
    figures = ", ".join(f"{speedup:.2g}x at {format_size(size)}" for size, speedup in told)
    return f"{contest.challenger} {_outcome(contest)}: {figures}"


def _outcome(contest: Contest) -> str:
    wins = [speedup > 1 for _, speedup in contest.speedups]
    places = [f"about {format_size(place)}" for place in contest.crossovers]
    if all(wins) or not any(wins):
        return f"{'beats' if wins[0] else 'loses to'} {contest.library} at every size"
    if len(places) == 1:
        return f"{'beats' if wins[0] else 'loses to'} {contest.library} up to {places[0]} and {_other(wins[0])} above"
    return (
        f"{'beats' if wins[0] else 'loses to'} {contest.library} at the smallest size; "
        f"the faster one changes at {', '.join(places)}"
    )


def _other(winning: bool) -> str:
    return "loses" if winning else "wins"


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
