"""Numbers of runs by titles in texts, such as `{ring-host / ring-flags at 8 B}`.

A title is one of

    A / B at SIZE           the time of A over that of B
    A / B at SIZE over B    the ratio at one size over the ratio at another
    A at SIZE               the time of A
    PART of A at SIZE       a share of an explanation: launch, waited, moved, added, published, or a sum: "moved+added"
    best at SIZE            the fastest hand-written implementation
    best time at SIZE       its time

where A may be `library` (of the runs), `best`, or a name that a question gives.  Disturbed rows are not used.
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
_FACTOR_NEAR, _SHARE_NEAR = 2.0, 0.1  # largest deviation of a right choice from the number
LIBRARY, BEST, BEST_TIME = "library", "best", "best time"
_WIDE = 2.0  # no time to teach: an interval, or a barrier over the shortest of its run (a VM's cores moved apart)
COMMITTED = "two-cores"
"""The place that replaces missing numbers."""
EARLIER = "one-h100-before"
"""The place `one-h100` in its first run, for a comparison only."""
ONE_STEP = "one-shot-ll"


@dataclass(frozen=True)
class Numbers:
    """The undisturbed all-reduces of runs, timed and explained, by implementation and bytes."""

    timed: Mapping[tuple[str, int], Timed]
    explained: Mapping[tuple[str, int], Explanation]
    shares: Mapping[tuple[str, int], Mapping[str, float]]  # of an operation's time, by part
    disturbed: Collection[tuple[str, int]] = ()  # without an undisturbed time
    names: Mapping[str, str] = field(default_factory=dict)  # of implementations, by their names in a text

    @classmethod
    def of(cls, results: Iterable[Result]) -> Self:
        """Return the numbers of right or predicted all-reduces; of several, the last undisturbed one counts.

        Operations that the log altered have no shares.
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
        """The library to compare kernels with; empty if there is none."""
        names = dict.fromkeys(name for name, _ in (*self.timed, *self.explained))
        return next((name for known in libraries() for name in names if family(name) == known), "")

    def curves(self) -> dict[str, dict[int, float]]:
        """Return seconds by implementation and size."""
        curves: dict[str, dict[int, float]] = {}
        for (name, nbytes), row in sorted(self.timed.items(), key=lambda item: item[0][1]):
            curves.setdefault(name, {})[nbytes] = row.typical
        return curves

    def seconds(self, name: str, nbytes: int) -> float:
        """Return the time of an operation, measured or else explained; KeyError if there is none."""
        name = self.best(nbytes) if name == BEST else self.names.get(name, name)
        name = self.library if name == LIBRARY else name
        row = self.timed.get((name, nbytes))
        return row.typical if row else self.explained[name, nbytes].seconds

    def best(self, nbytes: int) -> str:
        """Return the fastest hand-written implementation with exact results; KeyError if one was disturbed."""
        times = {name: row.typical for (name, size), row in self.timed.items() if size == nbytes and hand_written(name)}
        if not times or any(size == nbytes and hand_written(name) for name, size in self.disturbed):
            raise KeyError(nbytes)
        return min(times, key=lambda name: times[name])

    def figure(self, title: str) -> float:
        """Return the number of a title: a ratio, a share or seconds; KeyError if the runs lack it."""
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
        """Return the value of a title as text with its unit; KeyError if the runs lack it."""
        words, _, size = title.rpartition(" at ")
        if words == BEST:
            return self.best(parse_size(size))
        number = self.figure(title)
        if " / " in words:
            return ratio(number)
        return f"{number:.0%}" if " of " in words else format_seconds(number)


def judged(results: Iterable[Result]) -> list[Result]:
    """Return the results of a run; slow barriers and times with wide intervals are marked as disturbed."""
    rows = list(results)
    barriers = [(row.case.ranks, row.barrier) for row in rows if isinstance(row, Measurement) and row.barrier]
    for place, row in enumerate(rows):
        if not isinstance(row, Measurement):
            continue
        shortest = min((seconds for ranks, seconds in barriers if ranks == row.case.ranks), default=math.inf)
        low, high = row.band  # NaN if unknown, which is not wide
        if (row.barrier or 0) > _WIDE * shortest or high > _WIDE * low:
            rows[place] = replace(row, scheduling=replace(row.scheduling or Scheduling(), off_core=1.0))
    return rows


def hand_written(name: str) -> bool:
    """Return whether an implementation is a rung with exact results, neither a library nor a choice among rungs."""
    known = find(name)
    return bool(known and not known.library and not known.wire and not known.uses())


def ratio(number: float) -> str:
    """Return a ratio as text with two significant digits."""
    return f"{number:.2f}x" if number < 1 else f"{number:.1f}x" if number < 10 else f"{number:.0f}x"


def nearest(number: float, choices: Sequence[float]) -> int:
    """Return the index of the nearest choice: by difference for shares, else by factor."""
    if max(choices) <= 1:
        return min(range(len(choices)), key=lambda index: abs(choices[index] - number))
    return min(range(len(choices)), key=lambda index: abs(math.log(choices[index] / number)))


def fitted(number: float, choices: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Return choices such as `5x` or `25%`, and the index of the right one.

    If none is near the number, the rounded number replaces the nearest choice.
    """
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
    """Return a text with each title in braces replaced by its value; KeyError where *value* raises it."""
    return _TITLE.sub(lambda match: value(match[1]), text)


def titles(text: str) -> list[str]:
    """Return the titles in braces in a text."""
    return _TITLE.findall(text)


def published() -> Mapping[str, Mapping[str, str]]:
    """Return every published number by key: its value with unit, its meaning and its source."""
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
    """Return the case of a float sum over `nbytes` bytes."""
    return Case(COLLECTIVES["allreduce"], nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, ranks, False)


def constants_of(measured: Numbers) -> tuple[float, float] | None:
    """Return the seconds of a step and the bytes/s of a link, the least and the most that were measured.

    The step is the shortest time of `one-shot-ll`, which has one step, or of any implementation if that was not
    measured.  None if its smallest message or every row was disturbed.
    """
    rows = measured.timed.items()
    single = {nbytes: row.typical for (name, nbytes), row in rows if name == ONE_STEP}
    disturbed = [nbytes for name, nbytes in measured.disturbed if name == ONE_STEP]
    if not rows or min(disturbed, default=math.inf) < min(single, default=math.inf):
        return None
    least = min(single.values() or [row.typical for _, row in rows])
    rates = [row.case.nbytes * link_of(name, row.case) / row.typical for (name, _), row in rows]
    return least, max(rates)


def link_of(name: str, case: Case) -> float:
    """Return the bytes through the busiest link per byte of the array; those of an ideal ring if unknown."""
    implementation = implementations().get(name)
    if implementation and implementation.cost:
        return implementation.cost(case).link
    return case.collective.bus_factor(case.ranks)
