"""The numbers of runs, by what a text calls them: `{ring-host / ring-flags at 8 B}`.

A title is one of

    A / B at SIZE           how many times as long A took
    A / B at SIZE over B    the ratio at one size over the ratio at another
    A at SIZE               the time of A
    PART of A at SIZE       share of an explanation: launch, waited, moved, added, published; "moved+added": of several
    best at SIZE            the fastest hand-written implementation
    best time at SIZE       the time of that

where A may be `library` (that of the runs), `best`, or a name that a question gives.  Disturbed rows are no numbers.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Self

import msgspec

from collbench.algorithms import find, implementations, libraries
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.lesson import asset, table
from collbench.commands.lesson.content import LessonMachine
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.results import PARTS, Explanation, Measurement, Result, family
from collbench.results.base import Observed, Timed
from collbench.results.disturbed import Scheduling
from collbench.units import format_seconds, parse_size

_TITLE = re.compile(r"\{([^{}]+)\}")
_FACTOR_NEAR, _SHARE_NEAR = 1.5, 0.07  # how far off the nearest choice may be to be called right
LIBRARY, BEST, BEST_TIME = "library", "best", "best time"
_SLOW = 2.0  # times the shortest barrier of a run: the cores are farther apart, as on a virtual machine that moved them
COMMITTED = "two-cores"
"""The place whose numbers stand in for those that could not be measured."""
ONE_STEP = "one-shot-ll"


@dataclass(frozen=True)
class Numbers:
    """The undisturbed all-reduces of runs, by implementation and bytes: with a time, and explained."""

    timed: Mapping[tuple[str, int], Timed]
    explained: Mapping[tuple[str, int], Explanation]
    shares: Mapping[tuple[str, int], Mapping[str, float]]  # of an operation's time, by part
    disturbed: Collection[tuple[str, int]] = ()  # that have no time for this reason
    names: Mapping[str, str] = field(default_factory=dict)  # of implementations, by what a text calls them

    @classmethod
    def of(cls, results: Iterable[Result]) -> Self:
        """Return what right, or predicted, all-reduces say; the last undisturbed one of several counts.

        Where the log made another program of an operation, its shares are not those of the operation.
        """
        timed: dict[tuple[str, int], Timed] = {}
        explained: dict[tuple[str, int], Explanation] = {}
        disturbed = set()
        for result in results:
            if result.case.collective.name != "allreduce" or result.case.work:
                continue
            key = result.implementation, result.case.nbytes
            if result.disturbed:
                if isinstance(result, Observed):
                    disturbed.add(key)
            elif isinstance(result, Explanation):
                explained[key] = result
            elif isinstance(result, Timed) and (result.right or result.predicted):
                timed[key] = result
        shares = {}
        for key, row in explained.items():
            if row.tracks and not row.altered:
                shares[key] = {part: row.share(part) for part in PARTS}
        return cls(timed, explained, shares, disturbed.difference(timed))

    @property
    def library(self) -> str:
        """The name of the library that kernels are compared with; empty if there is none."""
        names = dict.fromkeys(name for name, _ in (*self.timed, *self.explained))
        return next((name for known in libraries() for name in names if family(name) == known), "")

    def curves(self) -> dict[str, dict[int, float]]:
        """Return seconds by implementation and size."""
        found: dict[str, dict[int, float]] = {}
        for (name, nbytes), row in sorted(self.timed.items(), key=lambda item: item[0][1]):
            found.setdefault(name, {})[nbytes] = row.typical
        return found

    def seconds(self, name: str, nbytes: int) -> float:
        """Return the time of an operation: as it was measured, else as it took when it was explained; or KeyError."""
        name = self.best(nbytes) if name == BEST else self.names.get(name, name)
        name = self.library if name == LIBRARY else name
        row = self.timed.get((name, nbytes))
        return row.typical if row else self.explained[name, nbytes].seconds

    def best(self, nbytes: int) -> str:
        """Return the fastest hand-written implementation whose results are exact; KeyError if one was disturbed."""
        times = {name: row.typical for (name, size), row in self.timed.items() if size == nbytes and hand_written(name)}
        if not times or any(size == nbytes and hand_written(name) for name, size in self.disturbed):
            raise KeyError(nbytes)
        return min(times, key=lambda name: times[name])

    def figure(self, title: str) -> float:
        """Return the number of a title: a ratio, a share or seconds; KeyError if the runs have no such thing."""
        words, _, size = title.rpartition(" at ")
        size, _, other = size.partition(" over ")
        if other:
            return self.figure(f"{words} at {size}") / self.figure(f"{words} at {other}")
        nbytes = parse_size(size)
        if " / " in words:
            above, below = (self.seconds(name, nbytes) for name in words.split(" / "))
            return above / below
        what, _, name = words.rpartition(" of ")
        if what:
            return sum(self.shares[name, nbytes][part] for part in what.split("+"))
        return self.seconds(BEST if words == BEST_TIME else name, nbytes)

    def value(self, title: str) -> str:
        """Return what a title says, with its unit; KeyError if the runs have no such thing."""
        words, _, size = title.rpartition(" at ")
        if words == BEST:
            return self.best(parse_size(size))
        number = self.figure(title)
        if " / " in words:
            return ratio(number)
        return f"{number:.0%}" if " of " in words else format_seconds(number)


def judged(results: Iterable[Result]) -> list[Result]:
    """Return the results of a run; those that were measured while barriers were slow count as disturbed."""
    rows = list(results)
    barriers = [(row.case.ranks, row.barrier) for row in rows if isinstance(row, Measurement) and row.barrier]
    for place, row in enumerate(rows):
        # While a barrier takes much longer than usual, the ranks' cores are not where they were.
        shortest = min((seconds for ranks, seconds in barriers if ranks == row.case.ranks), default=math.inf)
        if isinstance(row, Measurement) and row.barrier and row.barrier > _SLOW * shortest:
            rows[place] = replace(row, scheduling=replace(row.scheduling or Scheduling(), off_core=1.0))
    return rows


def hand_written(name: str) -> bool:
    """Return whether it is a rung: no library, not the choice among rungs, and with exact results."""
    found = find(name)
    return bool(found and not found.library and not found.wire and not found.uses())


def ratio(number: float) -> str:
    """Two digits that count."""
    return f"{number:.2f}x" if number < 1 else f"{number:.1f}x" if number < 10 else f"{number:.0f}x"


def nearest(number: float, choices: Sequence[float]) -> int:
    """Return the index of the choice that is nearest as a factor, or, of shares, by difference."""
    if max(choices) <= 1:
        return min(range(len(choices)), key=lambda index: abs(choices[index] - number))
    return min(range(len(choices)), key=lambda index: abs(math.log(choices[index] / number)))


def fitted(number: float, choices: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Return choices such as `5x` or `25%`, and the index of the right one.

    Where none is near the number, the nearest is replaced by the number, rounded.
    """
    # A choice that is called right must be near the number; the nearest is replaced where none is.
    share = choices[0].endswith("%")
    values = [float(choice.rstrip("x%")) / (100 if share else 1) for choice in choices]
    index = nearest(number, values)
    if share and abs(values[index] - number) > _SHARE_NEAR:
        words = f"{round(20 * number) / 20:.0%}"
    elif not share and abs(math.log(values[index] / number)) > math.log(_FACTOR_NEAR):
        words = f"{float(f'{number:.0e}'):g}x"
    else:
        words = choices[index]
    return (*choices[:index], words, *choices[index + 1 :]), index


def filled(text: str, value: Callable[[str], str]) -> str:
    """Return a text with each title in braces replaced by what it says; KeyError where *value* raises it."""
    return _TITLE.sub(lambda match: value(match[1]), text)


def titles(text: str) -> list[str]:
    """Return the titles that stand in braces in a text."""
    return _TITLE.findall(text)


def published() -> Mapping[str, Mapping[str, str]]:
    """Return every published number by its key: its value with its unit, what was measured, and the source."""
    numbers: Mapping[str, Mapping[str, str]] = table("published")["p"]
    return numbers


@cache
def places() -> Mapping[str, LessonMachine]:
    """Return the other machines by their names in the texts (assets/places.json, by tools/lesson_places.py)."""
    return msgspec.json.decode(asset("places.json"), type=dict[str, LessonMachine])


@cache
def numbers_at(place: str) -> Numbers:
    """Return the all-reduces of a place."""
    machine, rows = places()[place], []
    for name, times in machine.curves.items():
        for nbytes, seconds in times.items():
            rows.append(Measurement(allreduce(nbytes, machine.ranks), name, "gpu", launches=1, seconds=(seconds,)))
    shares = {(name, nbytes): parts for name, sizes in machine.shares.items() for nbytes, parts in sizes.items()}
    return replace(Numbers.of(rows), shares=shares)


def allreduce(nbytes: int, ranks: int) -> Case:
    """Return the sum of so many bytes of float."""
    return Case(COLLECTIVES["allreduce"], nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, ranks, False)


def constants_of(measured: Numbers) -> tuple[float, float] | None:
    """Return seconds of a step, and bytes/s of a link: the least time of one step, and the most bytes in a time.

    A step is the least that `one-shot-ll` takes, where it was measured, since it has one.  None if its smallest
    message was disturbed, or every row.
    """
    rows = measured.timed.items()
    single = {nbytes: row.typical for (name, nbytes), row in rows if name == ONE_STEP}
    disturbed = [nbytes for name, nbytes in measured.disturbed if name == ONE_STEP]
    if not rows or min(disturbed, default=math.inf) < min(single, default=math.inf):
        return None
    least = min(single.values() or [row.typical for _, row in rows])

    # The least time is that of a single step, and the best rate that of a link.
    rates = [row.case.nbytes * link_of(name, row.case) / row.typical for (name, _), row in rows]
    return least, max(rates)


def link_of(name: str, case: Case) -> float:
    """Return the bytes through the busiest link for a byte of the array; unknown: those of an ideal ring."""
    implementation = implementations().get(name)
    if implementation and implementation.cost:
        return implementation.cost(case).link
    return case.collective.bus_factor(case.ranks)
